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
  queues       tidegate queues --ops %s
  simulator    %s                     (WeChat's API, and /sim/v1/… to steer it)
  data, log    %s

Paste one of these into another terminal:

  # a business system pushes a template message
  curl -s -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' -H "Idempotency-Key: try-$(date +%%s)" -d '%s' http://%s/v1/pushes

  # what became of it (and of everything else of this follower)
  curl -s -H 'Authorization: Bearer %s' 'http://%s/v1/messages?openid=%s'

  # a follower writes, and is answered
  curl -s -H 'Content-Type: application/json' -d '{"openid":"%s","text":"hours"}' %s/sim/v1/say

`, door, devAccount, apiAddr, w.ops.Addr(), w.ops.Addr(), w.sim.URL(), w.dir,
		w.key, devPushJSON(openid), apiAddr, w.key, apiAddr, openid, openid, w.sim.URL())
}

// showStatus writes the state of things every few seconds; on a terminal it
// redraws the same lines each second.
func (w *devWorld) showStatus(ctx context.Context, out io.Writer) error {
	live := isTerminal(out)
	every := 5 * time.Second
	if live {
		every = time.Second
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for first := true; ; first = false {
		lines := w.statusLines(ctx)
		switch {
		case !live:
			fmt.Fprintln(out, strings.Join(lines, "  "))
		case first:
			fmt.Fprint(out, strings.Join(lines, "\n")+"\n")
		default: // up to the first line, and each line cleared before it is written
			fmt.Fprintf(out, "\x1b[%dA\x1b[K%s\n", len(lines), strings.Join(lines, "\n\x1b[K"))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// statusLines stay below 80 columns each.
func (w *devWorld) statusLines(ctx context.Context) []string {
	v := w.sim.Verdict(time.Minute)
	depth, age := w.queue()
	return []string{
		fmt.Sprintf("%5.0fs  callbacks in %d, ack p50 %.1f ms, p99 %.1f ms, repeats %d",
			time.Since(w.began).Seconds(), v.Callbacks.Acked, v.Callbacks.AckP50Ms, v.Callbacks.AckP99Ms, v.Callbacks.UserRepeats),
		fmt.Sprintf("        queue depth %d, age %.1f s; replies out %d", depth, age.Seconds(), v.Replies.Visible),
		fmt.Sprintf("        pushes %d; receipts: %s", v.Pushes.Visible, w.receiptsLine(ctx)),
	}
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
