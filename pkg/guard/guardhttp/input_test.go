package guardhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/guard"
	"tidegate/pkg/guard/guardhttp"
)

func TestWrongSettingsAreRefused(t *testing.T) {
	good := guardhttp.DefaultConfig()
	good.Upstream = "http://127.0.0.1:9000/base"
	require.NoError(t, good.Validate())
	for want, change := range map[string]func(*guardhttp.Config){
		"upstream":    func(c *guardhttp.Config) { c.Upstream = "ftp://x" },
		"login":       func(c *guardhttp.Config) { c.Upstream = "http://u:p@x" },
		"timeout":     func(c *guardhttp.Config) { c.Timeout = 0 },
		"max_request": func(c *guardhttp.Config) { c.MaxRequest = -1 },
		"only GET":    func(c *guardhttp.Config) { c.Routes = []guardhttp.Route{{Match: "POST /x", Class: "shared"}} },
		"class":       func(c *guardhttp.Config) { c.Routes = []guardhttp.Route{{Match: "/x"}} },
		"whose it is": func(c *guardhttp.Config) { c.Routes = []guardhttp.Route{{Match: "/x", Class: "personal"}} },
		"may depend": func(c *guardhttp.Config) {
			c.Routes = []guardhttp.Route{{Match: "/x", Class: "shared", Headers: []string{"range"}}}
		},
		"match": func(c *guardhttp.Config) { c.Routes = []guardhttp.Route{{Match: "/{", Class: "shared"}} },
		"conflict": func(c *guardhttp.Config) {
			c.Routes = []guardhttp.Route{{Match: "/x", Class: "shared"}, {Match: "/x", Class: "shared"}}
		},
		"changes some": func(c *guardhttp.Config) { c.Writes = []guardhttp.Write{{Match: "GET /x", Paths: []string{"/x"}}} },
		"paths: give":  func(c *guardhttp.Config) { c.Writes = []guardhttp.Write{{Match: "POST /x"}} },
		"not in match": func(c *guardhttp.Config) {
			c.Writes = []guardhttp.Write{{Match: "POST /x/{a}", Paths: []string{"/x/{b}"}}}
		},
		"does not begi": func(c *guardhttp.Config) { c.Writes = []guardhttp.Write{{Match: "POST /x", Paths: []string{"x"}}} },
	} {
		c := good
		change(&c)
		require.ErrorContains(t, c.Validate(), want)
		_, err := guardhttp.New(c, nil, nil)
		require.Error(t, err)
	}
}

// Every request gets an answer that says where it came from.
func FuzzRequests(f *testing.F) {
	f.Add("/seats/1?date=2", "zh")
	f.Add("/seats/%2e%2e/x;y=1?&&=&date=%31", "")
	f.Add("//seats/1", "a\x00b")
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI) }))
	f.Cleanup(u.Close)
	gc, hc := guard.DefaultConfig(), guardhttp.DefaultConfig()
	gc.Backend, gc.Threshold, gc.BreakAfter = "fuzz", 0, 1000
	hc.Upstream = u.URL
	hc.Routes = []guardhttp.Route{{Match: "/seats/{train...}", Class: "shared", Query: []string{"*"}, Headers: []string{"Accept-Language"}}}
	g, err := guard.New(gc, guard.Deps{})
	require.NoError(f, err)
	h, err := guardhttp.New(hc, g, nil)
	require.NoError(f, err)
	f.Cleanup(func() { h.Close(); g.Close() })
	f.Fuzz(func(t *testing.T, target, language string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://front"+target, nil)
		if err != nil || req.URL.Host != "front" {
			return
		}
		req.URL.Host, req.URL.Scheme = "", "" // as a server sees it
		req.Header.Set("Accept-Language", language)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Header().Get("X-Guard") == "" {
			t.Fatalf("%q: an answer without X-Guard: %d", target, w.Code)
		}
	})
}
