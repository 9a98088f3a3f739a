package sender_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/ratelimit"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
)

// The bars of caps over sender processes, as WeChat sees them. They take minutes and
// need a machine of their own, so `make prove` plays them; what they rest on is
// tested with counts in pkg/ratelimit.

func fullCaps(t *testing.T) {
	if os.Getenv("TIDEGATE_TEST_CAPS_FULL") == "" {
		t.Skip("TIDEGATE_TEST_CAPS_FULL is not set: the bars of caps over processes take minutes")
	}
}

// processes are senders that share a cap, over a Redis that the test may restart.
type processes struct {
	*world
	limit ratelimit.Limit
	redis *redismem.Server
	all   []*exec.Cmd

	seenMu sync.Mutex
	at     []int64          // arrivals, by the wall clock
	ids    map[string]int64 // the first of each message
}

func newProcesses(t *testing.T, l ratelimit.Limit, n int) *processes {
	p := &processes{world: newWorld(t), limit: l, ids: map[string]int64{}}
	p.onArrival(func(e wechatsim.Entry) {
		if e.What != wechatsim.PathTemplateSend {
			return
		}
		now := time.Now().UnixNano()
		p.seenMu.Lock()
		defer p.seenMu.Unlock()
		p.at = append(p.at, now)
		if _, twice := p.ids[e.ClientMsgID]; !twice {
			p.ids[e.ClientMsgID] = now
		}
	})
	var err error
	p.redis, err = redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(func() { p.redis.Close() })
	p.redisAddr = p.redis.Addr()
	t.Cleanup(func() {
		for _, c := range p.all {
			_ = c.Process.Kill() // also one that was killed before, or stands still
			_ = c.Wait()
		}
	})
	for range n {
		p.add()
	}
	return p
}

func (p *processes) add() {
	p.all = append(p.all, p.spawn(func(c *childWorld) { c.Shared, c.Template = true, p.limit }))
}

// amnesia restarts Redis without its data.
func (p *processes) amnesia() {
	p.redis.Close()
	var err error
	p.redis, err = redismem.Start(p.redisAddr)
	require.NoError(p.t, err)
}

// backlog queues n pushes of a lane.
func (p *processes) backlog(lane string, n int) {
	var wg sync.WaitGroup
	for k := range 16 {
		wg.Go(func() {
			for i := k; i < n; i += 16 {
				p.push(fmt.Sprint(lane, i), func(m *wire.Push) { m.Lane, m.OpenID = lane, p.followers[i%len(p.followers)] })
			}
		})
	}
	wg.Wait()
}

// after waits for real time to pass: these bars are of it.
func (p *processes) after(d time.Duration) { <-time.After(d) }

// sent are the arrivals so far.
func (p *processes) sent() []int64 {
	p.seenMu.Lock()
	defer p.seenMu.Unlock()
	return slices.Sorted(slices.Values(p.at))
}

// fullest is the most arrivals in any window [t, t+w).
func fullest(at []int64, w time.Duration) (n int) {
	from := 0
	for i, x := range at {
		for x-at[from] >= int64(w) {
			from++
		}
		n = max(n, i-from+1)
	}
	return n
}

func between(at []int64, from, to int64) int {
	a, _ := slices.BinarySearch(at, from)
	b, _ := slices.BinarySearch(at, to)
	return b - a
}

type bars struct {
	t      *testing.T
	failed bool
}

func (b *bars) row(ok bool, bar, format string, args ...any) {
	verdict := "met"
	if !ok {
		verdict, b.failed = "MISSED", true
	}
	fmt.Fprintf(os.Stdout, "BAR | %-62s | %-34s | %s\n", bar, fmt.Sprintf(format, args...), verdict)
}

func (b *bars) end() { require.False(b.t, b.failed, "a bar is missed; see the table") }

// G10: R = 200, B = 20 over 2, 3 and 2 processes for a minute, five restarts of Redis
// without data, a kill -9 and a freeze of 10 s: arrivals in every window.
func TestG10OfSenders(t *testing.T) {
	fullCaps(t)
	p := newProcesses(t, ratelimit.Limit{Rate: 200, Burst: 20, Concurrency: 64}, 2)
	p.backlog(wire.LaneBulk, 15000)
	require.Eventually(t, func() bool { return len(p.sent()) > 200 }, 30*time.Second, 10*time.Millisecond)
	begin := p.sent()[0]
	p.after(14 * time.Second) // a calm stretch
	calm := int64(4 * time.Second)
	use := float64(between(p.sent(), begin+calm, begin+calm+int64(10*time.Second))) / 2000
	p.add()
	for i := range 5 {
		p.amnesia()
		switch i {
		case 1:
			require.NoError(t, p.all[0].Process.Kill())
		case 2:
			require.NoError(t, p.all[1].Process.Signal(syscall.SIGSTOP))
		case 4:
			require.NoError(t, p.all[1].Process.Signal(syscall.SIGCONT))
		}
		p.after(8 * time.Second)
	}
	at := p.sent()
	b := &bars{t: t}
	for _, w := range []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second} {
		most := (200*w.Seconds() + 20) * 1.05
		b.row(float64(fullest(at, w)) <= most, fmt.Sprintf("G10 arrivals in any %v at most %.0f", w, most), "%d", fullest(at, w))
	}
	b.row(use >= 0.97, "G10 use of the cap in a calm stretch, at least 97 %", "%.1f %%", 100*use)
	b.row(len(at) > 3000, "more than 3000 went through it all", "%d", len(at))
	b.end()
}

// B3.6: 1,019 a minute is 1,019 a minute, no 100 ms hold more than three, and when one
// of two senders is killed the sum is what it was within two seconds.
func TestB36OfSenders(t *testing.T) {
	fullCaps(t)
	rate := 1019.0 / 60
	p := newProcesses(t, ratelimit.Limit{Rate: rate, Burst: 2, Concurrency: 16}, 2)
	p.backlog(wire.LaneBulk, 2600)
	require.Eventually(t, func() bool { return len(p.sent()) > 40 }, 30*time.Second, 10*time.Millisecond)
	p.after(63 * time.Second)
	dead := time.Now().UnixNano()
	require.NoError(t, p.all[0].Process.Kill())
	p.after(65 * time.Second)
	at := p.sent()
	begin := at[0] + int64(3*time.Second)
	first, second := between(at, begin, begin+int64(time.Minute)), between(at, dead+int64(2*time.Second), dead+int64(62*time.Second))
	b := &bars{t: t}
	b.row(first >= 1009 && first <= 1029, "B3.6 in a minute of two senders 1,019 ± 1 %", "%d", first)
	b.row(second >= 1009 && second <= 1029, "B3.6 in a minute that begins 2 s after a kill 1,019 ± 1 %", "%d", second)
	b.row(fullest(at, 100*time.Millisecond) <= 3, "B3.6 in any 100 ms at most 3", "%d", fullest(at, 100*time.Millisecond))
	b.end()
}

// B3.7: behind a backlog of bulk, realtime pushes wait a second at most, for 99 of a
// hundred.
func TestB37OfSenders(t *testing.T) {
	fullCaps(t)
	backlog := 20000
	if os.Getenv("TIDEGATE_TEST_KAFKA") != "" {
		backlog = 100000 // the depth of the queue does not matter once there is one
	}
	p := newProcesses(t, ratelimit.Limit{Rate: 200, Burst: 20, Concurrency: 64}, 2)
	p.backlog(wire.LaneBulk, backlog)
	require.Eventually(t, func() bool { return len(p.sent()) > 600 }, 60*time.Second, 10*time.Millisecond)
	queuedAt := map[string]int64{}
	for i := range 900 { // 30 a second
		now := time.Now().UnixNano()
		queuedAt[p.push(fmt.Sprint("urgent ", i), func(m *wire.Push) { m.OpenID = p.followers[i%20] })] = now
		p.after(33 * time.Millisecond)
	}
	var waits []time.Duration
	require.Eventually(t, func() bool {
		waits = waits[:0]
		p.seenMu.Lock()
		defer p.seenMu.Unlock()
		for id, at := range queuedAt {
			if arrived, ok := p.ids[id]; ok {
				waits = append(waits, time.Duration(arrived-at))
			}
		}
		return len(waits) >= len(queuedAt)
	}, 30*time.Second, 50*time.Millisecond)
	slices.Sort(waits)
	p99 := waits[len(waits)*99/100]
	b := &bars{t: t}
	b.row(p99 <= time.Second, fmt.Sprintf("B3.7 behind %d bulk, realtime p99 of queueing at most 1 s", backlog), "%v (median %v)", p99.Round(time.Millisecond), waits[len(waits)/2].Round(time.Millisecond))
	b.end()
}
