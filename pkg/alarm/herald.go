package alarm

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/redis"
	"tidegate/pkg/telemetry"
)

// HeraldOptions is what a herald works with.
type HeraldOptions struct {
	// Node names this process in messages.
	Node string
	// Role and Host are what a restart does not change. A process tells the end
	// of what earlier processes of its role saw, and of conditions of a process
	// only for its host.
	Role, Host string
	// Redis makes several nodes tell a common condition once, and remembers what
	// fired at a restart; nil lets each tell, and nothing outlive a process.
	Redis *redis.Client
	// Settle is how long after the start that is; 0 is two minutes. Less than the
	// life of a word finds only what died earlier.
	Settle   time.Duration
	Log      *zap.Logger
	Registry prometheus.Registerer
	Now      func() time.Time // nil is the real clock
}

// Herald is the sink that tells webhooks. It keeps the last word on each alarm
// and brings it, in its own goroutine, to the cluster's memory and to the
// queues of the webhooks.
type Herald struct {
	cfg      Config
	node     string
	role     string
	host     string
	settle   time.Duration
	begun    time.Time
	once     *once
	log      *zap.Logger
	now      func() time.Time
	webhooks []*webhook

	mu   sync.Mutex
	news map[id]*item
	wake chan struct{}

	away    bool // of the loop: Redis did not answer in this pass …
	lonely  bool // … or in the one before
	swept   bool // of the loop: what earlier processes saw is settled
	quit    chan struct{}
	stopped sync.Once
	hurry   context.CancelFunc // cuts deliveries
	done    sync.WaitGroup
}

// item is what is known of one alarm.
type item struct {
	last Transition // guarded by Herald.mu

	// Of the loop alone:
	askedAt time.Time // when the cluster's memory was last given our word
	toldAt  time.Time // when somebody was last told, as far as is known
}

// NewHerald checks the section and starts one goroutine, and one for each
// webhook. Stop ends them.
func NewHerald(cfg Config, o HeraldOptions) (*Herald, error) {
	h, err := newHerald(cfg, o)
	if err != nil {
		return nil, err
	}
	h.start()
	return h, nil
}

func newHerald(cfg Config, o HeraldOptions) (*Herald, error) {
	ws, err := cfg.receivers()
	if err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Settle == 0 {
		o.Settle = settleTime
	}
	h := &Herald{
		cfg: cfg, node: o.Node, role: o.Role, host: o.Host, settle: o.Settle, begun: o.Now(), log: o.Log, now: o.Now, webhooks: ws,
		news: map[id]*item{}, wake: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	if o.Redis != nil {
		h.once = &once{o.Redis, o.Node + "/" + rand.Text()}
	}
	met := newWebhookMetrics(telemetry.Registerer(o.Registry))
	for _, w := range ws {
		w.log, w.met, w.now = o.Log, met, o.Now
	}
	return h, nil
}

func (h *Herald) start() {
	ctx, cancel := context.WithCancel(context.Background())
	h.hurry = cancel
	for _, w := range h.webhooks {
		h.done.Go(func() { w.run(ctx) })
	}
	h.done.Go(func() { h.loop(ctx) })
}

// Tell implements Sink. It keeps the newest word on an alarm and returns at
// once; the board bounds how many there are.
func (h *Herald) Tell(t Transition) {
	h.mu.Lock()
	key := id{t.Name, t.Subject}
	if i := h.news[key]; i != nil {
		i.last = t
	} else {
		h.news[key] = &item{last: t}
	}
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// refresh keeps the newest words on an alarm that fires, for reminders, for the
// cluster's memory and for its end. It is no news.
func (h *Herald) refresh(t Transition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.news[id{t.Name, t.Subject}]; i != nil && i.last.Firing {
		i.last.Text, i.last.TextZH = t.Text, t.TextZH
	}
}

// flushMost bounds what a clean stop spends on receivers that do not answer.
const flushMost = 3 * time.Second

// Stop tells what is still to be told, within flushMost and ctx, and waits for
// the goroutines. Alarms that fire stay so: a stop says nothing about them.
func (h *Herald) Stop(ctx context.Context) error {
	h.stopped.Do(func() { close(h.quit) })
	late := time.AfterFunc(flushMost, h.hurry)
	defer late.Stop()
	defer context.AfterFunc(ctx, h.hurry)()
	h.done.Wait()
	h.hurry()
	return nil
}

// loop works whenever there is news, and gives our word again in time.
func (h *Herald) loop(ctx context.Context) {
	defer func() {
		for _, w := range h.webhooks {
			close(w.queue)
		}
	}()
	tick := time.NewTicker(assertEvery / 3)
	defer tick.Stop()
	for {
		h.pass(ctx)
		select {
		case <-h.wake:
		case <-tick.C:
		case <-h.quit:
			h.pass(ctx)
			return
		}
	}
}

// pass works on everything that is due, the oldest first.
func (h *Herald) pass(ctx context.Context) {
	type work struct {
		key  id
		item *item
		last Transition
	}
	now := h.now()
	var due []work
	h.mu.Lock()
	for key, i := range h.news {
		if !i.last.Firing || i.askedAt.IsZero() || now.Sub(i.askedAt) >= assertEvery {
			due = append(due, work{key, i, i.last})
		}
	}
	h.mu.Unlock()
	slices.SortFunc(due, func(a, b work) int {
		return cmp.Or(a.last.At.Compare(b.last.At), cmp.Compare(a.key.name, b.key.name), cmp.Compare(a.key.subject, b.key.subject))
	})
	h.away = false
	defer func() { h.lonely = h.away || h.lonely && len(due) == 0 }()
	for _, w := range due {
		if w.last.Firing || w.item.askedAt.IsZero() {
			h.fire(ctx, w.key, w.item, w.last, now)
		}
		if !w.last.Firing {
			h.resolve(ctx, w.key, w.item, w.last)
		}
	}
	h.sweep(ctx)
}

// fire gives our word that the condition holds, and tells if that is ours to do.
func (h *Herald) fire(ctx context.Context, key id, i *item, t Transition, now time.Time) {
	ago := time.Duration(-1)
	if !i.toldAt.IsZero() {
		ago = now.Sub(i.toldAt)
	}
	tell := ago < 0 || ago >= h.cfg.RepeatEvery
	if said, ok := h.ask(t, func(o *once) (bool, error) { return o.assert(ctx, key, h.cfg.RepeatEvery, ago) }); ok {
		tell = said
	}
	h.remember(ctx, t)
	i.askedAt = now
	reminder := tell && !i.toldAt.IsZero()
	if tell || i.toldAt.IsZero() {
		i.toldAt = now
	}
	if tell {
		t.Firing, t.At = true, now
		h.spread(t, reminder, h.node)
	}
}

// resolve takes our word back, and tells if nobody else sees the condition.
func (h *Herald) resolve(ctx context.Context, key id, i *item, t Transition) {
	tell := true
	if said, ok := h.ask(t, func(o *once) (bool, error) { return o.leave(ctx, key, !i.toldAt.IsZero()) }); ok {
		tell = said
	}
	if tell {
		h.spread(t, false, h.node)
		h.forget(ctx, t)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if i.last.Firing { // it began again meanwhile
		i.askedAt, i.toldAt = time.Time{}, time.Time{}
		return
	}
	delete(h.news, key)
}

// ask puts a question to the cluster's memory. ok is false if there is none, if
// the alarm is this node's alone, or if Redis does not answer: then it is not
// asked again in this pass, and this node decides for itself.
func (h *Herald) ask(t Transition, question func(*once) (bool, error)) (answer, ok bool) {
	if h.once == nil || t.Local || h.away {
		return false, false
	}
	answer, err := question(h.once)
	h.noteAway(err)
	return answer && err == nil, err == nil
}

func (h *Herald) noteAway(err error) {
	if err == nil {
		return
	}
	h.away = true
	if !h.lonely {
		h.log.Warn("the cluster's memory of alarms is away; each node tells for itself", zap.Error(err))
	}
}

func (h *Herald) spread(t Transition, reminder bool, node string) {
	for _, w := range h.webhooks {
		w.offer(t, reminder, node)
	}
}
