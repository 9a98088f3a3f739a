package redis

import (
	"context"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"tidegate/pkg/fault"
)

// Call is one run of a script in a batch: what is asked, and what became of it.
type Call struct {
	Keys []string
	Args []any // pointers to strings and int64 too, for which nothing is copied

	// Result is as of Run. It counts only while Err is nil.
	Result any
	Err    error
}

// RunAll runs the script once for each call, in one round trip (in a cluster one
// for each node). Calls succeed and fail one by one, those of one slot in their
// order. A server that does not know the script is sent its text, call by call.
func (s *Script) RunAll(ctx context.Context, c *Client, calls []*Call) {
	pipe := c.rdb.Pipeline()
	cmds := make([]*goredis.Cmd, len(calls))
	for i, call := range calls {
		words := append(make([]any, 0, 3+len(call.Keys)+len(call.Args)), "evalsha", &s.sha)
		words, err := s.tail(words, c, call.Keys, call.Args)
		if err != nil {
			call.Err = err
			continue
		}
		cmds[i] = goredis.NewCmd(ctx, words...)
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
			s.settle(ctx, c, calls[i], cmd, failed)
		}
	}
}

func (s *Script) settle(ctx context.Context, c *Client, call *Call, cmd *goredis.Cmd, failed error) {
	v, err := cmd.Result()
	switch {
	case err != nil && isNoScript(err):
		call.Result, call.Err = s.Run(ctx, c, call.Keys, call.Args...)
	case isNil(err):
		call.Result, call.Err = nil, nil
	case err != nil:
		c.stats.failed.WithLabelValues(kindOf(err).String()).Inc()
		call.Result, call.Err = nil, c.fail("script", err)
	case v == nil && failed != nil:
		call.Result, call.Err = nil, c.fail("script", failed)
	default:
		call.Result, call.Err = v, nil
	}
}

// tail appends what follows the script's name: keys and arguments.
func (s *Script) tail(tail []any, c *Client, keys []string, args []any) ([]any, error) {
	tail = append(tail, len(keys))
	for _, k := range keys {
		if tagOf(k) != tagOf(keys[0]) {
			return nil, fault.New(fault.Internal, "redis script", "keys %q and %q have different hash tags: a cluster would refuse them together", keys[0], k)
		}
		tail = append(tail, c.key(k))
	}
	return append(tail, args...), nil
}
