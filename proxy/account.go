package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/pkg/run"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
)

// Account is what the door needs to know of one account.
type Account struct {
	// Name is the last part of the URL and part of topic names.
	Name string
	// GhID is the account's original id (gh_…), which every callback names as
	// its receiver; empty skips the check.
	GhID string
	// Credentials verify and open callbacks.
	Credentials wechat.Credentials
	// AllowFrom lists the addresses that callbacks may come from, or the one word
	// "any". Empty lets every address in, except in plain mode, where it is an
	// error: see Validate.
	AllowFrom []string
}

// Validate checks an account. In plain mode anybody who sees a request can send
// others, so that mode takes a second, deliberate setting: from where.
func (a Account) Validate() error {
	_, err := a.ready(time.Now)
	return err
}

// entry is an account ready for use.
type entry struct {
	Account
	verifier *wechat.Verifier
	allow    run.Addresses
	topics   struct{ callbacks string }
	tally    *tally
	accepted prometheus.Counter // of tidegate_proxy_callbacks_total: nearly all are
}

func (a Account) ready(now func() time.Time) (*entry, error) {
	if !wire.ValidAccount(a.Name) {
		return nil, fmt.Errorf("name %q: use 1 to 40 of a-z, 0-9 and -, beginning with a letter or digit", a.Name)
	}
	v, err := wechat.NewVerifier(a.Credentials, wechat.WithClock(now))
	if err != nil {
		return nil, err
	}
	allow, err := run.ParseAddresses(a.AllowFrom)
	if err != nil {
		return nil, fmt.Errorf("allow_from: %w", err)
	}
	if v.Mode() == wechat.ModePlain {
		if allow.None() {
			return nil, errors.New("mode plain: WeChat does not sign the bodies, so say where they may come from: allow_from: [203.0.113.0/24, …], " +
				"or [any] if something in front of the door sees to it; better, switch the account to safe mode")
		}
		if a.Credentials.Freshness > maxPlainFreshness {
			return nil, fmt.Errorf("freshness %s: in mode plain every nonce is remembered for as long as it is fresh; use at most %s", a.Credentials.Freshness, maxPlainFreshness)
		}
	}
	return &entry{Account: a, verifier: v, allow: allow}, nil
}

func newEntry(a Account, t wire.Topics, now func() time.Time) (*entry, error) {
	e, err := a.ready(now)
	if err != nil {
		return nil, fmt.Errorf("account %s: %w", a.Name, err)
	}
	e.topics.callbacks = t.Callbacks(a.Name)
	return e, nil
}

// mayCome tells whether the account takes requests from where r comes.
func (e *entry) mayCome(trusted run.Addresses, r *http.Request) bool {
	return e.allow.None() || e.allow.Any() || e.allow.Has(trusted.ClientOf(r))
}
