package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/config"
	"tidegate/pkg/guard"
	"tidegate/pkg/guard/guardhttp"
	"tidegate/pkg/redis"
	"tidegate/pkg/run"
	"tidegate/pkg/telemetry"
)

// GuardEnvPrefix marks environment variables that are settings of `tidegate guard`.
const GuardEnvPrefix = "TIDEGATE_GUARD_"

// GuardConfig is the file of `tidegate guard`, which knows no role and no
// account: it stands in front of any HTTP system.
type GuardConfig struct {
	Log telemetry.LogConfig `koanf:"log"`
	// HTTP is where clients come, Ops who watches.
	HTTP run.HTTPConfig `koanf:"http"`
	Ops  OpsConfig      `koanf:"ops"`
	// Redis joins several of these processes; without addresses this one is alone.
	Redis redis.Config     `koanf:"redis"`
	Guard guard.Config     `koanf:"guard"`
	Proxy guardhttp.Config `koanf:"proxy"`

	StopTimeout time.Duration `koanf:"stop_timeout"`
}

// DefaultGuardConfig listens on loopback only.
func DefaultGuardConfig() GuardConfig {
	web, ops, r, g := run.DefaultHTTPConfig(), run.DefaultHTTPConfig(), redis.DefaultConfig(), guard.DefaultConfig()
	web.Addr, ops.Addr = "127.0.0.1:8070", "127.0.0.1:9107"
	web.ReadTimeout, web.WriteTimeout = 15*time.Second, 30*time.Second // a request may wait, and its system be slow
	web.MaxHeaderBytes = 16 << 10
	ops.WriteTimeout = 35 * time.Second // a CPU profile takes 30 s
	r.Addrs, g.Backend = nil, "native"
	return GuardConfig{
		Log: telemetry.DefaultLogConfig(), HTTP: web, Ops: OpsConfig{HTTPConfig: ops}, Redis: r, Guard: g,
		Proxy: guardhttp.DefaultConfig(), StopTimeout: 15 * time.Second,
	}
}

// Validate reports everything that is wrong, each line with its section.
func (c GuardConfig) Validate() error {
	errs := []error{
		c.Log.Validate(), at("http", c.HTTP.Validate()), at("ops", c.Ops.validate()),
		at("guard", c.Guard.Validate()), at("proxy", c.Proxy.Validate()),
	}
	if len(c.Redis.Addrs) > 0 {
		errs = append(errs, c.Redis.Validate())
	}
	if c.StopTimeout < time.Second {
		errs = append(errs, fmt.Errorf("stop_timeout %s: use at least 1s", c.StopTimeout))
	}
	return errors.Join(errs...)
}

// GuardOptions are the flags of `tidegate guard`.
type GuardOptions struct {
	Source
	Upstream string
	Addr     string
	Share    []string // patterns of shared routes, beside those of the file
	Print    bool
}

func (o GuardOptions) load() (GuardConfig, error) {
	c := DefaultGuardConfig()
	if err := config.Load(&c, config.Source{File: o.File, EnvPrefix: GuardEnvPrefix, Environ: os.Environ(), Set: o.Set, Ignore: []string{GuardEnvPrefix + "CONFIG"}}); err != nil {
		return c, usage(err)
	}
	if o.Upstream != "" {
		c.Proxy.Upstream = o.Upstream
	}
	if o.Addr != "" {
		c.HTTP.Addr = o.Addr
	}
	for _, pattern := range o.Share {
		c.Proxy.Routes = append(c.Proxy.Routes, guardhttp.Route{Match: pattern, Class: guardhttp.Shared, Query: []string{"*"}})
	}
	return c, nil
}

// Guard runs the guard as a reverse proxy until ctx ends.
func Guard(ctx context.Context, o GuardOptions) error {
	c, err := o.load()
	if err != nil {
		return err
	}
	if o.Print {
		text, err := config.Redacted(c)
		fmt.Fprint(os.Stdout, text)
		return err
	}
	if err := c.Validate(); err != nil {
		return usage(fmt.Errorf("configuration %s cannot be used:\n%w", nameOf(o.Source), err))
	}
	log, err := telemetry.NewLogger(c.Log)
	if err != nil {
		return usage(err)
	}
	var stack run.Stack
	err = runGuard(ctx, c, log, &stack)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.StopTimeout)
	defer cancel()
	err = errors.Join(err, stack.Stop(stop))
	_ = log.Sync() // standard error cannot be synced on some systems
	return err
}

func runGuard(ctx context.Context, c GuardConfig, log *zap.Logger, stack *run.Stack) error {
	reg := telemetry.NewRegistry()
	deps := guard.Deps{Log: log.Named("guard"), Registerer: reg}
	if len(c.Redis.Addrs) > 0 {
		r, err := redis.Open(c.Redis, log.Named("redis"))
		if err != nil {
			return fmt.Errorf("redis: %w", err)
		}
		reg.MustRegister(r.Collector())
		stack.Push("redis", func(context.Context) error { return r.Close() })
		deps.Redis = r
	}
	g, err := guard.New(c.Guard, deps)
	if err != nil {
		return err
	}
	stack.Push("guard", func(context.Context) error { g.Close(); return nil })
	h, err := guardhttp.New(c.Proxy, g, log.Named("proxy"))
	if err != nil {
		return err
	}
	stack.Push("upstream connections", func(context.Context) error { h.Close(); return nil })
	ops := telemetry.NewOps(reg)
	if err := ops.SetKeys(c.Ops.Keys); err != nil {
		return fmt.Errorf("ops: %w", err)
	}
	ops.Handle("GET /ops/v1/guard/{backend}", guard.Handler(g))
	web, err := run.NewHTTPServer("guard", c.HTTP, h, log)
	if err != nil {
		return err
	}
	watch, err := run.NewHTTPServer("operations", c.Ops.HTTPConfig, ops, log)
	if err != nil {
		_ = web.Close()
		return err
	}
	log.Info("running", zap.String("version", Version()), zap.String("guard", web.Addr()), zap.String("operations", watch.Addr()),
		zap.Bool("alone", deps.Redis == nil), zap.Int("routes", len(c.Proxy.Routes)))
	group := run.NewGroup(ctx)
	group.Go(web)
	group.Go(watch)
	_, err = waitFor(group, c.StopTimeout)
	return err
}
