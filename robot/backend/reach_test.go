package backend_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/robot/backend"
)

// S41: a redirect is an answer and not an order, also for a call that carries a
// secret.
func TestS41ARedirectIsNotFollowed(t *testing.T) {
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) {})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	c := config(s.URL)
	c.Authorization = "Bearer s3cret"
	cl, _ := client(t, c)
	_, err := cl.Call(t.Context(), post())
	require.Equal(t, fault.Final, fault.KindOf(err))
	require.Zero(t, elsewhere.hits.Load())
}

// S43, S44: a login, another scheme or a line break in the address is refused
// when the configuration is read, and a path cannot smuggle one in.
func TestS43S44AddressesAreCheckedAsWritten(t *testing.T) {
	for _, url := range []string{
		"http://good.example@127.0.0.1/", "gopher://127.0.0.1/", "file:///etc/passwd", "unix:/run/x.sock",
		"http://127.0.0.1/\r\nX: 1", "http://127.0.0.1/#@good.example", "http://\\127.0.0.1", "http:///x",
	} {
		require.Error(t, config(url).Validate(), "%q", url)
	}
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	cl, _ := client(t, config(s.URL))
	for _, path := range []string{"/x\r\nX: 1", "@evil.example/", "//evil.example/x\x00"} {
		_, err := cl.Call(t.Context(), backend.Request{Method: "GET", Path: path})
		require.Equal(t, fault.Invalid, fault.KindOf(err), "%q", path)
	}
	require.Zero(t, s.hits.Load())
}

// S45: a proxy of the environment is not asked, for other hosts either: those of
// loopback never go through one.
func TestS45TheProxyOfTheEnvironmentIsNotHonoured(t *testing.T) {
	proxy := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `"from the proxy"`) })
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	c := config("http://nobody.invalid")
	c.Attempts = 1
	cl, _ := client(t, c)
	_, err := cl.Call(t.Context(), post())
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.Zero(t, proxy.hits.Load())
}
