package ratelimit

import (
	"context"
	"strconv"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
)

// question is what a node tells and asks about one cap.
type question struct {
	node   string
	want   int // permits wanted
	have   int // permits in hand
	flight int // calls under way
	pledge int // places that it may use until it has the answer
	places int // places that it can use
	limit  Limit
	how    change
	begun  int64 // the beginning that it knows
	latest int64 // the server's time is not later than that, in µs
	put    bool  // the server's clock was put forward
	leave  bool
	firsts int     // of the permits wanted, for callers that go first
	bulk   float64 // part of the rate for the others while those wait; 0 is all
}

// answer is what it is told. Times are the server's, in microseconds.
type answer struct {
	late           bool // the server thinks that the question was too late; nothing else is said
	empty          bool // the cap began empty
	now            int64
	count          int64
	first, part    int64 // theoretical time of the first permit
	step, stepPart int64
	slack, life    int64
	wait           time.Duration
	allow          int
	version        int64
	limit          Limit
	begun          int64
	rest           time.Duration // before anything can be given out
}

// slot is when permit i may be used first.
func (a *answer) slot(i int64) int64 {
	parts := a.part + i*a.stepPart
	at := a.first + i*a.step + parts/frac
	if parts%frac > 0 {
		at++
	}
	return max(a.now, at-a.slack)
}

// exchange asks about one cap and brings the answer.
type exchange func(context.Context, question) (answer, error)

// store asks Redis about one cap. A nil clock is the server's; tests bring their own.
type store struct {
	redis  *redis.Client
	script *redis.Script
	keys   []string
	life   time.Duration
	clock  func() time.Time
}

// newStore names the keys: {permits/<name>}:cap and {permits/<name>}:nodes.
func newStore(c *redis.Client, name string, life time.Duration) *store {
	tag := "permits/" + name
	return &store{redis: c, script: askScript, keys: []string{redis.Tag(tag, "cap"), redis.Tag(tag, "nodes")}, life: life}
}

func (s *store) ask(ctx context.Context, q question) (answer, error) {
	now := ""
	if s.clock != nil {
		now = strconv.FormatInt(s.clock().UnixMicro(), 10)
	}
	us, part := period(q.limit.Rate)
	v, err := s.script.Run(ctx, s.redis, s.keys, now, q.node, q.want, q.have, q.flight, q.pledge, q.places,
		q.how.version, strconv.FormatFloat(q.limit.Rate, 'g', -1, 64), us, part, q.limit.Burst, q.limit.Concurrency, q.how.ramp.Milliseconds(),
		horizon.Microseconds(), settle.Microseconds(), gap.Microseconds(), s.life.Microseconds(), keep.Milliseconds(), most, q.begun, q.latest, flag(q.leave), flag(q.put),
		q.firsts, strconv.FormatFloat(q.bulk, 'g', -1, 64))
	if err != nil || q.leave {
		return answer{}, err
	}
	return parse(v)
}

func flag(set bool) string {
	if set {
		return "1"
	}
	return ""
}

func parse(v any) (answer, error) {
	list, _ := v.([]any)
	if len(list) == 1 {
		return answer{late: true}, nil
	}
	if len(list) != 17 {
		return answer{}, fault.New(fault.Internal, "ask for permits", "an answer of %d fields: something else uses the key", len(list))
	}
	num := func(i int) int64 { n, _ := list[i].(int64); return n }
	text, _ := list[12].(string)
	rate, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return answer{}, fault.New(fault.Internal, "ask for permits", "the rate %q is not a number", text)
	}
	return answer{
		empty: num(0) == 1, now: num(1), count: min(num(2), most), first: num(3), part: num(4), step: num(5), stepPart: num(6),
		slack: num(7), life: num(8), wait: time.Duration(num(9)) * time.Microsecond, allow: int(num(10)), version: num(11),
		limit: Limit{Rate: rate, Burst: int(num(13)), Concurrency: int(num(14))}.clamp(),
		begun: num(15), rest: time.Duration(num(16)) * time.Microsecond,
	}, nil
}
