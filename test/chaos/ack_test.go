//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/test/chaos/check"
	"tidegate/test/chaos/drive"
)

// G2's bounds. The first counts from what this machine needs when nothing is
// broken, and is at most doubled where it is slow; the last is WeChat's and stays.
const (
	ackP99   = 500 * time.Millisecond
	ackWorst = 4500 * time.Millisecond
)

// maxRSS is what a door may hold, however long the queue is away (G16).
const maxRSS = 512 << 20

// ack breaks Redis, Kafka and a door under load, one at a time: every delivery
// is acknowledged in time and in form, and nothing acknowledged is lost (G1, G2,
// G16; T10, T26, T27).
func ack(t *testing.T, e *engines, n numbers) {
	w := newWorld(t, e, shape{doors: 2})
	r := &ackRun{world: w, acts: int64(n.ack.acts), crowd: w.crowd(1000)}
	rate := r.bearable(w.rate(n.ack.rate))
	load := r.load(t.Context(), rate)
	r.phase("calm", func() {})
	r.fault("Redis frozen", e.redis.Pause, e.redis.Resume, 0, r.unchecked)
	r.phase("Redis awake", func() {})
	r.fault("Redis killed", e.redis.Kill, e.emptyRedis, 0, r.unchecked)
	r.phase("Redis back, empty", func() {})
	r.fault("Kafka frozen", e.kafka.Pause, e.kafka.Resume, n.ack.kafkaHung, w.spooled)
	r.phase("Kafka awake", w.settled)
	r.fault("Kafka killed", e.kafka.Kill, e.kafka.Restart, n.ack.kafkaDown, w.spooled)
	r.phase("Kafka back", w.settled)
	r.peak()
	r.fault("a door restarted", w.doors[0].Stop, w.doors[0].Restart, 0, nil)
	r.peak()
	s := load()
	require.Zero(t, s.Skipped, "the driver could not keep its plan")
	require.Zero(t, s.GivenUp, "callbacks that WeChat gave up")
	r.table(rate)
	v := w.judge(check.Options{Doubles: true, SettleLimit: w.patience(time.Minute)})
	// Users move from the door that is restarted; if the queue was slow just then,
	// what it has on its disk comes later (D12).
	require.Zero(t, v.sameDoor, "inversions of callbacks that one door took")
	delete(v.Found, "inversion")
	v.demand(t)
	r.report(rate, v)
}

// ackRun is the phases of ack.
type ackRun struct {
	*world
	acts    int64
	crowd   func(i int) drive.Act
	made    int      // acts of the crowd so far; loads follow one another
	faults  []string // names of the phases with a fault
	rss     int64
	atFault map[string]float64
}

// load offers callbacks until it is ended, which gives what came of them.
func (r *ackRun) load(parent context.Context, rate float64) (end func() drive.Sum) {
	ctx, stop := context.WithCancel(parent)
	sum := make(chan drive.Sum, 1)
	act := func(int) drive.Act { r.made++; return r.crowd(r.made - 1) }
	go func() { sum <- r.drive.Open(ctx, drive.Load{Rate: rate, Act: act, Dice: r.dice}) }()
	return func() drive.Sum { stop(); return <-sum }
}

// bearable halves a rate until this machine, doing now what it does besides,
// answers it in good time while nothing is broken: a queue in front of the
// processor is none of ours. At a tenth it is taken as it is.
func (r *ackRun) bearable(rate float64) float64 {
	for least := rate / 10; ; rate /= 2 {
		name := fmt.Sprintf("warming up at %.0f/s", rate)
		end := r.load(r.t.Context(), rate)
		r.phase(name, func() {})
		end()
		phases := r.drive.Phases()
		if phases[len(phases)-1].Quantile(0.99) < ackP99 || rate/2 < least {
			return rate
		}
	}
}

// phase lets acts pass, does what it is given, and lets the next phase begin.
func (r *ackRun) phase(name string, do func()) {
	r.t.Helper()
	r.drive.Begin(name)
	r.h.Note("phase: %s", name)
	r.pass(r.acts / 5)
	do()
}

// fault breaks something with deliveries in flight, lets acts pass, and mends
// it. proof grows when the fault has met traffic.
func (r *ackRun) fault(name string, brk, mend func(), least time.Duration, proof func() float64) {
	r.t.Helper()
	before := 0.0
	if proof != nil {
		before = proof()
	}
	inFlight := r.waitForWork()
	r.drive.Begin(name)
	r.faults = append(r.faults, name)
	over := time.After(least)
	brk()
	r.pass(r.acts)
	select {
	case <-over:
	case <-r.t.Context().Done():
	}
	met := 0.0
	if proof != nil {
		met = proof() - before
		require.Positive(r.t, met, "%s: the fault met no callback", name)
	}
	require.Positive(r.t, inFlight, "%s: nothing was in flight", name)
	if r.atFault == nil {
		r.atFault = map[string]float64{}
	}
	r.atFault[name] = met
	r.drive.Begin(name + ", mending")
	mend()
}

// unchecked counts callbacks that passed without a claim.
func (r *ackRun) unchecked() float64 {
	n := 0.0
	for _, d := range r.doors {
		n += d.MetricWith("tidegate_proxy_callbacks_total", `result="unchecked"`)
	}
	return n
}

// peak notes the most memory that a door has held so far.
func (r *ackRun) peak() {
	for _, d := range r.doors {
		r.rss = max(r.rss, d.PeakRSS())
	}
}

// table shows what the answers were in each phase.
func (r *ackRun) table(rate float64) {
	ci(r.t, "at %.0f/s, by what was broken:", rate)
	for _, p := range r.drive.Phases() {
		ci(r.t, "%s", p.String())
	}
}

func (r *ackRun) report(rate float64, v verdict) {
	t := r.t
	deliveries, bad, over := int64(0), int64(0), 0
	worst, calm := time.Duration(0), time.Duration(0)
	for _, p := range r.drive.Phases() {
		if p.Name == "calm" {
			calm = p.Quantile(0.99)
		}
		bad += p.NotAcked()
		deliveries += p.Deliveries()
		over += p.Over(ackWorst)
		worst = max(worst, p.Quantile(1))
		require.Zero(t, p.NotAcked(), "%s: %s", p.Name, p.Bad)
		if slices.Contains(r.faults, p.Name) {
			require.LessOrEqual(t, p.Quantile(0.99), calm+time.Duration(float64(ackP99)*min(r.slow, 2)), "G2: p99 of %s", p.Name)
		}
	}
	require.Zero(t, over, "G2: answers after %s", ackWorst)
	require.Less(t, r.rss, int64(maxRSS), "G16: memory of a door")
	ci(t, "G2 %d faults at %.0f/s, %d deliveries: bad answers %d, worst %.0f ms, later than 4.5 s: %d; %.0f passed unchecked while Redis was away", len(r.faults), rate, deliveries, bad, float64(worst)/1e6, over, r.atFault["Redis frozen"]+r.atFault["Redis killed"])
	ci(t, "G16 Kafka away at %.0f/s: at most %d MiB held by a door (512 allowed), %.0f records in the spools when Kafka came back; acked %d, lost %d, out of order by one door %d, over doors %d", rate, r.rss>>20, r.atFault["Kafka killed"], v.acked, v.lost, v.sameDoor, v.inversions)
}
