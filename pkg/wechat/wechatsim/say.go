package wechatsim

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// AddFollowers makes n more followers of an account and returns their openids.
// They follow silently: no subscribe event is pushed.
func (s *Sim) AddFollowers(acct string, n int) ([]string, error) {
	a, err := s.find(acct)
	if err != nil {
		return nil, err
	}
	return a.addFollowers(n, s.clock.Now())
}

// Followers returns up to n openids of an account's followers, all when n is 0.
func (s *Sim) Followers(acct string, n int) ([]string, error) {
	a, err := s.find(acct)
	if err != nil {
		return nil, err
	}
	return a.some(n), nil
}

// Act lets a user act and waits until the callback is settled: acked, or given
// up after all tries. Everybody but a new follower must follow already.
func (s *Sim) Act(ctx context.Context, acct string, stim Stimulus) (Delivery, error) {
	a, err := s.find(acct)
	if err != nil {
		return Delivery{}, err
	}
	if target, _ := a.target(); target == "" {
		return Delivery{}, fmt.Errorf("account %s has no callback_url: set one first", a.cfg.AppID)
	}
	if stim.Event == EventSubscribe {
		a.ensure(stim.OpenID, s.clock.Now())
	} else if !a.isFollower(stim.OpenID) {
		return Delivery{}, fmt.Errorf("%w %q of account %s: add followers or let it subscribe first", errUnknownFollower, stim.OpenID, a.cfg.AppID)
	}
	return s.send(ctx, a, stim)
}

// send makes and delivers the callback; both ctx and Close end it.
func (s *Sim) send(ctx context.Context, a *account, stim Stimulus) (Delivery, error) {
	cb, err := s.arise(a, stim)
	if err != nil {
		return Delivery{}, err
	}
	done := make(chan Delivery, 1)
	if !s.goWork(func() { done <- s.deliver(s.life, cb) }) {
		return Delivery{}, errClosed
	}
	select {
	case d := <-done:
		if s.life.Err() != nil && !d.Acked {
			return d, errClosed
		}
		return d, nil
	case <-ctx.Done():
		return Delivery{Stimulus: cb.id, Token: stim.Token}, ctx.Err()
	}
}

// Mark returns a new mark, for a text, key or scene that replies should repeat
// and for the data of pushes that ExpectPush announces.
func (s *Sim) Mark() string { return s.marks.mark(s.callbacks.Add(1)) }

// ExpectPush announces that one push carrying mark shall reach openid, so that
// the verdict can tell a lost, doubled or misdirected one.
func (s *Sim) ExpectPush(acct, openid, mark string) error {
	a, err := s.find(acct)
	if err != nil {
		return err
	}
	if s.journal.judge.Full() {
		return errFull
	}
	s.journal.append(Entry{Kind: KindExpect, Account: a.cfg.AppID, OpenID: openid, Tokens: []string{mark}})
	return nil
}

// VerifyURL makes the GET check of an account's callback address, as WeChat does
// when the owner submits it.
func (s *Sim) VerifyURL(ctx context.Context, acct string) error {
	a, err := s.find(acct)
	if err != nil {
		return err
	}
	target, seal := a.target()
	if target == "" {
		return fmt.Errorf("account %s has no callback_url: set one first", a.cfg.AppID)
	}
	q, echo := seal.verification(s.clock.Now())
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, withQuery(target, q), nil)
	if err != nil {
		return fmt.Errorf("check callback address: %w", err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("check callback address: %w", plainError(err))
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("check callback address: %w", err)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("check callback address: status %d: the token differs, or the server refuses the check", resp.StatusCode)
	case string(body) != echo:
		return fmt.Errorf("check callback address: the body is not exactly the echostr: answer its %d characters and nothing else", len(echo))
	}
	return nil
}

// SetCallbackURL changes where an account's callbacks go. With check it makes
// the GET check first, as WeChat does, and keeps the old address if that fails.
func (s *Sim) SetCallbackURL(ctx context.Context, acct, target string, check bool) error {
	a, err := s.find(acct)
	if err != nil {
		return err
	}
	if err := checkCallbackURL(target); err != nil {
		return err
	}
	old := a.setTarget(target)
	if !check {
		return nil
	}
	if err := s.VerifyURL(ctx, acct); err != nil {
		a.setTarget(old)
		return err
	}
	return nil
}

func (a *account) setTarget(target string) (old string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old, a.url = a.url, target
	return old
}

func hostPort(target string) (host, port string) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return "", ""
	}
	host, port = u.Hostname(), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return host, port
}
