package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/alarm"
	"tidegate/pkg/control"
	"tidegate/pkg/credit"
	"tidegate/pkg/kafka"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/redis"
	"tidegate/pkg/run"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/telemetry"
)

// engines opens what a role needs, once, and closes it in reverse order.
type engines struct {
	cfg    Config
	log    *zap.Logger
	reg    *prometheus.Registry
	hasher telemetry.Hasher
	node   string
	stack  run.Stack

	alarms   *alarm.Board
	producer *kafka.Producer
	redis    *redis.Client
	db       *sqldb.DB
	admin    *kafka.Admin
	held     holds // of the sender, if there is one here
	panel    *control.Panel
	permits  *ratelimit.Cluster
	credits  *credit.Ledger
	rules    *rulesView
}

func newEngines(cfg Config, log *zap.Logger) *engines {
	key := []byte(cfg.Log.HashKey)
	if len(key) == 0 {
		key = []byte(rand.Text())
	}
	reg := telemetry.NewRegistry()
	return &engines{cfg: cfg, log: log, reg: reg, hasher: telemetry.NewHasher(key), node: nodeName(), rules: newRulesView(reg)}
}

// nodeName tells processes apart in rows and logs: host and process id.
func nodeName() string { return fmt.Sprintf("%s-%d", hostName(), os.Getpid()) }

func hostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "node"
	}
	return host
}

// Producer is the process's one producer: a producer per room would be a
// connection and a batch per room.
func (e *engines) Producer() (*kafka.Producer, error) {
	if e.producer != nil {
		return e.producer, nil
	}
	p, err := kafka.NewProducer(e.cfg.Kafka, kafka.ProducerOptions{}, e.log.Named("producer"), e.reg)
	if err != nil {
		return nil, fmt.Errorf("kafka producer: %w", err)
	}
	e.producer = p
	e.stack.Push("kafka producer", p.Close)
	return p, nil
}

// Admin asks Kafka about topics and lag.
func (e *engines) Admin() (*kafka.Admin, error) {
	if e.admin != nil {
		return e.admin, nil
	}
	a, err := e.ownAdmin("kafka admin", e.cfg.Kafka)
	e.admin = a
	return a, err
}

// QueueAdmin is for the watch over the queues alone, which asks all the time:
// while Kafka hangs, nobody's readiness must wait behind its questions. They are
// given up soon, since the next poll asks again.
func (e *engines) QueueAdmin() (*kafka.Admin, error) {
	c := e.cfg.Kafka
	const patience = 2 * time.Second
	if c.RequestTimeout == 0 || c.RequestTimeout > patience {
		c.RequestTimeout = patience
	}
	return e.ownAdmin("kafka admin of the queues", c)
}

func (e *engines) ownAdmin(name string, c kafka.Config) (*kafka.Admin, error) {
	a, err := kafka.NewAdmin(c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	e.stack.Push(name, func(context.Context) error { return a.Close() })
	return a, nil
}

// Redis is the process's client. It connects when it is first asked, so a
// Redis that is away does not keep a role from starting.
func (e *engines) Redis() (*redis.Client, error) {
	if e.redis != nil {
		return e.redis, nil
	}
	c, err := redis.Open(e.cfg.Redis, e.log.Named("redis"))
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	e.redis = c
	e.reg.MustRegister(c.Collector())
	e.stack.Push("redis", func(context.Context) error { return c.Close() })
	return c, nil
}

// DB is the process's database.
func (e *engines) DB(ctx context.Context) (*sqldb.DB, error) {
	if e.db != nil {
		return e.db, nil
	}
	db, err := sqldb.Open(ctx, e.cfg.Database)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	e.db = db
	e.stack.Push("database", func(context.Context) error { return db.Close() })
	return db, db.Register(e.reg, "main")
}
