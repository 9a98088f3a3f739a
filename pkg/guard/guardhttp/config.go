package guardhttp

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Config is what stands behind the proxy and what of it may be shared.
type Config struct {
	// Upstream is the system behind, for instance http://127.0.0.1:9000. A path
	// in it comes before that of each request.
	Upstream string `koanf:"upstream"`
	// Timeout bounds one exchange with it up to the headers of its answer, and a
	// shared one as a whole.
	Timeout time.Duration `koanf:"timeout"`
	// MaxRequest bounds the body of a request in bytes.
	MaxRequest int64 `koanf:"max_request"`
	// PreserveHost sends the client's Host header on; otherwise that of Upstream.
	PreserveHost bool `koanf:"preserve_host"`

	// Routes say what may be shared. What no route names passes through the gate
	// only.
	Routes []Route `koanf:"routes"`
	// Writes say which requests change what routes show.
	Writes []Write `koanf:"writes"`
}

// The classes of routes.
const (
	Shared   = "shared"   // anybody may see it
	Personal = "personal" // it concerns the person whom Headers name
)

// Route is a set of resources that may be shared.
type Route struct {
	// Match is a pattern of net/http.ServeMux without a method or with GET:
	// "/seats/{train}", "/news/".
	Match string `koanf:"match"`
	Class string `koanf:"class"`
	// Query lists the parameters that the answer depends on; others are not sent
	// on. "*" is all of them, in any order.
	Query []string `koanf:"query"`
	// Headers lists the request headers that the answer depends on. Of the headers
	// of a request only these and Accept are sent on.
	Headers []string `koanf:"headers"`
}

// Write is a set of requests that change resources.
type Write struct {
	// Match is a pattern with a method: "POST /seats/{train}/choose".
	Match string `koanf:"match"`
	// Paths are invalidated after an answer that is no error; {names} are those of Match.
	Paths []string `koanf:"paths"`
}

// DefaultConfig shares nothing.
func DefaultConfig() Config {
	return Config{Timeout: 10 * time.Second, MaxRequest: 1 << 20}
}

// The bounds of a configuration.
const (
	maxRoutes = 1000
	maxNames  = 50
)

// Validate reports every setting that cannot work.
func (c Config) Validate() error {
	var errs []error
	if err := checkUpstream(c.Upstream); err != nil {
		errs = append(errs, err)
	}
	if c.Timeout < 10*time.Millisecond || c.Timeout > 5*time.Minute {
		errs = append(errs, fmt.Errorf("timeout: %v is outside 10ms to 5m", c.Timeout))
	}
	if c.MaxRequest < 0 || c.MaxRequest > 1<<30 {
		errs = append(errs, fmt.Errorf("max_request: %d is outside 0 to %d bytes", c.MaxRequest, 1<<30))
	}
	if len(c.Routes) > maxRoutes || len(c.Writes) > maxRoutes {
		errs = append(errs, fmt.Errorf("routes, writes: more than %d", maxRoutes))
	}
	for i, r := range c.Routes {
		if err := r.validate(); err != nil {
			errs = append(errs, fmt.Errorf("routes[%d]: %w", i, err))
		}
	}
	for i, w := range c.Writes {
		if err := w.validate(); err != nil {
			errs = append(errs, fmt.Errorf("writes[%d]: %w", i, err))
		}
	}
	if len(errs) == 0 { // patterns may still contradict each other
		_, _, err := c.tables()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func checkUpstream(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("upstream: write the address of the system behind, for example http://127.0.0.1:9000")
	}
	if u.User != nil {
		return errors.New("upstream: an address with a login in it: take the login out")
	}
	return nil
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")

func (r Route) validate() error {
	method, path, found := strings.Cut(r.Match, " ")
	if !found {
		method, path = http.MethodGet, r.Match
	}
	switch {
	case method != http.MethodGet || !strings.HasPrefix(path, "/") || len(path) > 500:
		return fmt.Errorf("match %.60q: use a path such as /seats/{train}; only GET and HEAD are shared", r.Match)
	case r.Class != Shared && r.Class != Personal:
		return fmt.Errorf("class %.20q: use %s or %s", r.Class, Shared, Personal)
	case r.Class == Personal && len(r.Headers) == 0:
		return errors.New("headers: a personal route needs the headers that say whose it is, for example Authorization")
	case len(r.Query) > maxNames || len(r.Headers) > maxNames:
		return fmt.Errorf("query, headers: more than %d names", maxNames)
	}
	for _, h := range r.Headers {
		if !headerName.MatchString(h) || slices.Contains(neverKeys, http.CanonicalHeaderKey(h)) {
			return fmt.Errorf("headers: %.60q is no header that an answer may depend on here", h)
		}
	}
	return nil
}

// neverKeys are headers that are the proxy's own or ask for a part of an answer.
var neverKeys = []string{"Connection", "Host", "Range", "If-Range", "If-None-Match", "If-Modified-Since", "Transfer-Encoding", "Te", "Upgrade"}

func (w Write) validate() error {
	method, path, found := strings.Cut(w.Match, " ")
	if !found || method == http.MethodGet || method == http.MethodHead || !strings.HasPrefix(path, "/") || len(path) > 500 {
		return fmt.Errorf("match %.60q: use a method that changes something and a path, for example POST /seats/{train}/choose", w.Match)
	}
	if len(w.Paths) == 0 || len(w.Paths) > maxNames {
		return fmt.Errorf("paths: give 1 to %d paths that the request changes", maxNames)
	}
	for _, p := range w.Paths {
		if !strings.HasPrefix(p, "/") {
			return fmt.Errorf("paths: %.60q does not begin with /", p)
		}
		for _, name := range wildcard.FindAllStringSubmatch(p, -1) {
			if !strings.Contains(path, "{"+name[1]+"}") && !strings.Contains(path, "{"+name[1]+"...}") {
				return fmt.Errorf("paths: {%s} is not in match %q", name[1], w.Match)
			}
		}
	}
	return nil
}

var wildcard = regexp.MustCompile(`\{([A-Za-z0-9_]+)\}`)

// tables makes the patterns ready. A mux panics about patterns it cannot take;
// here that is an error.
func (c Config) tables() (routes, writes *http.ServeMux, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("match: %v", p)
		}
	}()
	routes, writes = http.NewServeMux(), http.NewServeMux()
	for _, r := range c.Routes {
		pattern := r.Match
		if !strings.Contains(pattern, " ") {
			pattern = "GET " + pattern
		}
		routes.Handle(pattern, route{r})
	}
	for _, w := range c.Writes {
		writes.Handle(w.Match, write{w})
	}
	return routes, writes, nil
}

// route and write stand in a mux for what a pattern means; they answer nothing.
type route struct{ Route }

// ServeHTTP only fills the request's path values.
func (route) ServeHTTP(http.ResponseWriter, *http.Request) {}

type write struct{ Write }

// ServeHTTP only fills the request's path values.
func (write) ServeHTTP(http.ResponseWriter, *http.Request) {}
