package wechat

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// given are lines whose order somebody else decides; it remembers what it hears.
type given struct {
	lines []*Line
	asked []string
	heard []Came
	why   []error
}

func (g *given) Order(account string) []*Line {
	g.asked = append(g.asked, account)
	return g.lines
}

func (g *given) Told(_ *Line, came Came, why error) {
	g.heard, g.why = append(g.heard, came), append(g.why, why)
}

func (g *given) CloseIdle() {
	for _, l := range g.lines {
		l.CloseIdle()
	}
}

func by(t *testing.T, name, base, proxy string, secrets ...string) *Line {
	t.Helper()
	var via *url.URL
	if proxy != "" {
		u, err := url.Parse(proxy)
		require.NoError(t, err)
		via = u
	}
	l, err := NewLine(name, base, NewTransport(via, time.Second), secrets...)
	require.NoError(t, err)
	t.Cleanup(l.CloseIdle)
	return l
}

// A call goes by the first line that can be reached, says which it was, and no
// further once any of it may have arrived (D7).
func TestCallGoesByLines(t *testing.T) {
	good := newFakeHost(t, 200, `{"errcode":0}`)
	deaf := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(deaf.Close)
	away := refusedURL(t)

	g := &given{lines: []*Line{by(t, "away", away, ""), by(t, "proxy away", good.URL, away), by(t, "good", good.URL, "")}}
	call := &Call{Account: "shop"}
	require.Nil(t, sendText(WithCall(context.Background(), call), NewClientBy(g, time.Second)))
	require.Equal(t, "good", call.Line)
	require.Equal(t, []string{"shop"}, g.asked)
	require.Equal(t, []Came{Unreached, Unreached, Answered}, g.heard)
	require.Len(t, good.seen(), 1)

	g = &given{lines: []*Line{by(t, "deaf", deaf.URL, ""), by(t, "good", good.URL, "")}}
	call = &Call{}
	e := sendText(WithCall(context.Background(), call), NewClientBy(g, time.Second))
	require.NotNil(t, e)
	require.True(t, e.Ambiguous, "it may have arrived: it must not go again by itself")
	require.Equal(t, "deaf", call.Line)
	require.Equal(t, []Came{Lost}, g.heard)
	require.Len(t, good.seen(), 1)
}

// A line may lead through an HTTP proxy; what opens the proxy is in no error.
func TestLineThroughAProxy(t *testing.T) {
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	auth := make(chan string, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth <- r.Method + " " + r.Header.Get("Proxy-Authorization")
		http.Error(w, "no", http.StatusProxyAuthRequired)
	}))
	t.Cleanup(proxy.Close)
	u, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	u.User = url.UserPassword("gate", canarySecret)
	g := &given{lines: []*Line{by(t, "proxy", secure.URL, u.String(), canarySecret)}}
	e := sendText(context.Background(), NewClientBy(g, time.Second))
	require.NotNil(t, e)
	require.True(t, e.NotSent, "a proxy that does not connect has sent nothing on")
	require.Equal(t, []Came{Unreached}, g.heard)
	require.Contains(t, <-auth, "CONNECT Basic ")
	requireNoCanary(t, e)
}

// Reach tells a way that is cut from one on which nobody answers.
func TestReach(t *testing.T) {
	good := newFakeHost(t, 404, "")
	reached, err := by(t, "good", good.URL, "").Reach(context.Background())
	require.True(t, reached)
	require.NoError(t, err)
	reached, err = by(t, "away", refusedURL(t), "").Reach(context.Background())
	require.False(t, reached)
	require.ErrorContains(t, err, "connection refused")
	release := make(chan struct{})
	mute := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(mute.Close)
	t.Cleanup(func() { close(release) })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	reached, err = by(t, "mute", mute.URL, "").Reach(ctx)
	require.True(t, reached, "WeChat is slow, and the line is there")
	require.Error(t, err)
}

// S51: WeChat's prose may quote what we sent; it goes into receipts.
func TestProseWithoutSecrets(t *testing.T) {
	host := newFakeHost(t, 200, `{"errcode":47003,"errmsg":"argument invalid: access_token=`+canaryToken+`"}`)
	e := sendText(context.Background(), newTestClient(t, Options{BaseURLs: []string{host.URL}}))
	require.NotNil(t, e)
	require.Contains(t, e.Msg, "[redacted]")
	require.NotContains(t, e.Msg, canaryToken)
}
