package queues

import (
	"encoding/json"
	"math"
	"net/http"
	"time"
)

// View is what GET /ops/v1/queues answers. Numbers that nobody can know are
// null, never 0 and never infinite.
type View struct {
	At        time.Time `json:"at"`
	SampledAt time.Time `json:"sampled_at"` // of the last good measurement
	// Stale tells that the measurement is old: the queue does not answer, and
	// what is shown is what was last known.
	Stale     bool        `json:"stale"`
	Error     string      `json:"error,omitempty"` // why the last measurement failed
	Poll      float64     `json:"poll_seconds"`
	Window    float64     `json:"window_seconds"`
	DepthMode string      `json:"depth_mode"`
	Spool     SpoolView   `json:"spool"`
	Queues    []QueueView `json:"queues"`
}

// SpoolView is what this node keeps on disk for the queue. Other nodes' spools
// are theirs to tell.
type SpoolView struct {
	Records int64    `json:"records"`
	Bytes   int64    `json:"bytes"`
	Oldest  *float64 `json:"oldest_seconds"`
}

// QueueView is one topic as one group reads it.
type QueueView struct {
	Queue   string `json:"queue"`
	Account string `json:"account,omitempty"`
	Topic   string `json:"topic"`
	Group   string `json:"group"`
	// Depth is Lag and what this node's spool keeps for the topic.
	Depth      int64           `json:"depth"`
	Lag        int64           `json:"lag"`
	Spooled    int64           `json:"spooled"`
	Age        *float64        `json:"age_seconds"` // of the oldest record
	In         float64         `json:"in_per_second"`
	Out        float64         `json:"out_per_second"`
	Drain      *float64        `json:"drain_seconds"` // of the partition that takes longest
	Status     Status          `json:"status"`        // the worst of the partitions
	Verdict    Verdict         `json:"verdict"`       // the worst of the partitions
	Since      *time.Time      `json:"since,omitempty"`
	Missing    bool            `json:"missing,omitempty"` // the topic does not exist
	Error      string          `json:"error,omitempty"`   // why this queue could not be measured
	Partitions []PartitionView `json:"partitions"`
}

// PartitionView is one partition of a queue.
type PartitionView struct {
	Partition int32     `json:"partition"`
	Depth     int64     `json:"depth"`
	Committed *int64    `json:"committed"` // null: never
	Start     int64     `json:"start"`
	End       int64     `json:"end"`
	Skipped   int64     `json:"skipped"` // deleted by retention before they were read
	Age       *float64  `json:"age_seconds"`
	In        float64   `json:"in_per_second"`
	Out       float64   `json:"out_per_second"`
	Drain     *float64  `json:"drain_seconds"`
	Status    Status    `json:"status"`
	Verdict   Verdict   `json:"verdict"`
	Since     time.Time `json:"since"`            // of the verdict
	Consumer  *string   `json:"consumer"`         // who holds it: null unknown, "" nobody
	Unseen    bool      `json:"unseen,omitempty"` // not in the last measurement
}

func (p *partition) view(now time.Time) PartitionView {
	v := PartitionView{
		Partition: p.lag.Partition, Depth: p.lag.Lag, Start: p.lag.Start, End: p.lag.End, Skipped: p.lag.Skipped,
		In: tidy(p.in.perSecond), Out: tidy(p.out.perSecond), Status: p.status, Verdict: p.verdict, Since: p.since,
		Unseen: !p.seen.Equal(now),
	}
	if c := p.lag.Committed; c >= 0 {
		v.Committed = &c
	}
	if p.aged {
		v.Age = seconds(p.age)
	}
	if d, ok := p.drain(0); ok {
		v.Drain = seconds(d)
	}
	if owner := p.owner; p.holder != holderUnknown {
		v.Consumer = &owner
	}
	return v
}

func (s *set) view(now time.Time, missing bool) QueueView {
	t := s.totals()
	v := QueueView{
		Queue: s.queue.Name, Account: s.queue.Account, Topic: s.queue.Topic, Group: s.queue.Group,
		Depth: t.lag, Lag: t.lag, In: tidy(t.in), Out: tidy(t.out), Status: Unknown, Verdict: Fine,
		Missing: missing, Partitions: make([]PartitionView, 0, len(s.partitions)),
	}
	if s.err != nil {
		v.Error = s.err.Error()
	}
	for i, p := range s.partitions {
		v.Partitions = append(v.Partitions, p.view(now))
		if i == 0 || statusRank[p.status] > statusRank[v.Status] {
			v.Status = p.status
		}
		switch worse := verdictRank[p.verdict] - verdictRank[v.Verdict]; {
		case v.Since == nil || worse > 0, worse == 0 && p.since.Before(*v.Since):
			since := p.since // the view outlives this check
			v.Verdict, v.Since = p.verdict, &since
		}
	}
	if len(s.partitions) == 0 {
		return v
	}
	if t.aged {
		v.Age = seconds(t.age)
	}
	if t.drained {
		v.Drain = seconds(t.drain)
	}
	return v
}

var (
	statusRank  = map[Status]int{Unknown: 0, OK: 1, Slow: 2, Rewind: 3, Stall: 4, Stop: 5}
	verdictRank = map[Verdict]int{Fine: 0, Deep: 1, Laggard: 2, Overload: 3, Faulty: 4}
)

// Rank orders verdicts, the worst highest.
func (v Verdict) Rank() int { return verdictRank[v] }

// Rank orders statuses, the worst highest.
func (s Status) Rank() int { return statusRank[s] }

func seconds(d time.Duration) *float64 {
	s := tidy(d.Seconds())
	return &s
}

// tidy keeps three digits after the point.
func tidy(f float64) float64 { return math.Round(f*1000) / 1000 }

// View gives the last measurement with this moment's spool.
func (w *Watch) View() View {
	now := w.now()
	v := *w.view.Load()
	v.At = now
	v.Stale = w.stale(now)
	v.Spool, v.Queues = w.withSpool(now, v.Queues)
	return v
}

// withSpool adds what this node's spool keeps. The last view is shared, so it is
// copied.
func (w *Watch) withSpool(now time.Time, queues []QueueView) (SpoolView, []QueueView) {
	held := w.spool()
	s := SpoolView{Records: held.Records, Bytes: held.Bytes}
	if !held.Oldest.IsZero() {
		s.Oldest = seconds(max(0, now.Sub(held.Oldest)))
	}
	out := make([]QueueView, len(queues))
	for i, q := range queues {
		q.Spooled = held.Topics[q.Topic]
		q.Depth = q.Lag + q.Spooled
		out[i] = q
	}
	return s, out
}

// ServeHTTP is GET /ops/v1/queues; ?account= gives one account and what all
// share.
func (w *Watch) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	v := w.View()
	if account := r.URL.Query().Get("account"); account != "" {
		var some []QueueView
		for _, q := range v.Queues {
			if q.Account == account || q.Account == "" {
				some = append(some, q)
			}
		}
		v.Queues = some
	}
	if v.Queues == nil {
		v.Queues = []QueueView{}
	}
	rw.Header().Set("Content-Type", "application/json; charset=utf-8")
	rw.Header().Set("Cache-Control", "no-store")
	e := json.NewEncoder(rw)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // whoever asked has gone
}
