package dedupe

import (
	"context"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
)

// Repeat asks whether the user has done the same action within window before
// (pressed the same menu again, say). The mark holds the identity of the
// delivery that made it, so WeChat's own retry of that delivery is not a repeat.
//
// Call release together with Claim.Release, when the delivery could not be made
// durable: nothing was done for this press, so the user's next one must not be
// called a repeat of it. release is never nil and may be called twice.
//
// An error (always fault.Unavailable or Internal) comes with repeat = false:
// without Redis a repeat is worked, which costs less than refusing a user.
func (s *Store) Repeat(ctx context.Context, account, openid, action, identity string, window time.Duration) (repeat bool, release func(context.Context), err error) {
	nothing := func(context.Context) {}
	if window <= 0 {
		return false, nothing, fault.New(fault.Internal, "repeat", "window %v must be positive", window)
	}
	key := redis.Key("repeat", digest(redis.Key(account, openid, action)))
	mine := digest(identity)
	mark, err := s.set(ctx, redis.Setting{Key: key, Value: mine, TTL: window, IfAbsent: true}, false)
	switch {
	case err != nil:
		s.stats.repeats.WithLabelValues("unchecked").Inc()
		return false, nothing, err
	case !mark.Set && mark.Prev != mine:
		s.stats.repeats.WithLabelValues("repeat").Inc()
		return true, nothing, nil
	}
	s.stats.repeats.WithLabelValues("first").Inc()
	return false, func(ctx context.Context) {
		err := s.ask(ctx, func(ctx context.Context) error {
			_, err := s.redis.CompareAndDelete(ctx, key, mine)
			return err
		})
		s.stats.lost("repeat_release", err)
	}, nil
}
