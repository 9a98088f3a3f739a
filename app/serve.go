package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/run"
	"tidegate/pkg/telemetry"
	"tidegate/robot/engine"
)

// RunRole runs one role until ctx ends, then stops it cleanly within the
// configured time.
func RunRole(ctx context.Context, role Role, src Source) error {
	c, err := loadFor(src, role)
	if err != nil {
		return err
	}
	log, err := telemetry.NewLogger(c.Log)
	if err != nil {
		return usage(err)
	}
	log = log.With(zap.String("role", string(role)))
	warnOfReadableSecrets(src.File, log)
	tuneMemory(log)
	e := newEngines(c, log)
	stopBy, err := serve(ctx, role, src, e)
	stop, cancel := context.WithDeadline(context.WithoutCancel(ctx), stopBy)
	defer cancel()
	err = errors.Join(err, e.stack.Stop(stop))
	if err == nil {
		log.Info("stopped")
	}
	_ = log.Sync() // standard error cannot be synced on some systems
	return err
}

// serve builds the role and runs it with its listeners and watchers. It gives
// the moment by which everything must be closed.
func serve(ctx context.Context, role Role, src Source, e *engines) (stopBy time.Time, err error) {
	if err := e.openAlarms(role); err != nil {
		return time.Now().Add(e.cfg.StopTimeout), err
	}
	p, err := buildPart(ctx, role, e, partOptions{rules: rulesSource{path: e.cfg.Rules}})
	if err != nil {
		return time.Now().Add(e.cfg.StopTimeout), err
	}
	ops, err := e.newOps()
	if err != nil {
		return time.Now().Add(e.cfg.StopTimeout), err
	}
	p.register(ops)
	p.keys = func(c Config) error { return changeKeys(ops, e.cfg.Ops, c.Ops) }
	servers, err := p.listen(e, ops)
	if err != nil {
		return time.Now().Add(e.cfg.StopTimeout), err
	}
	g := run.NewGroup(ctx)
	for _, s := range append(p.services, servers...) {
		g.Go(s)
	}
	g.Go(run.Func("settings", func(ctx context.Context) error {
		watch(ctx, watched(src, e.cfg), watchEvery, func([]string) { p.reload(src, e) })
		return nil
	}))
	e.log.Info("running", zap.String("version", Version()), zap.Any("listening", p.addr))
	return waitFor(g, e.cfg.StopTimeout)
}

// listen opens the operations listener and, for roles with a share in it, the
// public API.
func (p *part) listen(e *engines, ops *telemetry.Ops) ([]run.Service, error) {
	server, err := run.NewHTTPServer("operations", e.cfg.Ops.HTTPConfig, ops, e.log)
	if err != nil {
		return nil, err
	}
	if p.addr == nil {
		p.addr = map[string]string{}
	}
	p.addr["operations"] = server.Addr()
	servers := []run.Service{server}
	if p.handler != nil {
		public, err := run.NewHTTPServer("api", e.cfg.API, p.handler, e.log)
		if err != nil {
			_ = server.Close()
			return nil, err
		}
		p.addr["api"] = public.Addr()
		servers = append(servers, public)
	}
	return servers, nil
}

// waitFor waits for the group. Once it was asked to end it has nine tenths of
// the time of a clean stop; the rest is for closing the engines under the same
// deadline, which is given back. What has not ended by then is left.
func waitFor(g *run.Group, stopTimeout time.Duration) (stopBy time.Time, err error) {
	ended := make(chan error, 1)
	go func() { ended <- g.Wait() }()
	select {
	case err := <-ended:
		return time.Now().Add(stopTimeout), err
	case <-g.Done():
	}
	stopBy = time.Now().Add(stopTimeout)
	late := time.NewTimer(stopTimeout - stopTimeout/10)
	defer late.Stop()
	select {
	case err := <-ended:
		return stopBy, err
	case <-late.C:
		return stopBy, fmt.Errorf("the role did not stop within %s; what was in flight will be worked again", stopTimeout-stopTimeout/10)
	}
}

func watched(src Source, c Config) []string {
	var paths []string
	for _, p := range []string{src.File, c.Rules} {
		if p != "" {
			paths = append(paths, p)
		}
	}
	return paths
}

// refused shows that a change was not taken, for roles with rules.
func (p *part) refused(e *engines, why error) {
	if p.rules != nil {
		e.rules.refuse(p.role, why)
	}
}

// reload takes changed accounts and rules. Anything wrong with either leaves
// both as they were and says so.
func (p *part) reload(src Source, e *engines) {
	log := e.log.Named("settings")
	c, err := loadFor(src, p.role)
	if err != nil {
		p.refused(e, err)
		log.Error("the changed configuration is not taken; the old one stays", zap.Error(err))
		return
	}
	// Rules may call what the role began with: a back end that was added takes
	// a restart, and a rule that needs it must not be half of a change.
	c.Robot = e.cfg.Robot
	var rules *engine.Rules
	if p.rules != nil && c.Rules != "" {
		if rules, err = (rulesSource{path: c.Rules}).load(c, p.role); err != nil {
			p.refused(e, err)
			log.Error("the changed rules are not taken; accounts and rules stay as they are (a back end that was added takes a restart)", zap.Error(err))
			return
		}
	}
	if err := p.accounts(c); err != nil {
		p.refused(e, err)
		log.Error("the changed accounts are not taken; the old ones stay", zap.Error(err))
		return
	}
	if rules != nil {
		p.rules(rules)
	}
	if p.keys != nil {
		if err := p.keys(c); err != nil {
			log.Error("the changed keys of the operations listener are not taken; the old ones stay", zap.Error(err))
		}
	}
	log.Info("accounts and rules are up to date", zap.Int("accounts", len(c.Accounts)))
}
