package sender

import "tidegate/pkg/ratelimit"

// Permits makes the cap called name: sender.<account>.<api> for departures, the
// same with .places behind it for messages between intent and outcome. Where it
// is nil each process holds to caps of its own.
//
// Over the cluster a road that WeChat calls too fast is slowed for all: of nodes
// with one version of a limit the lowest holds, and WeChat counts the account and
// not our nodes; one whose live settings lag speaks for the version that the others
// hold. It gets its rate back when the node that was refused recovers it,
// or is gone.
type Permits func(name string, l ratelimit.Limit) ratelimit.Permits

func (p Permits) of(name string, l ratelimit.Limit) ratelimit.Permits {
	if p == nil {
		return ratelimit.New(l)
	}
	return p(name, l)
}

// close gives the permits of a station up, when its consumers have ended.
func (st *station) close() {
	st.gate.close()
	for _, r := range st.roads {
		r.places.Close()
		r.pace.Close()
	}
}
