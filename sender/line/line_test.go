package line_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"tidegate/pkg/alarm"
	"tidegate/pkg/wechat"
	"tidegate/sender/line"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gate is a way to WeChat that can be cut and mended; its address stays.
type gate struct {
	t       *testing.T
	addr    string
	calls   atomic.Int64
	handler http.HandlerFunc
	mu      sync.Mutex
	server  *http.Server
	over    sync.WaitGroup
}

func newGate(t *testing.T, handler http.HandlerFunc) *gate {
	g := &gate{t: t, addr: "127.0.0.1:0", handler: handler}
	if handler == nil {
		g.handler = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"errcode":0}`)) }
	}
	g.mend()
	t.Cleanup(func() { g.cut(); g.over.Wait() })
	return g
}

func (g *gate) url() string { return "http://" + g.addr }

func (g *gate) mend() {
	l, err := net.Listen("tcp", g.addr)
	require.NoError(g.t, err)
	g.addr = l.Addr().String()
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // read to its end, so that the context tells when the caller is gone
		if r.Method == http.MethodPost {
			g.calls.Add(1)
		}
		g.handler(w, r)
	})}
	g.mu.Lock()
	g.server = s
	g.mu.Unlock()
	g.over.Go(func() { _ = s.Serve(l) })
}

// cut ends the listener and then every connection, whatever is on it.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.server != nil {
		_ = g.server.Close()
		g.server = nil
	}
}

type world struct {
	fleet  *line.Fleet
	client *wechat.Client
	board  *alarm.Board
	ahead  atomic.Int64
}

func quick() line.Health {
	return line.Health{ConnectTimeout: time.Second, ProbeEvery: 100 * time.Millisecond, Hold: time.Minute}
}

func newWorld(t *testing.T, lines ...line.Config) *world {
	t.Helper()
	w := &world{board: alarm.NewBoard(zap.NewNop(), nil, nil)}
	var err error
	w.fleet, err = line.New(lines, quick(), line.Deps{
		Log: zap.NewNop(), Reg: prometheus.NewRegistry(), Alarms: w.board,
		Now: func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) },
	})
	require.NoError(t, err)
	require.NoError(t, w.fleet.SetAccounts(map[string][]string{"shop": nil, "bank": {lines[len(lines)-1].Name}}))
	w.client = wechat.NewClientBy(w.fleet, 3*time.Second)
	t.Cleanup(w.client.CloseIdle)
	return w
}

// run looks at the lines until the test ends.
func (w *world) run(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.fleet.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// send makes a call and gives the line that it went by.
func (w *world) send(account string) (string, error) {
	c := &wechat.Call{Account: account}
	err := w.client.CustomSend(wechat.WithCall(context.Background(), c), "token", wechat.CustomMessage{ToUser: "oOPENID0000000000000000000001", Text: &wechat.CustomText{Content: "hi"}})
	return c.Line, err
}

func (w *world) state(name string) line.State {
	for _, v := range w.fleet.Lines() {
		if v.Name == name {
			return v.State
		}
	}
	return ""
}

// M3: the next line is taken at once, and the first one again when it has
// answered for the hold.
func TestMainIsCutAndComesBack(t *testing.T) {
	main, spare := newGate(t, nil), newGate(t, nil)
	w := newWorld(t, line.Config{Name: "main", BaseURL: main.url()}, line.Config{Name: "spare", BaseURL: spare.url()})
	by, err := w.send("shop")
	require.NoError(t, err)
	require.Equal(t, "main", by)
	main.cut()
	w.client.CloseIdle() // a connection that is broken while it is used is another test
	by, err = w.send("shop")
	require.NoError(t, err, "a line that cannot be reached costs no message")
	require.Equal(t, "spare", by)
	require.Equal(t, line.Down, w.state("main"))
	require.Len(t, w.board.Firing(), 1)
	require.Equal(t, "line_down", w.board.Firing()[0].Name)

	main.mend()
	w.run(t)
	require.Eventually(t, func() bool { return w.state("main") == line.Recovering }, 10*time.Second, time.Millisecond)
	by, err = w.send("shop")
	require.NoError(t, err)
	require.Equal(t, "spare", by, "it is not followed before the hold is over")
	w.ahead.Store(int64(2 * time.Minute))
	require.Eventually(t, func() bool { return w.state("main") == line.Up }, 10*time.Second, time.Millisecond)
	by, err = w.send("shop")
	require.NoError(t, err)
	require.Equal(t, "main", by)
	require.Empty(t, w.board.Firing())
}

// What may have arrived is not sent again, and the line is looked at: if it is
// dead, the next call does not meet it.
func TestLostRequestHasTheLineLookedAt(t *testing.T) {
	var main *gate
	main = newGate(t, func(rw http.ResponseWriter, r *http.Request) {
		go main.cut() // with the request on it
		<-r.Context().Done()
	})
	spare := newGate(t, nil)
	w := newWorld(t, line.Config{Name: "main", BaseURL: main.url()}, line.Config{Name: "spare", BaseURL: spare.url()})
	w.run(t)
	by, err := w.send("shop")
	require.Equal(t, "main", by)
	var e *wechat.APIError
	require.ErrorAs(t, err, &e)
	require.True(t, e.Ambiguous)
	require.Zero(t, spare.calls.Load(), "it may have arrived: nobody else gets it")
	require.Eventually(t, func() bool { return w.state("main") == line.Down }, 10*time.Second, time.Millisecond)
	by, err = w.send("shop")
	require.NoError(t, err)
	require.Equal(t, "spare", by)
}

// A slow WeChat is no dead line: nobody answers, and the line stays.
func TestSlowWeChatIsNoDeadLine(t *testing.T) {
	release := make(chan struct{})
	slow := newGate(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	spare := newGate(t, nil)
	w := newWorld(t, line.Config{Name: "main", BaseURL: slow.url()}, line.Config{Name: "spare", BaseURL: spare.url()})
	w.client = wechat.NewClientBy(w.fleet, 100*time.Millisecond)
	t.Cleanup(w.client.CloseIdle)
	w.run(t)
	for range 3 {
		by, err := w.send("shop")
		require.Error(t, err)
		require.Equal(t, "main", by)
	}
	require.Equal(t, line.Up, w.state("main"))
	require.Zero(t, spare.calls.Load())
}

// The switch by hand: for one account, for all, by a line that is not in the
// account's order, and never into a hole.
func TestChoiceByHand(t *testing.T) {
	main, spare := newGate(t, nil), newGate(t, nil)
	w := newWorld(t, line.Config{Name: "main", BaseURL: main.url()}, line.Config{Name: "spare", BaseURL: spare.url()})
	by := func(account string) string {
		name, err := w.send(account)
		require.NoError(t, err)
		return name
	}
	require.Equal(t, "main", by("shop"))
	require.Equal(t, "spare", by("bank"), "an account may have an order of its own")
	w.fleet.Choose(map[string]line.Choice{"shop": {Line: "spare", By: "duty"}})
	require.Equal(t, "spare", by("shop"))
	w.fleet.Choose(map[string]line.Choice{"": {Line: "main"}, "shop": {Line: "spare"}})
	require.Equal(t, "spare", by("shop"))
	require.Equal(t, "main", by("bank"), "also a line that is not in its order")
	main.cut()
	w.client.CloseIdle()
	require.Equal(t, "spare", by("bank"))
	w.fleet.Choose(map[string]line.Choice{"": {Line: "of another node"}})
	require.Equal(t, "spare", by("shop"))
	views := w.fleet.Accounts()
	require.Len(t, views, 2)
	require.Equal(t, []string{"spare", "main"}, views[1].Order)
	require.Equal(t, "spare", views[1].Use)
	require.Empty(t, views[1].Chosen)
}

// Nothing is lost and one alarm is raised when there is no way at all.
func TestNoLineAtAll(t *testing.T) {
	main, spare := newGate(t, nil), newGate(t, nil)
	w := newWorld(t, line.Config{Name: "main", BaseURL: main.url()}, line.Config{Name: "spare", BaseURL: spare.url()})
	main.cut()
	spare.cut()
	_, err := w.send("shop")
	var e *wechat.APIError
	require.ErrorAs(t, err, &e)
	require.True(t, e.NotSent)
	names := map[string]bool{}
	for _, a := range w.board.Firing() {
		names[a.Name] = true
	}
	require.Equal(t, map[string]bool{"line_down": true, "no_line": true}, names)
	spare.mend()
	by, err := w.send("shop")
	require.NoError(t, err, "lines that are down are tried when there is nothing else")
	require.Equal(t, "spare", by)
	for _, a := range w.board.Firing() {
		require.NotEqual(t, "no_line", a.Name)
	}
}

func TestWrongLines(t *testing.T) {
	good := line.Config{Name: "main", BaseURL: "https://api.weixin.qq.com"}
	for name, c := range map[string]struct {
		lines []line.Config
		says  string
	}{
		"none":      {nil, "name 1 to 16"},
		"no name":   {[]line.Config{{BaseURL: good.BaseURL}}, "name: use"},
		"twice":     {[]line.Config{good, good}, "twice"},
		"base":      {[]line.Config{{Name: "a", BaseURL: "https://h/x"}}, "base_url"},
		"proxy":     {[]line.Config{{Name: "a", BaseURL: good.BaseURL, Proxy: "gopher://u:CANARY@h"}}, "proxy: use http://"},
		"odd proxy": {[]line.Config{{Name: "a", BaseURL: good.BaseURL, Proxy: "http://u:CANARY@h:a:b"}}, "proxy: use http://"},
	} {
		t.Run(name, func(t *testing.T) {
			err := line.Validate(c.lines)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "CANARY")
		})
	}
	require.ErrorContains(t, line.CheckOrder([]line.Config{good}, []string{"dmz"}), `no line "dmz"`)
	require.ErrorContains(t, line.CheckOrder([]line.Config{good}, []string{"main", "main"}), "twice")
	of := line.Of([]string{"https://api.weixin.qq.com", "https://api2.weixin.qq.com", "http://127.0.0.1:1", "http://127.0.0.1:2"})
	require.NoError(t, line.Validate(of))
	require.Equal(t, "api2.weixin.qq.com", of[1].Name)
}
