package outhttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidegate/pkg/fault"
	"tidegate/pkg/outhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server counts what reaches it.
func server(t *testing.T, h http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var seen atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		if h != nil {
			h(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s, &seen
}

func client(t *testing.T, o outhttp.Options) *outhttp.Client {
	t.Helper()
	c, err := outhttp.New(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func portOf(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err)
	return u.Port()
}

func do(t *testing.T, c *outhttp.Client, raw string) (outhttp.Answer, error) {
	t.Helper()
	return c.Do(t.Context(), outhttp.Request{URL: raw, Body: []byte(`{}`)})
}

func refused(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, outhttp.ErrBlocked)
	require.Equal(t, fault.Invalid, fault.KindOf(err))
}

func TestS39InternalAddressesAreNotReached(t *testing.T) {
	s, seen := server(t, nil)
	c := client(t, outhttp.Options{})
	for _, raw := range []string{
		"http://169.254.169.254/latest/meta-data/", s.URL, "http://localhost:" + portOf(t, s.URL) + "/", "http://10.0.0.1/",
		"http://127.0.0.1:6379/", "http://127.0.0.1:9092/", "http://192.168.1.1/", "http://172.31.255.255/", "http://168.63.129.16/",
	} {
		_, err := do(t, c, raw)
		refused(t, err)
	}
	require.Zero(t, seen.Load())

	open := client(t, outhttp.Options{Allow: []string{"127.0.0.0/8"}})
	_, err := do(t, open, s.URL)
	require.NoError(t, err)
	require.EqualValues(t, 1, seen.Load(), "the server can be reached by whoever may")
	_, err = do(t, open, "http://10.0.0.1/")
	refused(t, err)
}

func TestS39AnAllowedHostMayResolveToAnything(t *testing.T) {
	s, seen := server(t, nil)
	d := startDNS(t, map[string][][]netip.Addr{"alerts.internal": {{netip.MustParseAddr("127.0.0.1")}}, "other.internal": {{netip.MustParseAddr("127.0.0.1")}}})
	c := client(t, outhttp.Options{Allow: []string{"Alerts.internal"}, Resolver: d.resolver()})
	_, err := do(t, c, "http://ALERTS.internal:"+portOf(t, s.URL)+"/hook")
	require.NoError(t, err)
	require.EqualValues(t, 1, seen.Load())
	_, err = do(t, c, "http://other.internal:"+portOf(t, s.URL)+"/hook")
	refused(t, err)
	require.EqualValues(t, 1, seen.Load())
}

func TestS40ANameThatResolvesDifferentlyAMomentLater(t *testing.T) {
	s, seen := server(t, nil)
	home, out := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("93.184.216.34")
	d := startDNS(t, map[string][][]netip.Addr{"rebind.example": {{out}, {home}}, "both.example": {{out, home}}})
	c := client(t, outhttp.Options{Resolver: d.resolver()})

	_, err := do(t, c, "http://rebind.example:"+portOf(t, s.URL)+"/")
	refused(t, err)
	require.Equal(t, 2, d.asked("rebind.example"), "the second answer must have been the one that was dialled")
	_, err = do(t, c, "http://both.example:"+portOf(t, s.URL)+"/")
	refused(t, err)
	require.Positive(t, d.asked("both.example"))
	require.Zero(t, seen.Load())
}

func TestS41ARedirectIsAnAnswer(t *testing.T) {
	inner, seen := server(t, nil)
	for _, target := range []string{inner.URL, "file:///etc/passwd", "http://169.254.169.254/"} {
		outer, _ := server(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target, http.StatusFound) })
		a, err := do(t, client(t, outhttp.Options{Allow: []string{"127.0.0.1"}}), outer.URL)
		require.NoError(t, err)
		require.Equal(t, http.StatusFound, a.Status)
		require.Equal(t, target, a.Header.Get("Location"), "the server did redirect")
	}
	require.Zero(t, seen.Load())
}

func TestS42DisguisedAddresses(t *testing.T) {
	s, seen := server(t, nil)
	c := client(t, outhttp.Options{})
	for _, host := range []string{
		"[::ffff:127.0.0.1]", "[::]", "0.0.0.0", "[::1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[::127.0.0.1]",
		"100.64.0.1", "100.100.100.200", "198.18.0.1", "224.0.0.1", "255.255.255.255", "[ff02::1]", "[fe80::1]", "[fec0::1]", "[fc00::1]",
		"[fd00:ec2::254]", "[2001::1]", "[2001:db8::1]", "[3fff::1]", "192.0.0.192", "[::ffff:0:127.0.0.1]",
	} {
		raw := "http://" + host + ":" + portOf(t, s.URL) + "/"
		_, err := do(t, c, raw)
		refused(t, err)
		refused(t, c.Check(raw))
	}
	for _, host := range []string{"127.1", "0x7f000001", "0x7f.0.0.1", "2130706433", "0177.0.0.1", "127.0.0.0x1", "127.0.0.1.", "[fe80::1%25eth0]"} {
		_, err := do(t, c, "http://"+host+":"+portOf(t, s.URL)+"/")
		require.Error(t, err, host)
		require.Equal(t, fault.Invalid, fault.KindOf(err), "%s: refused as it is written, before any resolver reads it", host)
	}
	require.Zero(t, seen.Load())
	for _, host := range []string{"93.184.216.34", "[2606:2800:220:1:248:1893:25c8:1946]", "qyapi.weixin.qq.com"} {
		require.NoError(t, c.Check("https://"+host+"/"), host)
	}
}

func TestS43TheHostThatIsCheckedIsTheOneThatIsCalled(t *testing.T) {
	c := client(t, outhttp.Options{})
	for _, raw := range []string{
		"http://good.example@127.0.0.1/", "http://user:hush@good.example/", "http://good.example#@127.0.0.1/", "http://good.example\\@127.0.0.1/",
		"http://good.example/#", "http://127。0。0。1/", "http://ｇood.example/", "http://gооd.example/", "http://good.example./", "http:///path",
		"http://good..example/", "http://good.example:/", "http://good.example:0/", "http://good.example:99999/", "//good.example/", "good.example", "",
		"http://%31%32%37.0.0.1/", "http://good.example /", "http:good.example",
	} {
		err := c.Check(raw)
		require.Error(t, err, raw)
		require.Equal(t, fault.Invalid, fault.KindOf(err))
		require.NotContains(t, err.Error(), "hush")
		_, err = do(t, c, raw)
		require.Error(t, err, raw)
		require.NotContains(t, err.Error(), "hush")
	}
}

func TestS44OnlyHTTPAndNoSmuggledLines(t *testing.T) {
	for _, raw := range []string{"gopher://good.example/", "file:///etc/passwd", "unix:/run/x.sock", "ftp://good.example/", "HTTP+unix://x/", "http://good.example/a\r\nX: y", "http://good.example/\x00"} {
		require.Error(t, client(t, outhttp.Options{}).Check(raw), raw)
	}
	s, seen := server(t, nil)
	c := client(t, outhttp.Options{Allow: []string{"127.0.0.1"}})
	for name, r := range map[string]outhttp.Request{
		"value":  {Header: http.Header{"X-A": {"b\r\nX-Evil: 1"}}},
		"name":   {Header: http.Header{"X-A\r\nX-Evil": {"1"}}},
		"host":   {Header: http.Header{"host": {"inner.example"}}},
		"length": {Header: http.Header{"Content-Length": {"1"}}},
		"method": {Method: "GET / HTTP/1.1\r\nX-Evil: 1\r\n\r\nGET"},
	} {
		r.URL = s.URL
		_, err := c.Do(t.Context(), r)
		require.Equal(t, fault.Invalid, fault.KindOf(err), name)
	}
	require.Zero(t, seen.Load())
	_, err := c.Do(t.Context(), outhttp.Request{URL: s.URL, Header: http.Header{"X-A": {"b"}}})
	require.NoError(t, err)
}

// The environment's proxy is read once per process, so the address is the same
// in every run: a port on which nothing answers.
func TestS45TheProxyOfTheEnvironmentIsNotHonoured(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:9")
	asked, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "http", Host: "hook.example"}})
	require.NoError(t, err)
	require.NotNil(t, asked, "the environment must name a proxy for this call")

	s, seen := server(t, nil)
	d := startDNS(t, map[string][][]netip.Addr{"hook.example": {{netip.MustParseAddr("127.0.0.1")}}})
	c := client(t, outhttp.Options{Allow: []string{"127.0.0.1"}, Resolver: d.resolver()})
	_, err = do(t, c, "http://hook.example:"+portOf(t, s.URL)+"/")
	require.NoError(t, err)
	require.EqualValues(t, 1, seen.Load())
}

func TestTheCallItself(t *testing.T) {
	s, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Saw", r.Method+" "+r.Header.Get("X-Key")+" "+r.URL.RawQuery)
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(append([]byte("got "), body...))
	})
	c := client(t, outhttp.Options{Allow: []string{"127.0.0.1"}})
	a, err := c.Do(t.Context(), outhttp.Request{URL: s.URL + "/send?key=1", Header: http.Header{"X-Key": {"v"}}, Body: []byte("x")})
	require.NoError(t, err)
	require.Equal(t, http.StatusTeapot, a.Status)
	require.Equal(t, "got x", string(a.Body))
	require.Equal(t, "POST v key=1", a.Header.Get("X-Saw"))
}

func TestErrorsNameNoPathAndNoQuery(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dead := l.Addr().String()
	require.NoError(t, l.Close())
	c := client(t, outhttp.Options{Allow: []string{"127.0.0.1"}, Resolver: startDNS(t, nil).resolver()})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, f := range []func() error{
		func() error { _, err := do(t, c, "http://"+dead+"/robot/HUSH?key=HUSH"); return err },
		func() error { _, err := do(t, c, "http://10.1.1.1/robot/HUSH?key=HUSH"); return err },
		func() error { _, err := do(t, c, "http://no-such-host.invalid/robot/HUSH?key=HUSH"); return err },
		func() error { _, err := do(t, c, "http://a.example:bad/robot/HUSH?key=HUSH"); return err },
		func() error { _, err := do(t, c, "HUSH"); return err },
		func() error {
			_, err := c.Do(ended, outhttp.Request{URL: "http://" + dead + "/robot/HUSH?key=HUSH"})
			return err
		},
	} {
		err := f()
		require.Error(t, err)
		for e := err; e != nil; e = errors.Unwrap(e) {
			require.NotContains(t, e.Error(), "HUSH")
		}
	}
	require.Equal(t, "https://oapi.dingtalk.com", outhttp.Redact("https://oapi.dingtalk.com/robot/send?access_token=HUSH"))
	require.NotContains(t, outhttp.Redact("https://u:HUSH@x/"), "HUSH")
}

func TestOptionsThatCannotBeRight(t *testing.T) {
	for _, allow := range []string{"10.0.0.1/8", "", "http://x", "10.0.0.0/99", "a b", "fe80::1%eth0", "*.internal"} {
		_, err := outhttp.New(outhttp.Options{Allow: []string{allow}})
		require.ErrorContains(t, err, "allow", allow)
	}
	_, err := outhttp.New(outhttp.Options{CAFile: "absent.pem"})
	require.ErrorContains(t, err, "ca_file")
	require.ErrorContains(t, outhttp.CheckHeader("Host", "x"), "Host")
	require.NoError(t, outhttp.CheckHeader("X-Team-1", "x"))
	for _, name := range []string{"", "X\rA", "X\nA", "X\x10A", "X A", "X_A", "X:A", "X@A", "\u212a"} {
		require.Error(t, outhttp.CheckHeader(name, "x"), "%q", name)
	}
}
