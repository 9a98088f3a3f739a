package sender

import (
	"tidegate/pkg/control"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/wechat"
)

// The caps of an account's APIs can be changed while the room runs (D9). Each is
// a knob: the file's value holds unless an operator has set another.

// apiNames are what operators call the APIs, as in the configuration.
var apiNames = map[wechat.API]string{
	wechat.APICustomSend: "replies", wechat.APITemplateSend: "template", wechat.APIBizSend: "subscription",
}

func knobOf(account string, api wechat.API) string { return "sender." + account + "." + apiNames[api] }

// steer registers the caps of the accounts; called without the lock, because a
// knob that turns takes it.
func (s *Sender) steer(accounts []Account, gone []string) {
	for api := range apiNames {
		for _, name := range gone {
			s.knobs.Drop(knobOf(name, api))
		}
		for _, a := range accounts {
			l := a.Limits.of(api)
			s.knobs.Put(control.Knob{
				Subject: knobOf(a.Name, api), File: control.Limit{Rate: l.Rate, Burst: l.Burst, Concurrency: l.Concurrency},
				Apply: func(step control.Step) { s.turn(a.Name, api, step) },
			})
		}
	}
}

// turn makes a cap hold.
func (s *Sender) turn(account string, api wechat.API, step control.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stations[account]
	if st == nil {
		return
	}
	st.road(api).setLimit(
		ratelimit.Limit{Rate: step.Target.Rate, Burst: step.Target.Burst, Concurrency: step.Now.Concurrency}, step.Version, step.Left)
	st.gate.places(api, step.Now.Concurrency, step.Version)
	st.staff(api, step.Target.Concurrency)
}
