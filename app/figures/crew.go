package figures

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/run"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wire"
	"tidegate/robot"
	"tidegate/robot/backend"
	"tidegate/robot/engine"
)

// The scene of paper 003: a transaction of five interfaces of 50 ms each, and a
// back end that bears a hundred transactions at once.
const (
	transaction = 250 * time.Millisecond
	places      = 100
	contention  = 0.5
	largest     = 4 // batches of up to so many times places
)

// The two accounts: one whose robots take at a set speed, and one without a cap,
// which passes everything on at once as a gate without a queue does.
const (
	queued = "queue"
	direct = "direct"
)

const crewRules = `version: 1
fallback: busy
rules:
  - name: balance
    match: {text: {any: true}}
    call: {backend: core, path: /balance}
    reply: {text: "your balance is {{ .Answer.balance }}"}
`

// crew is a robot at work between a queue and a back end, and a watch over when
// each callback was sent and answered.
type crew struct {
	s        *stage
	topics   wire.Topics
	producer *kafka.Producer
	batch    int

	mu       sync.Mutex
	core     *sharing
	answered map[string]time.Time // by callback
	fresh    chan struct{}        // has a token when something was answered
}

// crew starts it; stop ends it.
func (s *stage) crew(ctx context.Context) (c *crew, stop func() error, err error) {
	where, err := s.kafka()
	if err != nil {
		return nil, nil, err
	}
	c = &crew{s: s, topics: wire.Topics{Prefix: s.topicPrefix()}, core: newSharing(transaction, places, contention), answered: map[string]time.Time{}, fresh: make(chan struct{}, 1)}
	if err := c.ensureTopics(ctx, where); err != nil {
		return nil, nil, err
	}
	var stack run.Stack
	stop = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		return stack.Stop(ctx)
	}
	if err := c.open(ctx, where, &stack); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	if err := c.warm(ctx); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return c, stop, nil
}

// warmth is how many doubled batches go before those that are measured: a broker
// that has just started still compiles its code for some twenty seconds, and
// answers 20 ms later.
const warmth = 40

// warm sees to it that the robot has joined its groups, that its connections are
// open and that the broker is in its stride.
func (c *crew) warm(ctx context.Context) error {
	size, rounds := largest, warmth
	if c.s.Short {
		size, rounds = 1, 0
	}
	for _, account := range []string{queued, direct} {
		if _, _, err := c.run(ctx, account, size); err != nil {
			return err
		}
	}
	for range rounds {
		if _, _, err := c.run(ctx, queued, 2); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) topicPrefix() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unique("robot")
}

func (c *crew) ensureTopics(ctx context.Context, where kafka.Config) error {
	a, err := kafka.NewAdmin(where)
	if err != nil {
		return err
	}
	defer a.Close()
	names := c.topics.Shared()
	for _, account := range []string{queued, direct} {
		names = append(names, c.topics.OfAccount(account)...)
	}
	var specs []kafka.TopicSpec
	for _, name := range names {
		specs = append(specs, kafka.TopicSpec{Name: name, Partitions: wire.Partitions, Replication: 1, Retention: time.Hour})
	}
	_, err = a.EnsureTopics(ctx, specs)
	return err
}

// open starts the back end, the producer and the robot.
func (c *crew) open(ctx context.Context, where kafka.Config, stack *run.Stack) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := &http.Server{Handler: http.HandlerFunc(c.serve), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- web.Serve(ln) }()
	stack.Push("back end", func(context.Context) error {
		err := web.Close()
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	})
	if c.producer, err = kafka.NewProducer(where, kafka.ProducerOptions{}, c.s.Log, nil); err != nil {
		return err
	}
	stack.Push("producer", c.producer.Close)

	cfg := robot.DefaultConfig()
	cfg.Group, cfg.Workers = c.topics.Prefix, largest*places+places
	cfg.Backends = []backend.Config{{
		Name: "core", BaseURL: "http://" + ln.Addr().String(), Timeout: 20 * time.Second, Attempts: 1,
		Rate: 1e5, Burst: largest * places, Concurrency: largest*places + places,
	}}
	rules, err := engine.Parse("rules.yaml", []byte(crewRules), engine.Known{Backends: cfg.BackendNames(), Accounts: []string{queued, direct}})
	if err != nil {
		return err
	}
	r, err := robot.New(cfg, []robot.Account{{Name: queued, Limits: robot.Limits{Concurrency: places}}, {Name: direct}}, robot.Deps{
		Kafka: where, Topics: c.topics, Publisher: c, Rules: rules, Log: c.s.Log, Hasher: telemetry.NewHasher([]byte("figures")), Node: "figures",
	})
	if err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(life) }()
	stack.Push("robot", func(context.Context) error {
		end()
		return <-ended
	})
	return nil
}

// serve is the back end.
func (c *crew) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	done := c.core.begin()
	c.mu.Unlock()
	select {
	case <-done:
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"balance":"12.50"}`)) // the robot went away: nobody is left to answer
}

// Publish hands the robot's letters on and notes when a reply was durable.
func (c *crew) Publish(ctx context.Context, r kafka.Record) (kafka.Record, error) {
	out, err := c.producer.Publish(ctx, r)
	if err != nil || wire.HeaderValue(r.Headers, wire.HeaderKind) != string(wire.KindReply) {
		return out, err
	}
	reply, derr := wire.Decode[wire.Reply](r.Value, r.Headers)
	if derr != nil {
		c.s.Log.Error("a reply of our own cannot be read", zap.Error(derr))
		return out, err
	}
	c.mu.Lock()
	c.answered[reply.CallbackID] = time.Now()
	c.mu.Unlock()
	select {
	case c.fresh <- struct{}{}:
	default:
	}
	return out, err
}

// run sends a batch of so many times places, each from another user, and gives
// their response times, from short to long, and the most transactions at once.
func (c *crew) run(ctx context.Context, account string, times int) (took []time.Duration, most int, err error) {
	c.mu.Lock()
	c.core = newSharing(transaction, places, contention)
	core := c.core
	c.batch++
	batch := c.batch
	clear(c.answered)
	c.mu.Unlock()
	records := make([]kafka.Record, times*places)
	ids := make([]string, len(records))
	for i := range records {
		if records[i], ids[i], err = c.callback(account, batch, i); err != nil {
			return nil, 0, err
		}
	}
	begin := time.Now()
	if err := c.producer.PublishAll(ctx, records); err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("the robot did not answer %d callbacks within a minute", len(records)))
	defer cancel()
	for {
		if took = c.responses(ids, begin); took != nil {
			return took, core.busiest(), nil
		}
		select {
		case <-c.fresh:
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
	}
}

func (c *crew) callback(account string, batch, i int) (kafka.Record, string, error) {
	openid := fmt.Sprintf("oFigures%04d%08d", batch, i)
	identity := fmt.Sprintf("%s/%s", account, openid)
	hash := idgen.HashOf(identity)
	letter := &wire.Callback{
		ID: idgen.Derive(idgen.User("wxfigures", openid), hash), IdentityHash: hash.String(), Identity: identity, Account: account, OpenID: openid,
		MsgType: "text", MsgID: fmt.Sprint(i + 1), CreateTime: time.Now().Unix(), Content: "balance", ReceivedAt: wire.Millis(time.Now()),
	}
	key, value, headers, err := wire.Encode(letter)
	return kafka.Record{Topic: c.topics.Callbacks(account), Key: key, Value: value, Headers: headers}, letter.ID, err
}
