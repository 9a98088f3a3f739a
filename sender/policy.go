package sender

import (
	"fmt"
	"slices"

	"tidegate/pkg/wechat"
)

// ErrorRule is an exception from the table of error codes (pkg/wechat, errcode.go;
// docs/delivery.md) for one account: WeChat has codes whose meaning differs between
// accounts, and gets new ones.
type ErrorRule struct {
	Codes []int `koanf:"codes"`
	// API narrows it: replies, template or subscription. Empty is all of them.
	API string `koanf:"api"`
	// Do is what to do instead, by the table's names.
	Do wechat.Action `koanf:"do"`
}

// actions are what a rule may say. none and success are not among them: nobody
// can tell by configuration that a message has arrived.
var actions = []wechat.Action{
	wechat.ActionRetry, wechat.ActionSlow, wechat.ActionRefresh, wechat.ActionStopAccount, wechat.ActionStopAPI, wechat.ActionIP,
	wechat.ActionUser, wechat.ActionWindow, wechat.ActionRequest, wechat.ActionTemplate, wechat.ActionQuota,
}

// policy says what to do about an errcode: the account's exceptions, then the
// table. nil is the table alone.
type policy struct {
	rules map[ruled]wechat.Action
}

type ruled struct {
	code int
	api  wechat.API // empty: all
}

// ValidateErrors names the first rule that cannot work.
func ValidateErrors(rules []ErrorRule) error {
	_, err := newPolicy(rules)
	return err
}

func newPolicy(rules []ErrorRule) (*policy, error) {
	p := &policy{rules: map[ruled]wechat.Action{}}
	for i, r := range rules {
		api, err := r.api()
		if err == nil {
			err = r.check()
		}
		for _, code := range r.Codes {
			k := ruled{code, api}
			if _, twice := p.rules[k]; twice && err == nil {
				err = fmt.Errorf("codes: %d is ruled twice", code)
			}
			p.rules[k] = r.Do
		}
		if err != nil {
			return nil, fmt.Errorf("errors[%d]: %w", i, err)
		}
	}
	return p, nil
}

func (r ErrorRule) api() (wechat.API, error) {
	if r.API == "" {
		return "", nil
	}
	for api, name := range apiNames {
		if name == r.API {
			return api, nil
		}
	}
	return "", fmt.Errorf("api: %.40q: use replies, template or subscription, or leave it out for all", r.API)
}

func (r ErrorRule) check() error {
	if len(r.Codes) == 0 || len(r.Codes) > 100 {
		return fmt.Errorf("codes: name 1 to 100 errcodes")
	}
	if !slices.Contains(actions, r.Do) {
		return fmt.Errorf("do: %.40q: use one of %v", r.Do, actions)
	}
	for _, code := range r.Codes {
		switch wechat.ActionOf(code, wechat.APITemplateSend) {
		case wechat.ActionNone, wechat.ActionSuccess:
			return fmt.Errorf("codes: %d says that WeChat has done it; that is no error to decide about", code)
		case wechat.ActionRetry:
			return fmt.Errorf("codes: %d leaves open whether the message went out, so it stays with 'retry': pushes go again under the same id, replies as their class says", code)
		}
	}
	return nil
}

// of says what to do about an errcode of a call.
func (p *policy) of(code int, api wechat.API) wechat.Action {
	if p != nil {
		for _, k := range []ruled{{code, api}, {code, ""}} {
			if do, ok := p.rules[k]; ok {
				return do
			}
		}
	}
	return wechat.ActionOf(code, api)
}

// setPolicies gives the roads of the accounts their exceptions. They were
// validated before.
func (s *Sender) setPolicies(accounts []Account) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range accounts {
		st := s.stations[a.Name]
		p, err := newPolicy(a.Errors)
		if st == nil || err != nil {
			continue
		}
		for _, r := range st.roads {
			r.policy.Store(p)
		}
	}
}
