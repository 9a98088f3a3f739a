package slice

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
)

// Counters are scopes in Redis. It holds no state and is safe for concurrent use.
type Counters struct {
	redis *redis.Client
	// clock replaces the server's clock in tests; nothing outside them sets it.
	clock func() time.Time
}

// New makes counters over a client.
func New(c *redis.Client) *Counters { return &Counters{redis: c} }

// Level is one scope of a call and its rule.
type Level struct {
	// Scope names it among the scopes of one tag.
	Scope string
	Rule
}

// MaxLevels bounds the levels of one call, MaxCost its cost: together with
// MaxLimit they keep every sum exact.
const (
	MaxLevels = 8
	MaxCost   = 1 << 30
)

// Verdict is what a call brought.
type Verdict struct {
	// OK reports that every level had room and was counted.
	OK bool
	// Refused is the first level without room; -1 if there is none.
	Refused int
	// Used is the sum of each level, with the cost if it was counted.
	Used []int64
	// Wait is the time until the cost fits, if nobody else comes; negative if it
	// is larger than a limit and never fits.
	Wait time.Duration
	// At is the server's time of the decision.
	At time.Time
}

// Take counts cost at every level if all have room, and at none otherwise. A
// cost of 0 only looks. The levels of one call share a tag, which is also what
// Redis Cluster places them by.
func (c *Counters) Take(ctx context.Context, tag string, cost int64, levels ...Level) (Verdict, error) {
	if err := check(tag, cost, levels); err != nil {
		return Verdict{}, err
	}
	keys := make([]string, len(levels))
	args := make([]any, 0, 2+4*len(levels))
	args = append(args, c.now(), cost)
	for i, l := range levels {
		keys[i] = redis.Tag(tag, "slice", l.Scope)
		args = append(args, l.Limit, l.width(), l.Slices, string(l.Mode))
	}
	v, err := take.Run(ctx, c.redis, keys, args...)
	if err != nil {
		return Verdict{}, fmt.Errorf("count %s: %w", tag, err)
	}
	return verdict(v, len(levels))
}

func check(tag string, cost int64, levels []Level) error {
	if tag == "" || len(levels) == 0 || len(levels) > MaxLevels || cost < 0 || cost > MaxCost {
		return fault.New(fault.Internal, "count", "tag %q, %d levels, cost %d: a call needs a tag, 1 to %d levels and a cost of 0 to %d", tag, len(levels), cost, MaxLevels, MaxCost)
	}
	for i, l := range levels {
		if err := l.Validate(); err != nil {
			return fault.New(fault.Invalid, "count "+tag, "level %d (%s): %w", i, l.Scope, err)
		}
		for _, before := range levels[:i] {
			if before.Scope == l.Scope {
				return fault.New(fault.Internal, "count "+tag, "scope %q stands twice in one call", l.Scope)
			}
		}
	}
	return nil
}

func (c *Counters) now() string {
	if c.clock == nil {
		return ""
	}
	return strconv.FormatInt(c.clock().UnixMicro(), 10)
}

func verdict(v any, levels int) (Verdict, error) {
	list, _ := v.([]any)
	if len(list) != 3+levels {
		return Verdict{}, fault.New(fault.Internal, "count", "unexpected reply of %T with %d parts", v, len(list))
	}
	text, _ := list[2].(string)
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return Verdict{}, fault.New(fault.Internal, "count", "the server's time %q is not a number", text)
	}
	num := func(i int) int64 { n, _ := list[i].(int64); return n }
	out := Verdict{Refused: int(num(0)) - 1, Wait: time.Duration(num(1)) * time.Microsecond, At: time.UnixMicro(at)}
	out.OK = out.Refused < 0
	for i := range levels {
		out.Used = append(out.Used, num(3+i))
	}
	return out, nil
}
