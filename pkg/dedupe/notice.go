package dedupe

import (
	"context"
	"strings"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
)

// Notice says something to a user at most once in a while: the first delivery
// that asks leaves its note, and it alone gets one back. given is true for it
// and for every other delivery of the same identity, which gets the first one's
// note: so a repeat of WeChat's is answered as the delivery before it was.
//
// note is a few characters without personal data. An error (fault.Unavailable or
// Internal) comes within one budget and means that nothing should be said.
func (s *Store) Notice(ctx context.Context, account, openid, identity, note string, every time.Duration) (said string, given bool, err error) {
	if every <= 0 || len(note) > 64 {
		return "", false, fault.New(fault.Internal, "notice", "every %v must be positive, and the note of %d characters short", every, len(note))
	}
	mine := digest(identity) + " "
	mark, err := s.set(ctx, redis.Setting{Key: noticeKey(account, openid), Value: mine + note, TTL: every, IfAbsent: true}, false)
	if err != nil {
		return "", false, err
	}
	if mark.Set {
		return note, true, nil
	}
	said, given = strings.CutPrefix(mark.Prev, mine)
	return said, given, nil
}

// Noticed is Notice for a delivery that may only hear again what an earlier one
// of its identity was told.
func (s *Store) Noticed(ctx context.Context, account, openid, identity string) (said string, given bool, err error) {
	err = s.ask(ctx, func(ctx context.Context) error {
		mark, found, err := s.redis.Get(ctx, noticeKey(account, openid))
		if found {
			said, given = strings.CutPrefix(mark, digest(identity)+" ")
		}
		return err
	})
	if err != nil || !given {
		return "", false, err
	}
	return said, true, nil
}

func noticeKey(account, openid string) string {
	return redis.Key("notice", digest(redis.Key(account, openid)))
}
