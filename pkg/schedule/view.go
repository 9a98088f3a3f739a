package schedule

import (
	"context"
	"fmt"
	"time"

	"tidegate/pkg/lease"
)

// View is the answer of GET /ops/v1/jobs.
type View struct {
	Node   string     `json:"node"`          // that answers
	Off    string     `json:"off,omitempty"` // why there is nothing
	Now    time.Time  `json:"now,omitzero"`  // of the database, by which jobs go
	Leader LeaderView `json:"leader"`
	Jobs   []JobView  `json:"jobs"`
}

// LeaderView is who began runs last.
type LeaderView struct {
	Node  string    `json:"node,omitempty"`
	Fence int64     `json:"fence,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Leads tells whether anybody leads now; Unknown why nobody can say.
	Leads   bool   `json:"leads"`
	Unknown string `json:"unknown,omitempty"`
}

// JobView is one job and how it stands.
type JobView struct {
	Name        string    `json:"name"`
	About       string    `json:"about"`
	Schedule    string    `json:"schedule"`
	Location    string    `json:"location"`
	CatchUp     string    `json:"catch_up"`
	NewestOnly  bool      `json:"newest_only"`
	Timeout     string    `json:"timeout"`
	Attempts    int       `json:"attempts"`
	RetryWait   string    `json:"retry_wait"`
	Interrupted Policy    `json:"interrupted"`
	Next        time.Time `json:"next"`
	// Done is the newest slot that succeeded, DoneAt when something last did.
	Done           time.Time `json:"done_slot,omitzero"`
	DoneAt         time.Time `json:"done_at,omitzero"`
	OverdueSeconds int64     `json:"overdue_seconds"`
	Last           *Record   `json:"last,omitempty"` // the newest row
}

// HistoryView is the answer of GET /ops/v1/jobs/{name}.
type HistoryView struct {
	JobView
	Runs []Record `json:"runs"` // the newest first
}

// View reads how all jobs stand.
func (s *Scheduler) View(ctx context.Context) (View, error) {
	now, err := s.o.Store.now(ctx)
	if err != nil {
		return View{}, err
	}
	v := View{Node: s.o.Node, Now: now.UTC(), Jobs: []JobView{}}
	if v.Leader, err = s.leader(ctx); err != nil {
		return View{}, err
	}
	for _, j := range s.jobs {
		jv, err := s.view(ctx, j, now)
		if err != nil {
			return View{}, err
		}
		last, err := s.o.Store.History(ctx, j.Name, 0, 1)
		if err != nil {
			return View{}, err
		}
		if len(last) > 0 {
			jv.Last = &last[0]
		}
		v.Jobs = append(v.Jobs, jv)
	}
	return v, nil
}

func (s *Scheduler) leader(ctx context.Context) (LeaderView, error) {
	h, err := headOf(ctx, s.o.Store.db, s.o.Team)
	if err != nil {
		return LeaderView{}, err
	}
	v := LeaderView{Node: h.node, Fence: h.fence, Since: h.since}
	if _, v.Leads, err = lease.Current(ctx, s.o.Redis, leaseName(s.o.Team)); err != nil {
		v.Unknown = fmt.Sprintf("Redis did not say: %v", err)
	}
	return v, nil
}

func leaseName(team string) string { return "jobs:" + team }

// History reads one job with rows of ids below before (0: all).
func (s *Scheduler) History(ctx context.Context, name string, before int64, limit int) (HistoryView, error) {
	j, err := s.job(name)
	if err != nil {
		return HistoryView{}, err
	}
	now, err := s.o.Store.now(ctx)
	if err != nil {
		return HistoryView{}, err
	}
	v := HistoryView{Runs: []Record{}}
	if v.JobView, err = s.view(ctx, j, now); err != nil {
		return HistoryView{}, err
	}
	rows, err := s.o.Store.History(ctx, name, before, limit)
	v.Runs = append(v.Runs, rows...)
	return v, err
}

func (s *Scheduler) view(ctx context.Context, j Job, now time.Time) (JobView, error) {
	p, err := s.o.Store.progress(ctx, j.Name)
	return JobView{
		Name: j.Name, About: j.About, Schedule: j.Spec.String(), Location: j.Spec.Zone(), CatchUp: j.window().String(), NewestOnly: j.NewestOnly,
		Timeout: j.Timeout.String(), Attempts: j.Retry.Most, RetryWait: j.Retry.Wait.String(), Interrupted: j.Interrupted,
		Next: j.Spec.Next(now), Done: p.doneSlot, DoneAt: p.doneAt, OverdueSeconds: int64(p.overdue(j.Spec, now).Seconds()),
	}, err
}
