package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wechat"
	"tidegate/proxy"
)

// TryPublish makes the stand-in a queue that can be used without waiting, as the
// real producer is: every test of the door goes the short way with it.
func (q *queue) TryPublish(r kafka.Record, done func(kafka.Record, error)) error {
	q.mu.Lock()
	busy := q.panics // let it panic where the handler is
	q.mu.Unlock()
	if busy {
		return errors.New("busy")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	go func() {
		defer cancel()
		done(q.Publish(ctx, r))
	}()
	return nil
}

// scripted is a queue whose short way does what the test says.
type scripted struct {
	*queue
	try atomic.Pointer[func(kafka.Record, func(kafka.Record, error)) error]
	n   atomic.Int32
}

func (s *scripted) TryPublish(r kafka.Record, done func(kafka.Record, error)) error {
	s.n.Add(1)
	if try := s.try.Load(); try != nil {
		return (*try)(r, done)
	}
	return s.queue.TryPublish(r, done)
}

func newScripted(t *testing.T, try func(kafka.Record, func(kafka.Record, error)) error, change ...func(*proxy.Config)) (*world, *scripted) {
	s := &scripted{}
	w := newWorldWith(t, wechat.ModeSafe, nil, func(q *queue) proxy.Publisher { s.queue = q; return s }, change...)
	if try != nil {
		s.try.Store(&try)
	}
	return w, s
}

func TestShortWayIsOnePublishAndOneMark(t *testing.T) {
	for _, mode := range []wechat.Mode{wechat.ModeSafe, wechat.ModePlain} {
		w := newWorld(t, mode, nil)
		for i := range 20 {
			requireAck(t, w.post(text(i, "hello")))
			requireAck(t, w.post(text(i, "hello")))
		}
		require.Len(t, w.q.callbacks(t), 20, "each second delivery is a duplicate")
	}
}

// A producer that has no room at this instant is asked again with patience.
func TestBusyProducerIsAskedAgain(t *testing.T) {
	w, s := newScripted(t, func(kafka.Record, func(kafka.Record, error)) error { return errAway })
	requireAck(t, w.post(text(1, "hello")))
	require.EqualValues(t, 1, s.n.Load())
	require.Len(t, w.q.callbacks(t), 1)
	requireAck(t, w.post(text(1, "hello")))
	require.Len(t, w.q.callbacks(t), 1)
}

// Without a spool a failure is a 503, and the claim is given back: WeChat's next
// delivery is worked.
func TestFailureOnTheShortWayGivesTheClaimBack(t *testing.T) {
	w, s := newScripted(t, func(r kafka.Record, done func(kafka.Record, error)) error {
		done(r, errAway)
		return nil
	})
	require.Equal(t, 503, w.post(text(1, "hello")).Code)
	require.Empty(t, w.q.callbacks(t))
	s.try.Store(nil)
	requireAck(t, w.post(text(1, "hello")))
	require.Len(t, w.q.callbacks(t), 1)
}

// With a spool a failure, or no result in time, leads to the disk, and whoever
// has something there follows it: the order of each user's acknowledgements is
// the order in the queue.
func TestShortWayLeadsToTheSpool(t *testing.T) {
	for name, try := range map[string]func(kafka.Record, func(kafka.Record, error)) error{
		"fails":     func(r kafka.Record, done func(kafka.Record, error)) error { done(r, errAway); return nil },
		"no result": func(kafka.Record, func(kafka.Record, error)) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			w, s := newScripted(t, try, withSpool(t.TempDir(), func(c *proxy.Config) { c.Spool.PublishTimeout = 150 * time.Millisecond }))
			w.q.set(errAway)
			requireAck(t, w.post(text(1, "a")))
			requireAck(t, w.post(text(2, "b")))
			require.EqualValues(t, 1, s.n.Load(), "the breaker is open, and the user is in the spool")
			require.Empty(t, w.q.callbacks(t))
			s.try.Store(nil)
			w.q.set(nil)
			w.waitFor(2)
			require.Equal(t, []string{"a", "b"}, contents(t, w))
		})
	}
}

// What WeChat would never get an answer to must not be waited for either: the
// result comes after the spool has taken the record, and harms nobody.
func TestResultAfterTheSpool(t *testing.T) {
	var late atomic.Pointer[func()]
	w, s := newScripted(t, func(r kafka.Record, done func(kafka.Record, error)) error {
		f := func() { done(r, nil) }
		late.Store(&f)
		return nil
	}, withSpool(t.TempDir(), func(c *proxy.Config) { c.Spool.PublishTimeout = 150 * time.Millisecond }))
	requireAck(t, w.post(text(1, "a")))
	(*late.Load())()
	s.try.Store(nil)
	w.waitFor(1)
}

// The client hangs up in the middle: what was begun is finished.
func TestClientHangsUpOnTheShortWay(t *testing.T) {
	var finish sync.WaitGroup
	gone := make(chan struct{})
	w, _ := newScripted(t, nil)
	w.q.before = func() { <-gone }
	ctx, cancel := context.WithCancel(t.Context())
	finish.Go(func() { w.send(w.request(text(1, "a"), openid).WithContext(ctx)) })
	cancel()
	close(gone)
	finish.Wait()
	require.Len(t, w.q.callbacks(t), 1)
}

// Many users and a queue that fails at random: nothing acknowledged is lost, and
// each user's callbacks stand in the order of their acknowledgements.
func TestShortWayKeepsEveryUsersOrder(t *testing.T) {
	var n atomic.Int64
	w, s := newScripted(t, nil, withSpool(t.TempDir()))
	try := func(r kafka.Record, done func(kafka.Record, error)) error {
		switch n.Add(1) % 17 {
		case 3:
			return errAway
		case 9:
			done(r, fault.New(fault.Unavailable, "publish", "a leader moved"))
			return nil
		}
		return s.queue.TryPublish(r, done)
	}
	s.try.Store(&try)
	const users, each = 20, 25
	var wg sync.WaitGroup
	for u := range users {
		wg.Go(func() {
			for i := range each {
				user := fmt.Sprintf("oUser%023d", u)
				var rec *httptest.ResponseRecorder
				if rec = w.send(w.request(textFrom(user, 1000*u+i, fmt.Sprint(i)), user)); rec.Code != 200 {
					t.Errorf("answer %d", rec.Code)
				}
			}
		})
	}
	wg.Wait()
	w.waitFor(users * each)
	next := map[string]int{}
	for _, c := range w.q.callbacks(t) {
		want := fmt.Sprint(next[c.OpenID])
		if strings.TrimSpace(c.Content) == want {
			next[c.OpenID]++
			continue
		}
		var i int
		_, err := fmt.Sscan(c.Content, &i)
		require.NoError(t, err)
		require.Less(t, i, next[c.OpenID], "user %s: %s came before %s", c.OpenID, c.Content, want)
	}
	for user, n := range next {
		require.Equal(t, each, n, user)
	}
}
