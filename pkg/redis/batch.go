package redis

import (
	"context"
	"errors"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"tidegate/pkg/fault"
)

// Setting is one SET of a batch: what is asked, and what became of it.
type Setting struct {
	Key, Value string
	TTL        time.Duration // must be positive: what a batch sets ends by itself
	// IfAbsent makes it the claim of SetNXGet; otherwise Value replaces whatever
	// is there.
	IfAbsent bool

	// Prev is the value that was in the way of a claim; Set reports that Value
	// was written. Both count only while Err is nil.
	Prev string
	Set  bool
	Err  error
}

// errNoAnswer stands for a command that the driver brought back without a result.
var errNoAnswer = errors.New("the pipeline ended without an answer to this command")

// SetAll runs the settings in one round trip (in a cluster one for each node, at
// the same time) and fills in each one's result; they succeed and fail one by
// one, and in no promised order across keys. It sends every setting at most
// once, except that a cluster client may repeat what it lost with a
// connection: a claim by its own token and a plain SET bear that.
func (c *Client) SetAll(ctx context.Context, all []*Setting) {
	pipe := c.rdb.Pipeline()
	cmds := make([]*goredis.Cmd, len(all))
	asked := make([]asking, len(all)) // one block of memory instead of five for each
	for i, s := range all {
		if s.TTL <= 0 {
			s.Err = fault.New(fault.Internal, "redis set", "ttl %v: a mark must end by itself", s.TTL)
			continue
		}
		cmds[i] = goredis.NewCmd(ctx, asked[i].set(c.key(s.Key), s)...)
		_ = pipe.Process(ctx, once{cmds[i]}) // only queues
	}
	if pipe.Len() == 0 {
		return
	}
	start := time.Now()
	_, failed := pipe.Exec(ctx)
	c.stats.seconds.WithLabelValues("pipeline").Observe(time.Since(start).Seconds())
	for i, cmd := range cmds {
		if cmd != nil {
			c.settle(all[i], cmd, failed)
		}
	}
}

// asking holds the words of one command. The driver takes pointers, for which
// nothing is copied to the heap.
type asking struct {
	key   string
	ttl   int64 // milliseconds
	words [7]any
}

func (a *asking) set(key string, s *Setting) []any {
	a.key, a.ttl = key, millis(s.TTL)
	a.words = [7]any{"set", &a.key, &s.Value, "px", &a.ttl, "nx", "get"}
	if s.IfAbsent {
		return a.words[:]
	}
	return a.words[:5]
}

// settle takes one result over. An error may sit on the command, on the pipeline
// or on both; a command with neither result nor error was not answered.
func (c *Client) settle(s *Setting, cmd *goredis.Cmd, failed error) {
	v, err := cmd.Result()
	if err == nil && v == nil {
		if err = failed; err == nil || isNil(err) {
			err = errNoAnswer
		}
	}
	switch {
	case isNil(err) && s.IfAbsent:
		s.Prev, s.Set, s.Err = "", true, nil
	case err != nil:
		c.stats.failed.WithLabelValues(kindOf(err).String()).Inc()
		s.Prev, s.Set, s.Err = "", false, c.fail("set", err)
	case s.IfAbsent:
		s.Prev, _ = v.(string)
		s.Set, s.Err = false, nil
	default:
		s.Prev, s.Set, s.Err = "", true, nil
	}
}
