package app

import (
	"fmt"

	"tidegate/pkg/alarm"
	"tidegate/pkg/telemetry"
)

// Alarms is the process's one board. Until openAlarms has made it, it writes
// log lines and a metric only.
func (e *engines) Alarms() *alarm.Board {
	if e.alarms == nil {
		e.alarms = alarm.NewBoard(e.log.Named("alarm"), e.reg, nil)
	}
	return e.alarms
}

// openAlarms makes the board with the webhooks of the configuration. It comes
// before every room and every other engine than Redis: at a stop the webhooks
// are then closed after whatever may still have something to tell.
func (e *engines) openAlarms(role Role) error {
	if len(e.cfg.Alarms.Webhooks) == 0 {
		return nil
	}
	r, err := e.Redis()
	if err != nil {
		return err
	}
	log := e.log.Named("alarm")
	h, err := alarm.NewHerald(e.cfg.Alarms, alarm.HeraldOptions{
		Node: e.node, Role: string(role), Host: hostName(), Redis: r, Log: log, Registry: e.reg,
	})
	if err != nil {
		return fmt.Errorf("alarms: %w", err)
	}
	e.stack.Push("alarm webhooks", h.Stop)
	e.alarms = alarm.NewBoard(log, e.reg, nil, h)
	return nil
}

// newOps makes the operations listener's handler with what every role has.
func (e *engines) newOps() (*telemetry.Ops, error) {
	ops := telemetry.NewOps(e.reg)
	if err := ops.SetKeys(e.cfg.Ops.Keys); err != nil {
		return nil, fmt.Errorf("ops: %w", err)
	}
	ops.Handle("GET /ops/v1/alarms", e.Alarms().Handler(e.node))
	ops.Handle("GET /ops/v1/rules", e.rules)
	return ops, nil
}
