package sender

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tidegate/pkg/alarm"
	"tidegate/pkg/control"
	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/sender/hold"
)

// alarmHeld says that soon nothing more can be put aside.
const alarmHeld = "held_full"

const (
	// sweepFirst is how long after a cancel the held letters are gone through
	// every second; later, for what a node put aside that had not seen it, every
	// sweepEvery.
	sweepFirst = 30 * time.Second
	sweepEvery = time.Minute
	// sweepRows are ended side by side; sweepMoment is for how long at a time.
	sweepRows   = 100
	sweepMoment = 500 * time.Millisecond
)

// feeder is the room as the releaser of held letters sees it.
type feeder struct {
	s     *Sender
	swept map[int64]time.Time // by version of the cancel
	marks map[int64]hold.Row  // how far a sweep is
}

func (f *feeder) Accounts() (names []string) {
	for _, st := range f.s.all() {
		names = append(names, st.name)
	}
	return names
}

// Release puts a letter back into its lane. It may be there already.
func (f *feeder) Release(ctx context.Context, r hold.Row) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), postTimeout)
	defer cancel()
	_, err := f.s.outbox.p.Publish(ctx, kafka.Record{Topic: f.s.topics.Lane(r.Account, r.Lane), Key: r.Key, Value: r.Value, Headers: r.Headers})
	return err
}

// Stands is true as long as the orders are not known: a letter that is woken in
// vain only comes back, but a whole table of them would go round.
func (f *feeder) Stands(cause string) bool {
	return f.s.orders.Stands(cause) || !f.s.orders.Current()
}

// Counted raises and resolves the alarm of too many rows.
func (f *feeder) Counted(rows, most int64) {
	if most == 0 || rows < most*8/10 {
		f.s.alarms.Resolve(alarmHeld, "sender")
		return
	}
	f.s.alarms.Fire(alarm.Alarm{
		Name: alarmHeld, Subject: "sender", Severity: alarm.Warning,
		Text:   fmt.Sprintf("%d letters are held of at most %d; beyond that they wait in the queue and hold up those behind them", rows, most),
		TextZH: fmt.Sprintf("暂存消息 %d 条，上限 %d 条；超过上限后消息留在队列中等待，会阻塞其后的消息", rows, most),
	})
}

// Settle ends held letters that are cancelled, for a moment: whoever feeds back has
// to keep its lease, and letters that nobody cancelled wait behind it. What is left
// goes on where it stopped.
func (f *feeder) Settle(ctx context.Context) error {
	now := f.s.now()
	cancels := f.s.orders.Cancels()
	swept, marks := make(map[int64]time.Time, len(cancels)), make(map[int64]hold.Row, len(cancels))
	moment, end := context.WithTimeout(ctx, sweepMoment)
	defer end()
	var failed error
	for _, c := range cancels {
		last := f.swept[c.Version]
		if !last.IsZero() && now.Sub(c.Since) > sweepFirst && now.Sub(last) < sweepEvery {
			swept[c.Version] = last
			continue
		}
		mark, err := f.sweep(ctx, moment, c, f.marks[c.Version])
		switch {
		case err != nil:
			failed = err // of one letter: the others went on
		case mark.ID == "":
			swept[c.Version] = now
		}
		if marks[c.Version] = mark; mark.ID != "" && !last.IsZero() {
			swept[c.Version] = last
		}
	}
	f.swept, f.marks = swept, marks
	return failed
}

// sweep goes through the held letters that a cancel covers, from behind a mark
// until the moment is over, and gives the next mark; an empty one is the end.
func (f *feeder) sweep(ctx, moment context.Context, c control.InForce, mark hold.Row) (hold.Row, error) {
	filter := filterOf(c.Order)
	var failed error
	for moment.Err() == nil {
		rows, err := f.s.held.Select(ctx, filter, mark, sweepRows)
		if err != nil {
			return mark, err
		}
		if len(rows) == 0 {
			return hold.Row{}, failed
		}
		done, err := f.cancelAll(ctx, rows)
		if err != nil {
			failed = err
		}
		if _, err := f.s.held.Delete(ctx, done); err != nil {
			return mark, err
		}
		mark = rows[len(rows)-1]
	}
	return mark, failed
}

// cancelAll ends letters side by side, and gives those that are ended. One that
// cannot be ended now is left to the next sweep.
func (f *feeder) cancelAll(ctx context.Context, rows []hold.Row) (done []hold.Row, failed error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, r := range rows {
		all.Go(func() {
			ended, err := f.s.cancelHeld(ctx, r)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
			} else if ended {
				done = append(done, r)
			}
		})
	}
	all.Wait()
	return done, failed
}

func filterOf(o control.Order) hold.Filter {
	f := hold.Filter{Account: o.Account, App: o.App, Template: o.Template, Lane: o.Lane}
	if !o.AcceptedBefore.IsZero() {
		f.AcceptedBefore = o.AcceptedBefore.UnixMilli()
	}
	return f
}

// CountHeld counts the held letters that an order covers.
func (s *Sender) CountHeld(ctx context.Context, o control.Order) (int64, error) {
	return s.held.Count(ctx, filterOf(o))
}

// Held counts what is held, by account, lane, reason and cause.
func (s *Sender) Held(ctx context.Context) ([]hold.Group, error) { return s.held.Groups(ctx) }

// cancelHeld ends one held letter, as its handler would. One whose present life
// has begun, by a copy that somebody works or that died with its node, goes back
// to the queue, where its past is settled.
func (s *Sender) cancelHeld(ctx context.Context, r hold.Row) (ended bool, err error) {
	rec := kafka.Record{Topic: s.topics.Lane(r.Account, r.Lane), Key: r.Key, Value: r.Value, Headers: r.Headers}
	p, err := read(r.Account, r.Lane, rec)
	if err != nil {
		return false, s.held.Postpone(ctx, r, s.now()) // it is parked there
	}
	g := &progress{}
	p.seed(g)
	e := s.over(p, g)
	if e == nil {
		return false, nil // the order has been taken back meanwhile
	}
	past, err := s.intents.Begin(ctx, p.tryKey())
	switch {
	case err != nil:
		return false, err
	case past.News != "" && heldBefore(past.News) == nil:
		if e, err = remembered(p, past.News); err != nil {
			return false, err
		}
	case !past.Fresh:
		return false, s.held.Postpone(ctx, r, s.now())
	}
	g.begun = true
	if err := s.settle(ctx, p, g, e, rec); err != nil {
		return false, fault.Wrap(fault.Unavailable, "cancel held letter "+r.ID, err)
	}
	return true, nil
}
