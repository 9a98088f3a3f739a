package dialogue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
	"tidegate/robot/engine"
)

// Bounds of a record.
const (
	maxRecord = 64 << 10
	maxDone   = 16
	// remember is how long a record outlives the time for the next answer: a
	// follower who comes back late is told so, and a redelivery finds what it
	// needs.
	remember = 30 * time.Minute
	// clocksApart bounds how far the clocks of two doors may be apart: records of
	// one partition are stamped by the door that wrote them.
	clocksApart = 10 * time.Second
)

// Mark says which record of which partition a callback came in.
type Mark struct {
	ID        string    `json:"id"`
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	At        time.Time `json:"at"`
}

// before reports whether m was written before last. A topic that was made anew
// counts its offsets from 0 again; then the later time tells.
func (m Mark) before(last Mark) bool {
	return m.Topic == last.Topic && m.Partition == last.Partition && m.Offset < last.Offset && !m.At.After(last.At.Add(clocksApart))
}

// record is what lies in Redis, sealed.
type record struct {
	By     Mark          `json:"by"`
	Before *engine.State `json:"before,omitempty"`
	Now    *engine.State `json:"now,omitempty"`
	Done   []string      `json:"done,omitempty"` // callbacks that moved it before By, newest last
}

// Store keeps records. It is safe for concurrent use.
type Store struct {
	redis *redis.Client
	seal  sealer
	total *prometheus.CounterVec
}

// New makes a store. Without a key in the configuration it gives nil: then
// there is no place for dialogues.
func New(cfg Config, c *redis.Client, reg prometheus.Registerer) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fault.Wrap(fault.Invalid, "", err)
	}
	if cfg.Key == "" || c == nil {
		return nil, nil
	}
	s := &Store{redis: c, total: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidegate_robot_dialogues_total",
		Help: "Looks at and moves of dialogues, by result: open, none, again (a redelivery), seen (an older redelivery), moved, back (the callback got no turn), conflict, unreadable, away.",
	}, []string{"result"})}
	var err error
	if s.seal, err = newSealer(cfg.Key, cfg.PrevKey); err != nil {
		return nil, fault.Wrap(fault.Internal, "open dialogues", err)
	}
	if reg != nil {
		reg.MustRegister(s.total)
	}
	return s, nil
}

// key is {account.openid}:dialogue; neither has a dot in the wrong place, since
// accounts have none.
func key(account, openid string) string { return redis.Tag(account+"."+openid, "dialogue") }

// Place is where a follower's dialogue stands, as one callback finds it.
type Place struct {
	// State is what the callback is to be decided with; nil is no dialogue.
	State *engine.State
	// Seen says that everything of this callback was done before.
	Seen bool

	key  string
	mark Mark
	raw  string
	rec  record
	made string // what Move wrote, sealed; "" if it has not moved
}

// Open reads where the follower's dialogue stands for the callback of the mark.
// Errors are of kind Unavailable, or Denied if Redis refuses us.
func (s *Store) Open(ctx context.Context, account, openid string, m Mark) (*Place, error) {
	p := &Place{key: key(account, openid), mark: m}
	raw, found, err := s.redis.Get(ctx, p.key)
	if err != nil {
		s.total.WithLabelValues("away").Inc()
		return nil, fmt.Errorf("open dialogue: %w", err)
	}
	if !found {
		s.total.WithLabelValues("none").Inc()
		return p, nil
	}
	p.raw = raw
	text, err := s.seal.open(p.key, raw)
	if err == nil {
		err = json.Unmarshal(text, &p.rec)
	}
	switch {
	case err != nil: // another key, or damage: as if it had never been there
		p.rec = record{}
		s.total.WithLabelValues("unreadable").Inc()
	case p.rec.By.ID == m.ID:
		p.State = p.rec.Before
		s.total.WithLabelValues("again").Inc()
	case m.before(p.rec.By) || slices.Contains(p.rec.Done, m.ID):
		p.Seen = true
		s.total.WithLabelValues("seen").Inc()
	default:
		p.State = p.rec.Now
		s.total.WithLabelValues("open").Inc()
	}
	return p, nil
}

// Move makes next the state of the follower's dialogue; patience is how long
// the follower has for the next answer. It must be called before the effects of
// the decision. Kind Conflict says that somebody else has moved it since Open:
// open it again and decide anew. After an error of kind Unavailable it may have
// moved; opening it again tells.
func (s *Store) Move(ctx context.Context, p *Place, next *engine.State, patience time.Duration) error {
	made, err := s.write(ctx, p, p.raw, next, patience)
	if err == nil {
		p.made = made
		s.total.WithLabelValues("moved").Inc()
	}
	return err
}

// Back takes a Move back whose callback came to nothing through no fault of the
// follower: the next one finds state, which is Place.State with another time at
// most, and this one, if it is delivered again, decides as before. Errors are those
// of Move. Without a Move there is nothing to do.
func (s *Store) Back(ctx context.Context, p *Place, state *engine.State, patience time.Duration) error {
	if p.made == "" {
		return nil
	}
	_, err := s.write(ctx, p, p.made, state, patience)
	if err == nil {
		p.made = ""
		s.total.WithLabelValues("back").Inc()
	}
	return err
}

// write makes next the state if the record is still what it was, and gives what it
// wrote.
func (s *Store) write(ctx context.Context, p *Place, was string, next *engine.State, patience time.Duration) (made string, err error) {
	rec := record{By: p.mark, Before: p.State, Now: next, Done: p.rec.Done}
	if last := p.rec.By.ID; last != "" && last != p.mark.ID {
		rec.Done = append(slices.Clone(rec.Done), last)
		rec.Done = rec.Done[max(0, len(rec.Done)-maxDone):]
	}
	text, err := json.Marshal(rec)
	if err != nil {
		return "", fault.Wrap(fault.Internal, "move dialogue", err)
	}
	if len(text) > maxRecord {
		return "", fault.New(fault.Invalid, "move dialogue", "what is to be kept has %d bytes, at most %d are: let the rule collect less", len(text), maxRecord)
	}
	value, life := s.seal.seal(p.key, text), patience+remember
	var moved bool
	if was == "" {
		_, moved, err = s.redis.SetNXGet(ctx, p.key, value, life)
	} else {
		moved, err = s.redis.CompareAndSet(ctx, p.key, was, value, life)
	}
	switch {
	case err != nil:
		s.total.WithLabelValues("away").Inc()
		return "", fmt.Errorf("move dialogue: %w", err)
	case !moved:
		s.total.WithLabelValues("conflict").Inc()
		return "", fault.New(fault.Conflict, "move dialogue", "somebody else has moved it")
	}
	return value, nil
}

// Erase forgets a follower. It needs no Store: what was kept before the key was
// taken out of the configuration goes as well.
func Erase(ctx context.Context, c *redis.Client, account, openid string) error {
	if _, err := c.Del(ctx, key(account, openid)); err != nil {
		return fmt.Errorf("erase dialogue: %w", err)
	}
	return nil
}
