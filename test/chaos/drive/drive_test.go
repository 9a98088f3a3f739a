package drive_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wechat"
	"tidegate/test/chaos/check"
	"tidegate/test/chaos/drive"
	"tidegate/test/chaos/history"
)

var safe = drive.Account{Name: "card", AppID: "wx9f3c7b21d08e4a56", GhID: "gh_1", Token: "token", EncodingAESKey: "Qm7rT0xkV3sZ9bYh2LdNcP5wEaGfJu8oXiKyRzMt4Bq"}

// door is a server that answers what a test says and keeps what it got.
type door struct {
	drive.Door
	mu     sync.Mutex
	got    []string // query and body
	answer func(n int, w http.ResponseWriter)
}

func newDoor(t *testing.T, name string, answer func(n int, w http.ResponseWriter)) *door {
	t.Helper()
	d := &door{answer: answer}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		d.mu.Lock()
		d.got = append(d.got, r.URL.RawQuery+" "+string(b))
		n := len(d.got)
		d.mu.Unlock()
		d.answer(n, w)
	}))
	t.Cleanup(s.Close)
	d.Door = drive.Door{Name: name, Addr: s.Listener.Addr().String()}
	return d
}

func (d *door) taken() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.got...)
}

func success(_ int, w http.ResponseWriter) { _, _ = io.WriteString(w, "success") }

func act(n int) drive.Act {
	return drive.Act{Token: drive.Mark("run", n), Account: "card", OpenID: fmt.Sprint("o", n), MsgID: uint64(n), CreateTime: 1}
}

// newDriver gives a driver, and what its history says after it ended.
func newDriver(t *testing.T, o drive.Options) (*drive.Driver, func() []history.Event) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "history")
	log, err := history.Create(file, time.Now())
	require.NoError(t, err)
	o.History, o.Accounts = log, []drive.Account{safe}
	d, err := drive.New(o)
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d, func() []history.Event {
		require.NoError(t, log.Close())
		events, err := history.Read(file)
		require.NoError(t, err)
		require.Zero(t, check.Check(events, check.Options{Refusals: true, Silence: true}).Found["broken history"])
		return events
	}
}

// A bad answer brings three repeats at once, each sealed anew around the same
// document; the first good one ends them.
func TestRepeatsAfterBadAnswers(t *testing.T) {
	one := newDoor(t, "one", func(n int, w http.ResponseWriter) {
		if n < 4 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		success(n, w)
	})
	d, events := newDriver(t, drive.Options{Doors: []drive.Door{one.Door}})
	require.True(t, d.Send(t.Context(), act(1), time.Time{}))
	got := one.taken()
	require.Len(t, got, 4)
	key, err := wechat.DecodeAESKey(safe.EncodingAESKey)
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, g := range got {
		require.False(t, seen[g], "a delivery is never a copy")
		seen[g] = true
		_, sealed, _ := strings.Cut(g, "<Encrypt><![CDATA[")
		sealed, _, _ = strings.Cut(sealed, "]]>")
		plain, err := wechat.Decrypt(key, safe.AppID, sealed)
		require.NoError(t, err)
		require.Equal(t, "#run.1#", drive.FindMark(plain))
	}
	classes := map[string]int{}
	for _, e := range events() {
		classes[string(e.Kind)+" "+e.Answer]++
	}
	require.Equal(t, map[string]int{"invoke ": 4, "fail refused": 3, "ok success": 1}, classes)
}

// Silence costs WeChat's patience each time; after the last delivery the
// callback is given up.
func TestSilence(t *testing.T) {
	quiet := make(chan struct{})
	one := newDoor(t, "one", func(int, http.ResponseWriter) { <-quiet })
	defer close(quiet)
	d, events := newDriver(t, drive.Options{Doors: []drive.Door{one.Door}, Deliveries: 3, Timeout: 30 * time.Millisecond})
	began := time.Now()
	require.False(t, d.Send(t.Context(), act(1), time.Time{}))
	require.GreaterOrEqual(t, time.Since(began), 90*time.Millisecond)
	unknown := 0
	for _, e := range events() {
		if e.Kind == history.Unknown {
			unknown++
			require.Equal(t, history.None, e.Answer)
		}
	}
	require.Equal(t, 3, unknown)
}

// A door that takes no connection is passed over, unless a user is pinned to
// it.
func TestNextDoor(t *testing.T) {
	one := newDoor(t, "one", success)
	gone := drive.Door{Name: "gone", Addr: "127.0.0.1:1"}
	d, _ := newDriver(t, drive.Options{Doors: []drive.Door{one.Door, gone}, Deliveries: 1})
	for n := range 50 {
		require.True(t, d.Send(t.Context(), act(n), time.Time{}))
	}
	require.Positive(t, d.RefusedConnections())
	d.Route(drive.Pinned)
	acked := 0
	for n := range 50 {
		if d.Send(t.Context(), act(100+n), time.Time{}) {
			acked++
		}
	}
	require.Greater(t, acked, 5)
	require.Less(t, acked, 45)
}

// Only G2's answers are acks.
func TestClasses(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		class  string
	}{
		"success":    {func(w http.ResponseWriter) { success(0, w) }, history.Success},
		"empty":      {func(http.ResponseWriter) {}, history.Empty},
		"503":        {func(w http.ResponseWriter) { w.WriteHeader(503) }, history.Refused},
		"201":        {func(w http.ResponseWriter) { w.WriteHeader(201); success(0, w) }, history.Malformed},
		"quoted":     {func(w http.ResponseWriter) { _, _ = io.WriteString(w, `"success"`) }, history.Malformed},
		"line feed":  {func(w http.ResponseWriter) { _, _ = io.WriteString(w, "success\n") }, history.Malformed},
		"plain XML":  {func(w http.ResponseWriter) { _, _ = io.WriteString(w, passive("o1")) }, history.Malformed},
		"passive":    {func(w http.ResponseWriter) { _, _ = io.WriteString(w, sealed(passive("o1"), "token")) }, history.Passive},
		"to another": {func(w http.ResponseWriter) { _, _ = io.WriteString(w, sealed(passive("o2"), "token")) }, history.Malformed},
		"unsigned":   {func(w http.ResponseWriter) { _, _ = io.WriteString(w, sealed(passive("o1"), "other")) }, history.Malformed},
	} {
		t.Run(name, func(t *testing.T) {
			one := newDoor(t, "one", func(_ int, w http.ResponseWriter) { c.answer(w) })
			d, _ := newDriver(t, drive.Options{Doors: []drive.Door{one.Door}})
			ans := d.Deliver(t.Context(), act(1), 1, time.Time{})
			require.Equal(t, c.class, ans.Class)
			require.Equal(t, c.class == history.Success || c.class == history.Empty || c.class == history.Passive, ans.Acked)
		})
	}
}

func passive(to string) string {
	return "<xml><ToUserName><![CDATA[" + to + "]]></ToUserName><FromUserName><![CDATA[gh_1]]></FromUserName><CreateTime>1</CreateTime><MsgType><![CDATA[text]]></MsgType><Content><![CDATA[hi]]></Content></xml>"
}

func sealed(plain, token string) string {
	key, err := wechat.DecodeAESKey(safe.EncodingAESKey)
	if err != nil {
		panic(err)
	}
	text, err := wechat.Encrypt(key, safe.AppID, []byte("0123456789abcdef"), []byte(plain))
	if err != nil {
		panic(err)
	}
	return "<xml><Encrypt>" + text + "</Encrypt><MsgSignature>" + wechat.Signature(token, "1", "2", text) + "</MsgSignature><TimeStamp>1</TimeStamp><Nonce>2</Nonce></xml>"
}

// The open loop does not wait for answers, and the time of an answer counts
// from the planned moment.
func TestOpenLoop(t *testing.T) {
	hold := make(chan struct{})
	one := newDoor(t, "one", func(n int, w http.ResponseWriter) {
		if n <= 20 {
			<-hold
		}
		success(n, w)
	})
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release) // before the door closes, which waits for its handlers
	d, events := newDriver(t, drive.Options{Doors: []drive.Door{one.Door}, MaxInFlight: 200})
	sum := make(chan drive.Sum, 1)
	go func() { sum <- d.Open(t.Context(), drive.Load{Rate: 1000, Count: 100, Even: true, Act: act}) }()
	require.Eventually(t, func() bool { return len(one.taken()) == 100 }, 10*time.Second, time.Millisecond, "20 that wait hold up nobody")
	release()
	s := <-sum
	require.Equal(t, drive.Sum{Offered: 100, Acked: 100}, s)
	require.Zero(t, d.InFlight())
	require.Len(t, events(), 200)
	p := d.Phases()
	require.Len(t, p, 1)
	require.EqualValues(t, 100, p[0].Acked)
	require.Greater(t, p[0].Quantile(1), 50*time.Millisecond)
	require.LessOrEqual(t, p[0].Quantile(0.5), p[0].Quantile(0.99))
}

// What cannot be offered is counted, not delayed.
func TestSkipped(t *testing.T) {
	hold := make(chan struct{})
	one := newDoor(t, "one", func(n int, w http.ResponseWriter) { <-hold; success(n, w) })
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	d, _ := newDriver(t, drive.Options{Doors: []drive.Door{one.Door}, MaxInFlight: 5})
	sum := make(chan drive.Sum, 1)
	go func() { sum <- d.Open(t.Context(), drive.Load{Rate: 10_000, Count: 50, Act: act}) }()
	require.Eventually(t, func() bool { return len(one.taken()) == 5 }, 10*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // the plan is over
	defer cancel()
	<-ctx.Done()
	release()
	s := <-sum
	require.EqualValues(t, 50, s.Offered+s.Skipped)
	require.Positive(t, s.Skipped)
}

// A user of the closed loop sends again only after the ack.
func TestClosedLoop(t *testing.T) {
	one := newDoor(t, "one", success)
	d, events := newDriver(t, drive.Options{Doors: []drive.Door{one.Door}})
	const users, each = 5, 6
	acked := d.Closed(t.Context(), drive.Users{Count: users, Each: each, Act: func(u, _, n int) drive.Act {
		a := act(n)
		a.OpenID = fmt.Sprint("u", u)
		return a
	}})
	require.EqualValues(t, users*each, acked)
	open := map[string]int{}
	for _, e := range events() {
		if e.Kind == history.Invoke {
			open[e.OpenID]++
			require.Equal(t, 1, open[e.OpenID], "one at a time")
		} else {
			open[e.OpenID]--
		}
	}
}
