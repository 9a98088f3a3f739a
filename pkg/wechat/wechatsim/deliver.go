package wechatsim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// callback is one stimulus on its way: the same document in every delivery.
type callback struct {
	acct *account
	stim Stimulus
	id   uint64
	doc  []byte
	// parallel and loseAck are set by a load; faults can ask for them as well.
	parallel, loseAck bool
}

// Delivery is the end of a callback's deliveries.
type Delivery struct {
	Stimulus uint64 `json:"stimulus"`
	Token    string `json:"token,omitempty"`
	Acked    bool   `json:"acked"`
	Tries    int    `json:"tries"`
	// Judged, Error and Text are those of the last answer.
	Judged string `json:"judged"`
	Error  string `json:"error,omitempty"`
	Text   string `json:"text,omitempty"`
}

// result is the end of one delivery.
type result struct {
	sent, answered int64
	status         int
	judged         string
	text           string
	err            error
}

func callbackTransport(timeout time.Duration) http.RoundTripper {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: timeout}).DialContext,
		MaxIdleConns:        1024,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true,
	}
}

// arise makes a callback of stim: the act takes effect and is in the journal.
func (s *Sim) arise(a *account, stim Stimulus) (*callback, error) {
	if s.journal.judge.Full() {
		return nil, errFull
	}
	now := s.clock.Now()
	cb := &callback{acct: a, stim: stim, id: s.callbacks.Add(1)}
	cb.doc = stim.document(a.cfg.GhID, now, s.msgIDs.Add(1), a.open.SplitCDATA)
	a.act(stim, now)
	e := Entry{
		Kind: KindStimulus, Wall: now.UnixMilli(), Account: a.cfg.AppID, OpenID: stim.OpenID, What: stim.what(),
		MsgType: stim.Type, Stimulus: cb.id, Wants: stim.Wants, RepeatOf: stim.RepeatOf, MsgID: stim.msgID,
	}
	if stim.Token != "" {
		e.Tokens = []string{stim.Token}
	}
	s.journal.append(e)
	return cb, nil
}

// deliver makes the tries of one callback and settles it. When the simulator
// closes meanwhile it is left open.
func (s *Sim) deliver(ctx context.Context, cb *callback) Delivery {
	d := Delivery{Stimulus: cb.id, Token: cb.stim.Token}
	hit := s.faults.pick(callbackFaults, "", cb.acct.cfg.AppID, cb.stim.OpenID)
	twin, parallel := first(hit, FaultParallel)
	_, lose := first(hit, FaultLoseAck)
	parallel, lose = parallel || cb.parallel, lose || cb.loseAck
	for try := 1; try <= s.cfg.Deliveries; try++ {
		if !s.gate(ctx, cb) {
			break
		}
		begun := time.Now()
		copies := 1
		if parallel && try == 1 {
			copies = max(twin.Copies, 2)
		}
		r := s.tries(ctx, cb, try, copies)
		d.Tries += copies
		d.Judged, d.Text, d.Error = r.judged, r.text, errText(r.err)
		good := accepted(r.judged)
		d.Acked = d.Acked || good
		if ctx.Err() != nil {
			return d
		}
		s.failed(cb.acct, !good)
		if good && !lose {
			break
		}
		lost := good || r.judged == JudgedTimeout || r.judged == JudgedBroken
		if !lost && !s.cfg.RetryOnBad {
			break
		}
		if lost && try < s.cfg.Deliveries && pause(ctx, s.cfg.Timeout-time.Since(begun)) != nil {
			return d
		}
	}
	if ctx.Err() == nil {
		s.journal.append(Entry{Kind: KindSettled, Account: cb.acct.cfg.AppID, OpenID: cb.stim.OpenID,
			What: cb.stim.what(), Stimulus: cb.id, Acked: d.Acked})
	}
	return d
}

// tries makes copies of one try at the same time and returns the best result.
func (s *Sim) tries(ctx context.Context, cb *callback, try, copies int) result {
	if copies == 1 {
		return s.try(ctx, cb, try)
	}
	results := make([]result, copies)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() { results[i] = s.try(ctx, cb, try) })
	}
	wg.Wait()
	for _, r := range results {
		if accepted(r.judged) {
			return r
		}
	}
	return results[0]
}

// try is one delivery, written to the journal when it ended.
func (s *Sim) try(ctx context.Context, cb *callback, n int) result {
	r := s.post(ctx, cb)
	if ctx.Err() != nil {
		return r
	}
	e := Entry{
		Kind: KindDelivery, Account: cb.acct.cfg.AppID, OpenID: cb.stim.OpenID, What: cb.stim.what(),
		Stimulus: cb.id, Attempt: n, Sent: r.sent, Answered: r.answered, Status: r.status,
		Judged: r.judged, Error: errText(r.err), Text: clip(r.text),
	}
	if r.judged == JudgedPassive {
		e.Tokens, e.Applied, e.Visible = findMarks(r.text), true, true
	}
	s.journal.append(e)
	return r
}

func (s *Sim) post(ctx context.Context, cb *callback) result {
	target, seal := cb.acct.target()
	q, body, err := seal.request(cb.stim.OpenID, cb.doc, s.clock.Now())
	if err != nil {
		return result{judged: JudgedBroken, err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, withQuery(target, q), bytes.NewReader(body))
	if err != nil {
		return result{judged: JudgedBroken, err: err}
	}
	req.Header.Set("Content-Type", "text/xml")
	req.Header.Set("User-Agent", "Mozilla/4.0")
	r := result{sent: s.journal.Now()}
	resp, err := s.client.Do(req)
	var answer []byte
	if err == nil {
		defer func() { _ = resp.Body.Close() }()
		r.status = resp.StatusCode
		answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	}
	r.answered = s.journal.Now()
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		r.judged, r.err = JudgedTimeout, fmt.Errorf("no answer within %s", s.cfg.Timeout)
	case err != nil:
		r.judged, r.err = JudgedBroken, plainError(err)
	case r.status != http.StatusOK:
		r.judged, r.err = JudgedStatus, fmt.Errorf("status %d", r.status)
	default:
		r.judged, r.text, r.err = seal.answerTo(cb.stim, answer)
	}
	return r
}

// plainError drops the address, whose query carries signatures.
func plainError(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		return ue.Err
	}
	return err
}

func withQuery(target string, q url.Values) string {
	u, err := url.Parse(target)
	if err != nil {
		return target // checked when it was set
	}
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += q.Encode()
	return u.String()
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// pause waits for d or returns ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
