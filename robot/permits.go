package robot

import "tidegate/pkg/ratelimit"

// permits makes the cap called name, robot.<account> or backend.<name>. All
// robots take permits of one cap where app shares them over Redis.
func (d *Deps) permits(name string, l ratelimit.Limit) ratelimit.Permits {
	if d.Permits == nil {
		return ratelimit.New(l)
	}
	return d.Permits(name, l)
}

// retire says that the account is gone: its permits are given up once nothing of
// it is in hand. Called with the robot's lock.
func (m *member) retire() {
	m.retired = true
	if m.cancel == nil {
		m.limiter.Close()
	}
}

// ended follows the end of a member's run.
func (r *Robot) ended(m *member) {
	r.mu.Lock()
	retired := m.retired
	r.mu.Unlock()
	if retired {
		m.limiter.Close()
	}
}

// rests reports that permits are not given out for a reason that says nothing
// about how many there are (ratelimit.Shared).
func rests(p permits) bool {
	if b, ok := p.(both); ok {
		return rests(b.first) || rests(b.second)
	}
	s, ok := p.(interface{ Paused() bool })
	return ok && s.Paused()
}
