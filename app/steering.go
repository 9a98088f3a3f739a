package app

import (
	"context"
	"net/http"

	"go.uber.org/zap"

	"tidegate/pkg/control"
	"tidegate/pkg/run"
	"tidegate/pkg/sqldb"
)

// steering is the live settings of the process. The role that asks first runs
// them and serves their endpoints; in `dev`, where roles share a process, the
// others only put their knobs in.
type steering struct {
	*control.Panel
	log   *zap.Logger
	first bool
	held  *holds
}

// noDatabase says why limits cannot be changed at a role.
const noDatabase = "this role has no database in its configuration (database.dsn), so the limits of its file hold: give it the database that the senders have and restart it"

// Steering opens them. A role that has the database open already uses that; one
// that has it for this alone, the robot, opens it when it can be reached and
// works without until then.
func (e *engines) Steering(ctx context.Context) (*steering, error) {
	if e.panel != nil {
		return &steering{Panel: e.panel}, nil
	}
	o := control.Options{Config: e.cfg.Control, Node: e.node, Redis: e.redis, Log: e.log.Named("control"), Registry: e.reg}
	switch {
	case e.db != nil:
		if err := control.Migrate(ctx, e.db); err != nil {
			return nil, err
		}
		o.DB = e.db
	case e.cfg.Database.DSN != "":
		o.Dial = e.dialSettings
	default:
		o.Off = noDatabase
	}
	if o.Off == "" {
		r, err := e.Redis()
		if err != nil {
			return nil, err
		}
		o.Redis = r
	}
	p, err := control.New(o)
	if err != nil {
		return nil, err
	}
	e.stack.Push("live settings", func(context.Context) error { return p.Close() })
	p.Prime(ctx)
	e.panel = p
	return &steering{Panel: p, log: o.Log, first: true, held: &e.held}, nil
}

// dialSettings opens a database for the settings alone: one connection looks and
// one changes.
func (e *engines) dialSettings(ctx context.Context) (*sqldb.DB, error) {
	c := e.cfg.Database
	c.MaxConns = 2
	return sqldb.Open(ctx, c)
}

// into makes the settings part of the role that runs them.
func (s *steering) into(p *part) *part {
	if !s.first {
		return p
	}
	h := limitsHandler{s.Panel, s.log}
	p.services = append([]run.Service{s.Panel}, p.services...)
	if p.ops == nil {
		p.ops = map[string]http.Handler{}
	}
	p.ops["GET /ops/v1/limits"] = http.HandlerFunc(h.all)
	p.ops["GET /ops/v1/limits/{subject}"] = http.HandlerFunc(h.one)
	p.ops["GET /ops/v1/audit"] = http.HandlerFunc(h.audit)
	p.steer = map[string]http.Handler{
		"PUT /ops/v1/limits/{subject}":    http.HandlerFunc(h.set),
		"DELETE /ops/v1/limits/{subject}": http.HandlerFunc(h.reset),
	}
	s.ordersInto(p, h)
	return p
}
