package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"tidegate/pkg/fault"
)

// awayPrefixes are the answers of a server that is there but cannot serve:
// for us the same as a server that is not there.
var awayPrefixes = []string{
	"MISCONF",     // the disk is full or a save failed: all writes are refused
	"OOM",         // maxmemory reached under noeviction
	"READONLY",    // we talk to a replica; a failover is under way
	"LOADING",     // it reads its data after a start
	"MASTERDOWN",  // a replica without its master
	"NOREPLICAS",  // min-replicas-to-write not met
	"CLUSTERDOWN", // slots without an owner
	"TRYAGAIN",    // slots on the move
	"MOVED", "ASK",
	"NOSCRIPT", // after our own second try with the text: a restart in between
	"BUSY ",    // somebody's script does not end
	"ERR max number of clients",
	"UNKILLABLE",
}

// deniedPrefixes are refusals that only an operator can end.
var deniedPrefixes = []string{"NOAUTH", "WRONGPASS", "NOPERM", "DENIED", "ERR invalid password", "ERR AUTH"}

// fail gives err its kind. Everything that is not a plain answer of Redis
// (refused, reset, timed out, pool exhausted, closed) means "away".
func (c *Client) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return fault.Wrap(kindOf(err), "redis "+op, explain(err))
}

func kindOf(err error) fault.Kind {
	var answer goredis.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.Unavailable
	case !errors.As(err, &answer):
		return fault.Unavailable
	case hasPrefix(answer.Error(), deniedPrefixes):
		return fault.Denied
	case hasPrefix(answer.Error(), awayPrefixes):
		return fault.Unavailable
	}
	return fault.Internal
}

// explain adds what to do to answers whose text does not say it.
func explain(err error) error {
	var answer goredis.Error
	if !errors.As(err, &answer) {
		return err
	}
	switch text := answer.Error(); {
	case strings.HasPrefix(text, "NOAUTH"):
		return fmt.Errorf("%w (set redis.password, and redis.username for an ACL user)", err)
	case strings.HasPrefix(text, "WRONGPASS"), strings.HasPrefix(text, "ERR invalid password"):
		return fmt.Errorf("%w (check redis.username and redis.password)", err)
	case strings.HasPrefix(text, "NOPERM"):
		return fmt.Errorf("%w (give the ACL user this command, and keys and channels with redis.prefix)", err)
	case strings.HasPrefix(text, "MISCONF"):
		return fmt.Errorf("%w (free disk space on the Redis server)", err)
	case strings.HasPrefix(text, "OOM"):
		return fmt.Errorf("%w (raise maxmemory; do not switch to an evicting policy)", err)
	case strings.HasPrefix(text, "CROSSSLOT"):
		return fmt.Errorf("%w (all keys of one script need the same hash tag)", err)
	}
	return err
}

// hasPrefix also looks behind the text that a script puts around an error of a
// command it called, on servers that add some.
func hasPrefix(text string, prefixes []string) bool {
	text = strings.TrimPrefix(text, "ERR Error running script: ")
	for _, p := range prefixes {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	return false
}

// isNil reports "no such key", which is an answer and not a failure.
func isNil(err error) bool { return errors.Is(err, goredis.Nil) }
