package drive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"tidegate/test/chaos/history"
)

// Answer is the end of one delivery.
type Answer struct {
	Class string // as in the history
	Acked bool   // one of the three acks, in time
	Took  time.Duration
}

// Deliver makes delivery n of an act. Its time counts from due, or from now if
// due is zero. Doors are tried in the order of the routing.
func (d *Driver) Deliver(ctx context.Context, a Act, n int, due time.Time) Answer {
	return d.deliver(ctx, a, n, due, order(d.routing(), d.opt.Doors, a.OpenID))
}

// DeliverTo makes a delivery to one door.
func (d *Driver) DeliverTo(ctx context.Context, a Act, n int, door Door) Answer {
	return d.deliver(ctx, a, n, time.Time{}, []Door{door})
}

func (d *Driver) deliver(ctx context.Context, a Act, n int, due time.Time, doors []Door) Answer {
	if due.IsZero() {
		due = time.Now()
	}
	e := history.Event{Token: a.Token, Account: a.Account, OpenID: a.OpenID, Delivery: n}
	s := d.sealers[a.Account]
	if s == nil {
		panic("drive: no account is called " + a.Account)
	}
	path, body, err := s.request(a)
	if err != nil {
		panic(err) // of a test's own making: an account whose key is wrong
	}
	invoke := e
	invoke.Kind, invoke.Identity, invoke.Node = history.Invoke, a.Identity(), doors[0].Name
	d.note(invoke)
	r := d.through(ctx, doors, path, body)
	e.Node, e.Status = r.door, r.status
	e.Latency = time.Since(due)
	switch {
	case r.err == nil:
		e.Answer, e.Text = s.classify(a, r.status, r.body)
		e.Kind = history.OK
		if e.Text != "" {
			e.Kind = history.Fail
		}
	case r.refused:
		e.Kind, e.Answer, e.Text = history.Fail, history.None, r.err.Error()
	default:
		e.Kind, e.Answer, e.Text = history.Unknown, history.None, r.err.Error()
	}
	d.note(e)
	ans := Answer{Class: e.Answer, Took: e.Latency, Acked: e.Kind == history.OK && r.took < d.opt.Timeout}
	d.count(ans, e)
	return ans
}

// reached is what became of the way to a door.
type reached struct {
	door    string
	status  int
	body    []byte
	took    time.Duration
	refused bool // no door took the connection
	err     error
}

// through posts to the first door that takes the connection, within the time
// that WeChat waits.
func (d *Driver) through(ctx context.Context, doors []Door, path string, body []byte) (r reached) {
	began := time.Now()
	defer func() { r.took = time.Since(began) }()
	ctx, cancel := context.WithTimeout(ctx, d.opt.Timeout)
	defer cancel()
	for _, door := range doors {
		r.door = door.Name
		r.status, r.body, r.err = d.post(ctx, door.Addr, path, body)
		r.refused = notTaken(r.err)
		if !r.refused {
			return r
		}
		d.refusals.Add(1)
	}
	return r
}

func (d *Driver) post(ctx context.Context, addr, path string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "text/xml")
	req.Header.Set("User-Agent", "Mozilla/4.0")
	res, err := d.http.Do(req)
	if err != nil {
		return 0, nil, short(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err == nil && len(answer) > maxAnswer {
		err = fmt.Errorf("an answer of more than %d bytes", maxAnswer)
	}
	return res.StatusCode, answer, short(ctx, err)
}

// short leaves the address with its signatures out of an error.
func short(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.New("no answer in time")
	}
	for {
		inner := errors.Unwrap(err)
		var op *net.OpError
		if inner == nil || errors.As(err, &op) && !errors.As(inner, &op) {
			return err
		}
		if _, ok := err.(*net.OpError); ok { //nolint:errorlint // the outermost one is looked for
			return err
		}
		err = inner
	}
}

// notTaken tells that no connection came about: nothing can have been read.
func notTaken(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
