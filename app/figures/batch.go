package figures

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tidegate/app/figures/chart"
)

// responses gives the sorted response times of a batch, or nil while some have
// no answer.
func (c *crew) responses(ids []string, begin time.Time) []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.answered) < len(ids) {
		return nil
	}
	out := make([]time.Duration, 0, len(ids))
	for _, id := range ids {
		at, ok := c.answered[id]
		if !ok {
			return nil
		}
		out = append(out, at.Sub(begin))
	}
	slices.Sort(out)
	return out
}

// batch is one run of both ways.
type batch struct {
	times                      int
	queued, direct             []time.Duration // response times, from short to long
	queuedAtOnce, directAtOnce int
}

// first and last are the means of the hundred users that were answered first and
// last.
func first(of []time.Duration) time.Duration { return mean(of[:places]) }
func last(of []time.Duration) time.Duration  { return mean(of[len(of)-places:]) }

func mean(of []time.Duration) time.Duration {
	var sum time.Duration
	for _, d := range of {
		sum += d
	}
	return sum / time.Duration(len(of))
}

// middle runs a batch three times, or once in the short form, and gives the
// response times of the run whose mean is in the middle: one moment in which the
// machine does something else makes no figure. At once is the most of all runs.
func (c *crew) middle(ctx context.Context, account string, times int) (took []time.Duration, most int, err error) {
	runs := c.s.runs()
	var all [][]time.Duration
	for range runs {
		of, atOnce, err := c.run(ctx, account, times)
		if err != nil {
			return nil, 0, err
		}
		all, most = append(all, of), max(most, atOnce)
	}
	slices.SortFunc(all, func(a, b []time.Duration) int { return cmp.Compare(mean(a), mean(b)) })
	return all[runs/2], most, nil
}

// batches runs batches of 1 to n times the usual size, each through the queue and
// directly.
func (s *stage) batches(ctx context.Context, n int) (out []batch, err error) {
	c, stop, err := s.crew(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for times := 1; times <= n; times++ {
		b := batch{times: times}
		if b.queued, b.queuedAtOnce, err = c.middle(ctx, queued, times); err != nil {
			return nil, err
		}
		if b.direct, b.directAtOnce, err = c.middle(ctx, direct, times); err != nil {
			return nil, err
		}
		s.progress("batch of %d × %d: through the queue %v to %v, all at once %v to %v", times, places,
			first(b.queued).Round(time.Millisecond), last(b.queued).Round(time.Millisecond), first(b.direct).Round(time.Millisecond), last(b.direct).Round(time.Millisecond))
		out = append(out, b)
	}
	return out, nil
}

func (s *stage) scenery() string {
	text := fmt.Sprintf("transactions of %v, a back end with %d places that loses %.0f %% of its speed per %d too many; a robot between Kafka and it", transaction, places, 100*contention, places)
	if n := s.runs(); n > 1 {
		text += fmt.Sprintf("; the middle of %d runs", n)
	}
	return text
}

// runs is how often a batch is sent.
func (s *stage) runs() int {
	if s.Short {
		return 1
	}
	return 3
}

// doubledFigure shows every user of a doubled batch: the usual half is answered as
// always and the other half one turn later, where without a queue all suffer.
func doubledFigure(ctx context.Context, s *stage) (drawing, error) {
	d := drawing{header: []string{"place", "usual_batch_s", "doubled_queue_s", "doubled_at_once_s"}}
	got, err := s.batches(ctx, 2)
	if err != nil {
		return d, err
	}
	usual, doubled := got[0], got[1]
	series := []chart.Series{
		{Name: "doubled, 100 at a time", Plain: true}, {Name: "doubled, all at once", Plain: true}, {Name: "usual batch, 100 at a time", Plain: true},
	}
	for i := range doubled.queued {
		x := float64(i + 1)
		before := any("")
		if i < len(usual.queued) {
			before = usual.queued[i]
			series[2].Points = append(series[2].Points, chart.Point{X: x, Y: usual.queued[i].Seconds()})
		}
		series[0].Points = append(series[0].Points, chart.Point{X: x, Y: doubled.queued[i].Seconds()})
		series[1].Points = append(series[1].Points, chart.Point{X: x, Y: doubled.direct[i].Seconds()})
		d.rows = append(d.rows, []any{i + 1, before, doubled.queued[i], doubled.direct[i]})
	}
	d.claimDoubled(s, usual, doubled)
	d.chart = chart.Chart{Note: s.scenery(), X: chart.Axis{Label: "user, in the order of the answers"}, Y: chart.Axis{Label: "response time, s"}, Series: series,
		Marks: []chart.Mark{{Value: places, Vertical: true, Label: "the usual batch"}}}
	return d, nil
}

// batchesFigure shows how the response time grows with the batch: by one turn
// for those who come on top, and for all without a queue.
func batchesFigure(ctx context.Context, s *stage) (drawing, error) {
	d := drawing{header: []string{"batch", "queue_first_100_s", "queue_last_100_s", "at_once_first_100_s", "at_once_last_100_s", "queue_at_once", "direct_at_once"}}
	sizes := largest
	if s.Short {
		sizes = 3
	}
	got, err := s.batches(ctx, sizes)
	if err != nil {
		return d, err
	}
	series := []chart.Series{{Name: "100 at a time: the last 100"}, {Name: "all at once: the last 100"}, {Name: "100 at a time: the first 100"}}
	for _, b := range got {
		x := float64(b.times)
		series[0].Points = append(series[0].Points, chart.Point{X: x, Y: last(b.queued).Seconds()})
		series[1].Points = append(series[1].Points, chart.Point{X: x, Y: last(b.direct).Seconds()})
		series[2].Points = append(series[2].Points, chart.Point{X: x, Y: first(b.queued).Seconds()})
		d.rows = append(d.rows, []any{b.times, first(b.queued), last(b.queued), first(b.direct), last(b.direct), b.queuedAtOnce, b.directAtOnce})
	}
	d.claimDoubled(s, got[0], got[1])
	d.claimGrowth(s, got)
	d.chart = chart.Chart{Note: s.scenery(), X: chart.Axis{Label: "size of the batch, × 100 users"}, Y: chart.Axis{Label: "response time, s"}, Series: series}
	return d, nil
}

// claimDoubled is B3.2. Times within a tenth are for a machine that does nothing
// else; that the second half waits a turn, that no more than the places are used
// and that without a queue the mean is worse hold on any.
func (d *drawing) claimDoubled(s *stage, usual, doubled batch) {
	a, b := first(doubled.queued), last(doubled.queued)
	d.claim(doubled.queuedAtOnce <= places && usual.queuedAtOnce <= places, fmt.Sprintf("through the queue ≤ %d transactions at once", places), "%d, all at once %d", doubled.queuedAtOnce, doubled.directAtOnce)
	d.claim(b-a >= transaction*4/5, "B3.2 the added half waits one more turn", "%v more", (b - a).Round(time.Millisecond))
	slower := mean(doubled.direct) > mean(doubled.queued)
	d.timed(doubled.directAtOnce > places && slower, "without a queue the mean user of a doubled batch waits longer", "%v against %v", mean(doubled.direct).Round(time.Millisecond), mean(doubled.queued).Round(time.Millisecond))
	if s.Short {
		return
	}
	d.timed(near(a, transaction) && near(b, 2*transaction), "B3.2 halves answered after 0.25 and 0.50 s ± 10 %", "%v and %v", a.Round(time.Millisecond), b.Round(time.Millisecond))
	d.timed(doubled.direct[0] >= 2*transaction, "B3.2 without a queue nobody is answered before 0.50 s", "first after %v, last after %v", doubled.direct[0].Round(time.Millisecond), doubled.direct[len(doubled.direct)-1].Round(time.Millisecond))
}

func near(d, want time.Duration) bool { return d >= want*9/10 && d <= want*11/10 }

// claimGrowth: each further hundred adds a turn to the last ones, and the way
// without a queue is worse at every size above the usual one.
func (d *drawing) claimGrowth(s *stage, got []batch) {
	steps, worse := true, true
	for i := 1; i < len(got); i++ {
		step := last(got[i].queued) - last(got[i-1].queued)
		steps = steps && step >= transaction/2 && (s.Short || step <= transaction*3/2)
		worse = worse && mean(got[i].direct) > mean(got[i].queued)
	}
	end := got[len(got)-1]
	d.timed(steps, "each further 100 users add one turn of 0.25 s", "%v for %d × %d", last(end.queued).Round(time.Millisecond), end.times, places)
	d.timed(worse, "all at once, the mean response is longer at every size", "%v against %v for %d × %d", mean(end.direct).Round(time.Millisecond), mean(end.queued).Round(time.Millisecond), end.times, places)
}
