package redis

import (
	"context"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/zap"

	"tidegate/pkg/fault"
)

// Client is a pool of connections to one Redis (single, sentinel or cluster).
// It is safe for concurrent use. Close it once.
type Client struct {
	cfg    Config
	rdb    goredis.UniversalClient
	prefix string
	stats  *stats
	once   sync.Once
}

// Open checks the configuration and prepares the client. It does not connect:
// a process must be able to start while Redis is away. An error is always one
// of configuration (fault.Invalid).
func Open(cfg Config, log *zap.Logger) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fault.Wrap(fault.Invalid, "open redis", err)
	}
	tlsCfg, err := cfg.TLS.tlsConfig()
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, "open redis", err)
	}
	bridgeLog(log)
	c := &Client{cfg: cfg, prefix: cfg.Prefix + ":", stats: newStats()}
	c.rdb = goredis.NewUniversalClient(&goredis.UniversalOptions{
		Addrs: cfg.Addrs, MasterName: cfg.Master, IsClusterMode: cfg.Mode == Cluster,
		ClientName: "tidegate",
		Username:   cfg.Username, Password: cfg.Password, DB: cfg.DB,
		SentinelUsername: cfg.SentinelUsername, SentinelPassword: cfg.SentinelPassword,
		TLSConfig: tlsCfg, Dialer: dialer(cfg.Timeout, tlsCfg),
		// One retry, and only for reads: see once.
		MaxRetries: 1, MinRetryBackoff: 2 * time.Millisecond, MaxRetryBackoff: 20 * time.Millisecond,
		DialTimeout: cfg.Timeout, ReadTimeout: cfg.Timeout, WriteTimeout: cfg.Timeout, PoolTimeout: cfg.Timeout,
		DialerRetries: 1, DialerRetryTimeout: time.Millisecond,
		ContextTimeoutEnabled: true,
		PoolSize:              cfg.PoolSize,
		// The hand-shake for maintenance notices makes noise or fails on Valkey and proxies.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		DisableIdentity:          true,
	})
	return c, nil
}

// Close gives the connections back. It may be called twice; calls in flight end
// with fault.Unavailable.
func (c *Client) Close() error {
	var err error
	c.once.Do(func() { err = c.rdb.Close() })
	return err
}

// Ping asks the server (one of a cluster) whether it serves.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.read(ctx, "ping")
	return c.fail("ping", err)
}

// Time is the server's clock. Times of different nodes are compared only there.
func (c *Client) Time(ctx context.Context) (time.Time, error) {
	v, err := c.read(ctx, "time")
	if err != nil {
		return time.Time{}, c.fail("time", err)
	}
	parts, _ := v.([]any)
	if len(parts) != 2 {
		return time.Time{}, fault.New(fault.Internal, "redis time", "unexpected reply of %T", v)
	}
	return time.Unix(toInt(parts[0]), toInt(parts[1])*1000), nil
}

// once is a command that go-redis must not send a second time. Asked per
// command rather than by a client without retries, because the cluster client
// repeats by its own counter and needs that counter to follow MOVED and ASK,
// where the command was not executed.
type once struct{ *goredis.Cmd }

// NoRetry is asked by go-redis before it repeats a command.
func (once) NoRetry() bool { return true }

// write sends a command that changes something: at most once.
func (c *Client) write(ctx context.Context, args ...any) (any, error) {
	cmd := once{goredis.NewCmd(ctx, args...)}
	start := time.Now()
	_ = c.rdb.Process(ctx, cmd)
	return c.result(cmd.Cmd, start)
}

// read sends a command that changes nothing: repeated once if that may help.
func (c *Client) read(ctx context.Context, args ...any) (any, error) {
	cmd := goredis.NewCmd(ctx, args...)
	start := time.Now()
	_ = c.rdb.Process(ctx, cmd)
	return c.result(cmd, start)
}

func (c *Client) result(cmd *goredis.Cmd, start time.Time) (any, error) {
	v, err := cmd.Result()
	c.stats.seen(strings.ToLower(cmd.Name()), err, time.Since(start))
	return v, err
}

// key puts the deployment's prefix before a key or a channel.
func (c *Client) key(k string) string { return c.prefix + k }
