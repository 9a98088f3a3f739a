package suspect

import (
	"context"
	"crypto/rand"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/redis"
)

const (
	// maxKills is at how many deaths a record is condemned (G15).
	maxKills = 3
	// aloneFrom is from how many deaths on a record is worked alone: the next one
	// condemns it. Before that it is in company and written down, so that a process
	// that ends for reasons of its own costs the users of others no standstill.
	aloneFrom = maxKills - 1
	// turn is how long a suspect may keep the others waiting.
	turn = 5 * time.Second
	// patience bounds one question to Redis, whose client has a bound as well.
	patience = 500 * time.Millisecond
)

// Book knows what this process has in hand, and what others had when they died.
type Book struct {
	redis *redis.Client
	ahead int64
	room  int
	log   *zap.Logger
	gate  *gate

	mu   sync.Mutex
	held map[place]*holding
}

type place struct {
	topic     string
	partition int32
}

// holding is one assignment of a partition.
type holding struct {
	topic  string
	store  store
	offset int64 // the first one, or -1

	begins, clears together // of the store

	load   sync.Mutex // held while Redis is asked what the past was
	mu     sync.Mutex
	loaded bool
	blind  bool // Redis did not answer: nothing is counted
	past   past
	inHand int
	queued int // suspects that occupy a worker while they wait
}

// New makes the book of a process. Without Redis nothing is counted. ahead is
// how far ahead of its committed offset a process may have begun records; room
// is how many suspects of one partition may occupy workers while they wait.
func New(r *redis.Client, ahead, room int, log *zap.Logger) *Book {
	return &Book{redis: r, ahead: int64(ahead), room: max(1, room), log: log, gate: newGate(turn), held: map[place]*holding{}}
}

// Assigned begins an assignment; it does not wait. offset is -1 if it is not
// known.
func (b *Book) Assigned(group, topic string, partition int32, offset int64) {
	if b.redis == nil {
		return
	}
	h := &holding{topic: topic, offset: offset, store: store{
		redis: b.redis, key: redis.Tag(group+"/"+topic+"/"+strconv.Itoa(int(partition)), "suspects"), token: rand.Text(),
	}}
	h.begins.write = func(ctx context.Context, records []entry) (bool, error) {
		h.mu.Lock()
		p := past{until: h.past.until, begun: h.past.begun}
		h.mu.Unlock()
		return h.store.begin(ctx, p, records...)
	}
	h.clears.write = func(ctx context.Context, records []entry) (bool, error) { return true, h.store.clear(ctx, records...) }
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[place{topic, partition}] = h
}

// Released ends an assignment, after its handlers have returned. If some have
// not, it looks to the next owner as if this process had died.
func (b *Book) Released(topic string, partition int32) {
	at := place{topic, partition}
	b.mu.Lock()
	h := b.held[at]
	delete(b.held, at)
	b.mu.Unlock()
	if h == nil {
		return
	}
	h.load.Lock() // whoever asks now is through
	defer h.load.Unlock()
	h.mu.Lock()
	tidy := h.loaded && h.inHand == 0 // blind or not: nothing was in hand
	h.mu.Unlock()
	if !tidy {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := h.store.letGo(ctx); err != nil {
		b.log.Debug("partition let go without a note of it: its next records are counted", zap.String("topic", topic), zap.Error(err))
	}
}

// Hand is one record in hand. The zero value is none.
type Hand struct {
	// Condemned says that the record must not be begun: this many processes have
	// died with it.
	Condemned int

	pass    pass
	holding *holding
	offset  int64
	entry   bool
}

// Shut tells whether suspects keep all others waiting now.
func (b *Book) Shut() bool { return b.gate.shut() }

// ErrLater says that a suspect has to wait until it can be worked alone, and
// that enough workers wait already.
var ErrLater = fault.New(fault.Limited, "begin record", "it was in hand when a process died, and waits to be worked alone")

// Try takes a record in hand if that needs no waiting and nothing written down.
func (b *Book) Try(r kafka.Record, hand *Hand) bool {
	h := b.of(r)
	if h == nil {
		return b.gate.try(&hand.pass)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.loaded || h.counts(r.Offset) || !b.gate.try(&hand.pass) {
		return false
	}
	h.take(hand, r.Offset)
	return true
}

// Begin takes a record in hand: what has to be written down is, when it returns.
// It may wait for suspects, or as a suspect for others, until ctx ends.
func (b *Book) Begin(ctx context.Context, r kafka.Record, hand *Hand) error {
	h := b.of(r)
	if h == nil {
		return b.gate.enter(ctx, &hand.pass)
	}
	b.know(ctx, h, r.Offset)
	h.mu.Lock()
	kills, counts := h.past.kills[r.Offset], h.counts(r.Offset)
	if kills == 0 {
		kills = h.past.begun
	}
	h.mu.Unlock()
	var err error
	switch {
	case kills >= maxKills:
		hand.Condemned = kills
		return nil
	case kills >= aloneFrom:
		err = b.alone(ctx, h, &hand.pass)
	default:
		err = b.gate.enter(ctx, &hand.pass)
	}
	if err == nil {
		err = ctx.Err() // what is not begun any more must not be written down
	}
	if err != nil {
		hand.pass.leave()
		return err
	}
	h.mu.Lock()
	h.take(hand, r.Offset)
	h.mu.Unlock()
	if counts {
		b.write(h, hand, kills+1)
	}
	return nil
}

func (b *Book) of(r kafka.Record) *holding {
	if b.redis == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held[place{r.Topic, r.Partition}]
}

// counts tells whether a record must be written down. It is called with the lock.
func (h *holding) counts(offset int64) bool {
	if h.blind {
		return false
	}
	_, suspect := h.past.kills[offset]
	return suspect || offset < h.past.until
}

func (h *holding) take(hand *Hand, offset int64) {
	h.inHand++
	hand.holding, hand.offset = h, offset
}

// know asks Redis once what the past was; the others of the partition wait for
// the answer.
func (b *Book) know(ctx context.Context, h *holding, first int64) {
	h.load.Lock()
	defer h.load.Unlock()
	if h.loaded {
		return
	}
	if h.offset >= 0 {
		first = h.offset
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p, err := h.store.take(ctx, first, b.ahead)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loaded, h.blind, h.past = true, err != nil, p
	switch {
	case err != nil:
		b.log.Warn("Redis does not say what was in hand when others died; a record that kills the process is found later", zap.String("topic", h.topic), zap.Error(err))
	case len(p.kills) > 0:
		alone := 0
		for _, n := range p.kills {
			if n >= aloneFrom {
				alone++
			}
		}
		b.log.Warn("records were in hand when a process died; those that were so twice are worked alone now", zap.String("topic", h.topic), zap.Int("records", len(p.kills)), zap.Int("alone", alone))
	}
}

// alone waits for the gate, if there is room for one more that waits.
func (b *Book) alone(ctx context.Context, h *holding, p *pass) error {
	h.mu.Lock()
	if h.queued >= b.room {
		h.mu.Unlock()
		return ErrLater
	}
	h.queued++
	h.mu.Unlock()
	err := b.gate.enterAlone(ctx, p)
	h.mu.Lock()
	h.queued--
	h.mu.Unlock()
	return err
}

// write notes a record before it is begun.
func (b *Book) write(h *holding, hand *Hand, kills int) {
	mine, err := h.begins.run(entry{hand.offset, kills})
	hand.entry = mine || err != nil // an answer that was lost may have been a yes
	if err == nil {
		return
	}
	h.mu.Lock()
	first := !h.blind
	h.blind = true
	h.mu.Unlock()
	if first {
		b.log.Warn("Redis does not take what is in hand; a record that kills the process is found later", zap.String("topic", h.topic), zap.Error(err))
	}
}

// Done says that the work has returned, whatever came of it. It may be called
// twice, and for a record that was not begun.
func (b *Book) Done(hand *Hand) {
	h := hand.holding
	hand.holding = nil
	if h != nil && hand.entry {
		if _, err := h.clears.run(entry{offset: hand.offset}); err != nil {
			b.log.Debug("a record keeps its note: it is worked alone if it comes again", zap.String("topic", h.topic), zap.Error(err))
		}
	}
	hand.pass.leave()
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inHand--
	delete(h.past.kills, hand.offset)
}
