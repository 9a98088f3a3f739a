//go:build chaos

package chaos

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
	"tidegate/test/chaos/herd"
	"tidegate/test/chaos/reader"
)

// repeats delivers each callback several times to different doors, some at
// once, some seconds apart, each with fresh crypto: the user sees one reply (G4;
// T1, T5). Once more with Redis killed in the middle and its data gone: what the
// claims have forgotten is caught behind them.
func repeats(t *testing.T, e *engines, n numbers) {
	for _, wipe := range []bool{false, true} {
		name := map[bool]string{false: "calm", true: "Redis wiped"}[wipe]
		t.Run(name, func(t *testing.T) { repeatsOnce(t, e, n, wipe) })
	}
}

func repeatsOnce(t *testing.T, e *engines, n numbers, wipe bool) {
	sim := newSim(t, n.repeats.acts)
	db, settings := databaseOf(t)
	w := newWorld(t, e, shape{doors: 3, broker: e.brokerOf(n), extra: apis(sim, settings)})
	w.role("robot", "robot0")
	w.role("sender", "sender0", "sender.node=sender0", "api.addr="+herd.FreeAddr(t))
	users, err := sim.Followers(accounts[0].AppID, 0)
	require.NoError(t, err)
	openWindows(t, sim, users)

	before, _ := sim.Journal().Len()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.deliverEach(users, n)
	}()
	if wipe {
		herd.Wait(t, "half of the deliveries", w.patience(2*time.Minute), func() bool { return w.drive.Delivered() > int64(n.repeats.acts*n.repeats.times/2) })
		require.Positive(t, w.waitForWork())
		w.e.redis.Kill()
		w.goOn(20)
		w.e.emptyRedis()
	}
	<-done
	w.drained()
	shown, _, err := reader.Replies(sim, before, func(string) string { return accounts[0].Name }, nil, w.log)
	require.NoError(t, err)
	allow := w.busy()
	allow.Replies = true
	v := w.verify(allow)
	require.Equal(t, n.repeats.acts, v.acked)
	require.Equal(t, n.repeats.acts, shown)
	how := "Redis stayed"
	if wipe {
		how = "Redis killed and wiped in the middle"
	}
	ci(t, "G4 %s, %s: %d callbacks x %d deliveries to 3 doors within %s, %s: the users saw %d replies; twice in the log %d", w.brokerName(), db.Driver, n.repeats.acts, n.repeats.times, n.repeats.apart, how, shown, v.repeated)
}

// deliverEach makes all deliveries, half of the callbacks' at the same moment.
func (w *world) deliverEach(users []string, n numbers) {
	var wg sync.WaitGroup
	defer wg.Wait()
	gap := time.Duration(float64(time.Second) / w.rate(200))
	begin := time.Now()
	for i := range n.repeats.acts {
		act := w.text(i, accounts[0].Name, users[i])
		first := w.dice.IntN(len(w.addrs))
		for k := range n.repeats.times {
			at := time.Duration(i) * gap
			if i%2 == 1 && k > 0 {
				at += time.Duration(w.dice.Float64() * float64(n.repeats.apart))
			}
			door := w.addrs[(first+k)%len(w.addrs)]
			wg.Go(func() {
				select {
				case <-time.After(time.Until(begin.Add(at))):
				case <-w.t.Context().Done():
					return
				}
				w.drive.DeliverTo(w.t.Context(), act, k+1, door)
			})
		}
	}
}

// drained waits until robot and sender have read all that there is.
func (w *world) drained() {
	w.t.Helper()
	w.settled()
	names := wire.Topics{Prefix: w.run}
	var queues []queue
	for _, a := range accounts { // what robots make of all is there before a sender is done
		queues = append(queues, queue{wire.RobotGroup(w.run+".robot", a.Name), names.Callbacks(a.Name)})
	}
	for _, a := range accounts {
		queues = append(queues, queue{names.SenderGroup(a.Name, wire.LaneReplies), names.Replies(a.Name)})
	}
	w.haveRead(queues...)
}

// queue is what a group reads of a topic.
type queue struct{ group, topic string }

// haveRead waits until the groups have committed all that is in their topics, one
// after the other.
func (w *world) haveRead(queues ...queue) {
	w.t.Helper()
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{w.broker.Addr}
	admin, err := kafka.NewAdmin(cfg)
	require.NoError(w.t, err)
	defer func() { _ = admin.Close() }()
	for _, q := range queues {
		herd.Wait(w.t, q.group+" to have read everything", w.patience(2*time.Minute), func() bool {
			ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
			defer cancel()
			rows, err := admin.Lag(ctx, q.group, []string{q.topic})
			if err != nil || len(rows) == 0 {
				return false
			}
			for _, r := range rows {
				if r.Committed < r.End && r.End > 0 {
					return false
				}
			}
			return true
		})
	}
}

// newSim is a WeChat for the way out. Its callbacks go nowhere: the driver
// makes them. others are followers of the second account.
func newSim(t *testing.T, followers int, others ...int) *wechatsim.Sim {
	t.Helper()
	return newSimWith(t, nil, followers, others...)
}

// newSimWith shows every request to a hook, before it is answered.
func newSimWith(t *testing.T, hook func(wechatsim.Entry), followers int, others ...int) *wechatsim.Sim {
	t.Helper()
	a := accounts[0]
	cfg := wechatsim.DefaultConfig()
	nowhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("success")) }))
	t.Cleanup(nowhere.Close)
	cfg.Accounts = []wechatsim.Account{
		{AppID: a.AppID, Secret: appSecret, GhID: a.GhID, Token: a.Token, EncodingAESKey: a.EncodingAESKey, Mode: wechatsim.ModeSafe, Followers: followers, CallbackURL: nowhere.URL,
			Templates: []wechatsim.Template{{ID: noticeTemplate, Title: "notice", Content: "{{thing1.DATA}}"}}},
		{AppID: accounts[1].AppID, Secret: appSecret, GhID: accounts[1].GhID, Token: a.Token, Mode: wechatsim.ModePlain},
	}
	for _, n := range others {
		cfg.Accounts[1].Followers, cfg.Accounts[1].CallbackURL = n, nowhere.URL
		followers += n
	}
	cfg.Limits.Message.Count = 100
	cfg.Journal.Entries = max(20*followers+1000, 200_000)
	sim, err := wechatsim.New(cfg, zap.NewNop(), wechatsim.WithArrivalHook(hook))
	require.NoError(t, err)
	require.NoError(t, sim.Start())
	t.Cleanup(func() { _ = sim.Close() })
	return sim
}

// openWindows lets each user write once, which allows answers to him.
func openWindows(t *testing.T, sim *wechatsim.Sim, users []string) {
	t.Helper()
	openWindowsOf(t, sim, accounts[0].AppID, users)
}

func openWindowsOf(t *testing.T, sim *wechatsim.Sim, appID string, users []string) {
	t.Helper()
	slots := make(chan struct{}, 32)
	var wg sync.WaitGroup
	for _, u := range users {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			d, err := sim.Act(t.Context(), appID, wechatsim.Stimulus{OpenID: u, Type: "text", Fields: []wechatsim.Field{{Name: "Content", Text: "hello"}}})
			if err != nil || !d.Acked {
				t.Errorf("open the window of a user: %v %+v", err, d)
			}
		})
	}
	wg.Wait()
}
