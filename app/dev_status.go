package app

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// announce says where everything is and gives three lines to paste.
func (w *devWorld) announce(o DevOptions) {
	door, apiAddr := w.parts[RoleProxy].addr["door"], w.api.Addr()
	users, err := w.sim.Followers("", 1)
	openid := ""
	if err == nil && len(users) > 0 {
		openid = users[0]
	}
	fmt.Fprintf(o.Out, `Tidegate runs in this process: proxy, robot, sender, receipts, embedded Kafka, Redis and SQLite, and a simulated WeChat.

  callbacks    http://%s/wx/%s        (WeChat posts here)
  API          http://%s/v1/pushes, /v1/messages
  operations   http://%s/metrics, /healthz, /readyz
  simulator    %s                     (WeChat's API, and /sim/v1/… to steer it)
  data, log    %s

Paste one of these into another terminal:

  # a business system pushes a template message
  curl -s -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' -H "Idempotency-Key: try-$(date +%%s)" -d '%s' http://%s/v1/pushes

  # what became of it (and of everything else of this follower)
  curl -s -H 'Authorization: Bearer %s' 'http://%s/v1/messages?openid=%s'

  # a follower writes, and is answered
  curl -s -H 'Content-Type: application/json' -d '{"openid":"%s","text":"hours"}' %s/sim/v1/say

`, door, devAccount, apiAddr, w.ops.Addr(), w.sim.URL(), w.dir,
		w.key, devPushJSON(openid), apiAddr, w.key, apiAddr, openid, openid, w.sim.URL())
}

// showStatus writes a line each second; on a terminal each replaces the last.
func (w *devWorld) showStatus(ctx context.Context, out io.Writer) error {
	live := isTerminal(out)
	every := 5 * time.Second
	if live {
		every = time.Second
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		line := w.statusLine(ctx)
		if live {
			fmt.Fprintf(out, "\r\x1b[K%s", line)
		} else {
			fmt.Fprintln(out, line)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

func (w *devWorld) statusLine(ctx context.Context) string {
	v := w.sim.Verdict(time.Minute)
	depth, age := w.queue()
	return fmt.Sprintf("%4.0fs  in %d  ack p50 %.1f p99 %.1f ms  repeats %d  queue %d, %.1fs old  replies %d  pushes %d  receipts %s",
		time.Since(w.began).Seconds(), v.Callbacks.Acked, v.Callbacks.AckP50Ms, v.Callbacks.AckP99Ms, v.Callbacks.UserRepeats,
		depth, age.Seconds(), v.Replies.Visible, v.Pushes.Visible, w.receiptsLine(ctx))
}

// queue is how many callbacks the robot has not finished, and the age of the
// oldest.
func (w *devWorld) queue() (depth int64, age time.Duration) {
	for _, p := range w.parts[RoleRobot].stats() {
		if p.LowWater >= 0 {
			depth += max(0, p.End-p.LowWater)
		}
		age = max(age, p.Oldest)
	}
	return depth, age
}

// receiptsLine gives the pushes by state, most advanced first.
func (w *devWorld) receiptsLine(ctx context.Context) string {
	c, err := w.states(ctx)
	if err != nil {
		return "?"
	}
	var parts []string
	for _, s := range statesByRank() {
		if n := c.pushes[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", s, n))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// isTerminal reports whether a line may be overwritten.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
