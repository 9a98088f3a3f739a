package app

import (
	"tidegate/pkg/ratelimit"
)

// Permits makes the caps that this process shares with all others of its
// deployment; nil where each process is to hold to caps of its own.
func (e *engines) Permits() (func(name string, l ratelimit.Limit) ratelimit.Permits, error) {
	if !e.cfg.Permits.Shared {
		return nil, nil
	}
	if e.permits == nil {
		r, err := e.Redis()
		if err != nil {
			return nil, err
		}
		c, err := ratelimit.NewCluster(e.cfg.Permits, r, e.log.Named("permits"), e.reg)
		if err != nil {
			return nil, err
		}
		e.permits = c
		e.stack.Push("permits", c.Close)
	}
	return func(name string, l ratelimit.Limit) ratelimit.Permits { return e.permits.Permits(name, l) }, nil
}
