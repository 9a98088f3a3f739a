package ratelimit

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
)

// Joint caps are several caps that one piece of work has to pass together: rates
// (of its template, of its application) and windows (of its user). One step in
// Redis counts the work by all of them or by none.
//
// Where Cluster hands permits out ahead, for few caps that are always busy, Joint
// asks once for each piece of work, for many caps that most work does not fill, and
// does not wait: it says how long.
//
// Invariants. In every window of length w at most burst + rate×w takes of a rate;
// in every period at most Most different takes of a window, exactly, to the
// microsecond. Cold is empty: where Redis has lost its data a rate begins without
// burst, and a window lets nobody through until a whole period is known again, but
// for the first use ever, which the database remembers.
//
// On failure. Redis away: nothing for patience; then each node takes 1/nodes of the
// rates, and nothing of windows, since who has had how much is not known. Work that
// is not done is given back with Back.
//
// Memory: a rate is one small hash; a window holds at most Most entries for its
// period, for users that were sent to within it.
type Joint struct {
	redis  *redis.Client
	births Births
	nodes  int
	log    *zap.Logger
	node   string
	takes  atomic.Int64
	clock  func() time.Time // replaces the server's in tests
	now    func() time.Time

	mu     sync.Mutex
	failed time.Time // since when Redis has not answered
	last   time.Time // when it was asked in vain last
	askAt  time.Time // then somebody looks again
	shares map[string]*localRate
	spent  map[string]bool // rates that shares were taken of: they begin anew
	lines  map[string]time.Time
	sure   map[string]bool // tags that the database knows
}

// Births remembers for ever which tags have been used.
type Births interface {
	// First reports that the tag has never been marked.
	First(ctx context.Context, tag string) (bool, error)
	// Marked says that it is from now on.
	Marked(ctx context.Context, tag string) error
}

// Cap is one of the joint caps. Either Rate or Window is set.
type Cap struct {
	// Name names it among the caps of a tag.
	Name string
	// Rate and Burst hold; a Concurrency is not looked at.
	Rate Limit
	// Window is the most in a rolling period.
	Window Window
}

// Window is at most Most in every Period.
type Window struct {
	Most   int
	Period time.Duration
}

// The bounds of windows: what one script reads stays small.
const (
	maxWindow       = 1000
	maxWindowPeriod = 32 * 24 * time.Hour
	maxJoint        = 8
	// markLife is longer than any window.
	markLife = 400 * 24 * time.Hour
	// inLine bounds the rates whose waits are spread.
	inLine = 4096
)

// Validate reports a window that cannot be kept.
func (w Window) Validate() error {
	switch {
	case w.Most < 1 || w.Most > maxWindow:
		return fmt.Errorf("limit: %d is outside 1 to %d", w.Most, maxWindow)
	case w.Period < time.Second || w.Period > maxWindowPeriod:
		return fmt.Errorf("period: %v is outside 1s to %v", w.Period, maxWindowPeriod)
	}
	return nil
}

// NewJoint prepares joint caps for a cluster of at most so many nodes.
func NewJoint(c *redis.Client, b Births, nodes int, log *zap.Logger) (*Joint, error) {
	if c == nil || b == nil || nodes < 1 {
		return nil, fault.New(fault.Internal, "new joint caps", "they need Redis, a memory of births and at least one node")
	}
	if log == nil {
		log = zap.NewNop()
	}
	return &Joint{
		redis: c, births: b, nodes: nodes, log: log, node: rand.Text(), now: time.Now,
		shares: map[string]*localRate{}, spent: map[string]bool{}, lines: map[string]time.Time{}, sure: map[string]bool{},
	}, nil
}

// Grant is what a Take brought.
type Grant struct {
	// Refused is the cap that refused, by its number, or -1: the work may be done.
	Refused int
	// Wait is how long to wait then.
	Wait time.Duration

	joint *Joint
	tag   string
	who   string
	take  string
	at    string // the server's time
	caps  []Cap
}

// OK reports that the work may be done.
func (g Grant) OK() bool { return g.Refused < 0 }

// Take counts one piece of work, called who, by all caps if all have room. The caps
// of one tag lie together in a Redis Cluster. An error means that nothing is known;
// what was counted then is lost.
func (j *Joint) Take(ctx context.Context, tag, who string, caps []Cap) (Grant, error) {
	g := Grant{Refused: -1, joint: j, tag: tag, who: who, caps: caps}
	if len(caps) == 0 {
		return g, nil
	}
	if len(caps) > maxJoint || tag == "" || who == "" {
		return g, fault.New(fault.Internal, "take of joint caps", "%d caps of %.40q for %.40q: use at most %d, with names", len(caps), tag, who, maxJoint)
	}
	if !j.mayAsk() {
		return j.without(g), nil
	}
	g.take = j.node + strconv.FormatInt(j.takes.Add(1), 36)
	refused, wait, err := j.run(ctx, "take", &g)
	if err == nil && refused < 0 {
		if err = j.mark(ctx, &g); err == nil {
			refused, wait, err = j.run(ctx, "take", &g)
		}
		if err != nil {
			return g, err // the database, or Redis again: the next one sees
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return g, fault.Wrap(fault.Unavailable, "take of joint caps", ctx.Err())
		}
		j.lost(err)
		return j.without(g), nil
	}
	j.found(tag, caps)
	if err := j.ensure(ctx, tag); err != nil {
		return g, err
	}
	if refused != 0 {
		g.Refused, g.Wait = int(refused)-1, wait
		g.Wait = j.inLine(g)
		g.joint = nil
	}
	return g, nil
}

// Back gives a take back that was not used.
func (g Grant) Back(ctx context.Context) {
	if g.joint == nil || !g.OK() || g.take == "" {
		return
	}
	_, _, _ = g.joint.run(ctx, "back", &g, g.at) // what cannot be given back is not used
}

// run runs the script for a grant.
func (j *Joint) run(ctx context.Context, what string, g *Grant, more ...string) (int64, time.Duration, error) {
	keys := make([]string, 1, 1+len(g.caps))
	keys[0] = redis.Tag(g.tag, "joint", "mark")
	now, said := "", ""
	if j.clock != nil {
		now = strconv.FormatInt(j.clock().UnixMicro(), 10)
	}
	if len(more) > 0 {
		said = more[0]
	}
	args := make([]any, 0, 7+5*len(g.caps))
	args = append(args, now, what, g.who, g.take, said, settle.Microseconds(), markLife.Milliseconds())
	for _, c := range g.caps {
		keys = append(keys, redis.Tag(g.tag, "joint", c.Name))
		if c.Window.Most > 0 {
			args = append(args, "w", c.Window.Most, c.Window.Period.Microseconds(), 0, "")
			continue
		}
		l := c.Rate.clamp()
		us, part := period(l.Rate)
		args = append(args, "r", us, part, l.Burst, flag(j.anew(g.tag, c.Name)))
	}
	v, err := jointScript.Run(ctx, j.redis, keys, args...)
	if err != nil {
		return 0, 0, err
	}
	list, _ := v.([]any)
	if len(list) != 3 {
		return 0, 0, fault.New(fault.Internal, "take of joint caps", "an answer of %d fields: something else uses the keys", len(list))
	}
	refused, _ := list[0].(int64)
	wait, _ := list[1].(int64)
	g.at, _ = list[2].(string)
	return refused, time.Duration(wait) * time.Microsecond, nil
}

// mark begins a tag: for the first time, or after its data were lost.
func (j *Joint) mark(ctx context.Context, g *Grant) error {
	first, err := j.births.First(ctx, g.tag)
	if err != nil {
		return err
	}
	if !first {
		j.log.Warn("the caps of templates, applications and users have lost their data in Redis: rates begin empty, windows when a whole period is known again", zap.String("tag", g.tag))
	}
	if _, _, err := j.run(ctx, "mark", g, flag(first)); err != nil {
		return err
	}
	return nil
}

// ensure makes the database know that a tag is in use, once in each process.
func (j *Joint) ensure(ctx context.Context, tag string) error {
	j.mu.Lock()
	sure := j.sure[tag]
	j.mu.Unlock()
	if sure {
		return nil
	}
	if err := j.births.Marked(ctx, tag); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sure[tag] = true
	return nil
}

// inLine spreads those who wait for one rate: each is told a time of its own, one
// period after the one before, instead of all the same.
func (j *Joint) inLine(g Grant) time.Duration {
	c := g.caps[g.Refused]
	if c.Window.Most > 0 || c.Rate.Rate <= 0 {
		return g.Wait
	}
	every := time.Duration(float64(time.Second) / c.Rate.Rate)
	if g.Wait < every/2 {
		return g.Wait // it is about to be its turn
	}
	now := j.now()
	name := g.tag + "\x00" + c.Name
	j.mu.Lock()
	defer j.mu.Unlock()
	at := now.Add(g.Wait)
	if last, ok := j.lines[name]; ok && last.After(at) {
		at = last
	}
	if len(j.lines) >= inLine {
		clear(j.lines)
	}
	j.lines[name] = at.Add(every)
	return at.Sub(now)
}
