package ratelimit

import (
	"context"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

// localRate is a rate that this node keeps by itself while Redis is away.
type localRate struct {
	*share
	limit Limit
	begun time.Time
}

// windowAway is how long work waits that a window of an unknown user holds back.
const windowAway = 5 * time.Second

// mayAsk reports whether Redis should be asked: always while it answers, now and
// then while it does not.
func (j *Joint) mayAsk() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed.IsZero() {
		return true
	}
	now := j.now()
	if now.Before(j.askAt) {
		return false
	}
	j.askAt = now.Add(retry)
	return true
}

// lost notes that Redis did not answer.
func (j *Joint) lost(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.now()
	if j.failed.IsZero() || now.Sub(j.last) > patience { // nobody has looked in between
		j.failed = now
		j.log.Warn("Redis does not answer about joint caps: this node takes its share of the rates in a moment, and what windows cap waits", zap.Error(err))
	}
	j.askAt, j.last = now.Add(retry), now
}

// found notes that Redis answers again. The caps that were asked have begun anew.
func (j *Joint) found(tag string, caps []Cap) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.failed.IsZero() {
		j.failed = time.Time{}
		j.log.Info("Redis answers about joint caps again")
	}
	if len(j.spent) == 0 {
		return
	}
	for _, c := range caps {
		delete(j.spent, tag+"\x00"+c.Name)
	}
}

// anew reports that a cap has to begin without burst, since this node has lived on
// a share of it.
func (j *Joint) anew(tag, name string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.spent[tag+"\x00"+name]
}

// without decides while Redis is away.
func (j *Joint) without(g Grant) Grant {
	g.joint = nil
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.now()
	if d := patience - now.Sub(j.failed); d > 0 {
		g.Refused, g.Wait = 0, d
		return g
	}
	shares := make([]*localRate, 0, len(g.caps))
	for i, c := range g.caps {
		if c.Window.Most > 0 {
			g.Refused, g.Wait = i, windowAway
			return g
		}
		r := j.local(g.tag+"\x00"+c.Name, c.Rate.clamp(), now)
		if shares = append(shares, r); r.paused {
			g.Refused, g.Wait = i, windowAway
			return g
		}
		if d := r.pace.wait(int64(now.Sub(r.begun))); d > 0 && d > g.Wait {
			g.Refused, g.Wait = i, d
		}
	}
	if g.Refused >= 0 {
		return g
	}
	for i, c := range g.caps {
		shares[i].pace.take(int64(now.Sub(shares[i].begun)))
		j.spent[g.tag+"\x00"+c.Name] = true
	}
	return g
}

// local is called with mu held.
func (j *Joint) local(name string, l Limit, now time.Time) *localRate {
	r := j.shares[name]
	if r == nil || r.limit != l || r.begun.Before(j.failed) {
		if len(j.shares) >= inLine {
			clear(j.shares) // they begin empty
		}
		r = &localRate{share: newShare(l, j.nodes, 0), limit: l, begun: now}
		j.shares[name] = r
	}
	return r
}

// Births gives the memory of which joint caps have been used, in the same database.
func (d *Days) Births() Births { return births{d.db} }

type births struct{ db *sqldb.DB }

func (b births) First(ctx context.Context, tag string) (bool, error) {
	var marked int64
	err := b.db.QueryRow(ctx, `SELECT marked FROM joint_begin WHERE tag = $1`, tag).Scan(&marked)
	if fault.KindOf(err) == fault.NotFound {
		return true, nil
	}
	return false, err
}

func (b births) Marked(ctx context.Context, tag string) error {
	_, err := b.db.Exec(ctx, `INSERT INTO joint_begin (tag, marked) VALUES ($1, $2) ON CONFLICT (tag) DO NOTHING`, tag, time.Now().UnixMilli())
	if fault.KindOf(err) == fault.Ambiguous {
		return nil
	}
	return err
}
