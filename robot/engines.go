package robot

import (
	"context"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/wire"
	"tidegate/robot/engine"
	"tidegate/robot/plugin"
)

// makeEngines makes the clients of external engines.
func (r *Robot) makeEngines() error {
	m := plugin.NewMetrics(r.d.Registry)
	for _, e := range r.cfg.Engines {
		r.lines[engineLine(e.Name)] = newLine("engine", "engine "+e.Name, ratelimit.New(e.Limit()), r.cfg.Overload.patience(), r.m.waiting)
		c, err := plugin.New(e, plugin.Options{Limiter: r.lines[engineLine(e.Name)], Metrics: m, Now: r.d.Now})
		if err != nil {
			return err
		}
		r.engines[e.Name] = c
	}
	return nil
}

// engineLine tells the lines of engines from those of back ends of the same name.
func engineLine(name string) string { return "engine " + name }

// askEngine asks the external engine of a decision. Its answer may move the
// follower's dialogue, which is kept before the replies go out.
func (r *Robot) askEngine(ctx context.Context, c *wire.Callback, d *engine.Decision, s *seat) error {
	e := r.engines[d.Ask.Engine]
	if e == nil {
		return fault.New(fault.Internal, "ask engine "+d.Ask.Engine, "it is not configured")
	}
	if err := kafka.Owned(ctx); err != nil {
		return err
	}
	// As for a back end: all tries and their pauses lie within max_age.
	kafka.Alive(ctx, r.cfg.MaxAge)
	defer kafka.Alive(ctx, 0)
	said, err := e.Ask(ctx, c, d.Ask)
	if err != nil {
		return err
	}
	if err := d.Take(said); err != nil {
		return fault.Wrap(fault.Final, "ask engine "+d.Ask.Engine, err)
	}
	return r.move(ctx, s, d)
}

// EngineNames lists the configured external engines, for engine.Known.
func (c Config) EngineNames() []string {
	names := make([]string, 0, len(c.Engines))
	for _, e := range c.Engines {
		names = append(names, e.Name)
	}
	return names
}
