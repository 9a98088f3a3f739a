package api_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
)

func TestProblemsSayWhatToDoAndHideOurInsides(t *testing.T) {
	const inside = "dial tcp 10.0.0.7:5432"
	for kind := fault.Internal; kind <= fault.Stopped; kind++ {
		w := httptest.NewRecorder()
		api.WriteProblem(w, fault.New(kind, "do it", inside).WithField("f").WithRetryAfter(1500*time.Millisecond))
		var p api.Problem
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
		require.Equal(t, w.Code, p.Status)
		require.Equal(t, kind.String(), p.Errcode)
		require.Equal(t, "f", p.Field)
		require.NotEmpty(t, p.Do)
		require.GreaterOrEqual(t, p.Status, 400)
		if p.Status >= 500 {
			require.NotContains(t, w.Body.String(), inside, "%v", kind)
		} else {
			require.Contains(t, p.Detail, inside)
		}
		if p.Status == 429 || p.Status == 503 {
			require.Equal(t, "2", w.Header().Get("Retry-After"))
		}
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	}
	require.Equal(t, http.StatusInternalServerError, api.ProblemOf(errors.New("x")).Status)
	require.Equal(t, http.StatusRequestEntityTooLarge, api.ProblemOf(fault.New(fault.Invalid, "x", "%w", api.ErrTooLarge)).Status)
	require.Equal(t, http.StatusUnsupportedMediaType, api.ProblemOf(fault.New(fault.Invalid, "x", "%w", api.ErrMediaType)).Status)
}

func TestNoRouteAndWrongMethod(t *testing.T) {
	w := httptest.NewRecorder()
	api.NotFound(w, httptest.NewRequest(http.MethodGet, "/x", nil))
	require.Equal(t, http.StatusNotFound, w.Code)
	w = httptest.NewRecorder()
	api.OnlyMethods("GET", "POST").ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/x", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, []string{"GET", "POST"}, w.Header().Values("Allow"))
}

func TestParamsAreStrict(t *testing.T) {
	parse := func(q string) (api.Params, error) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.RawQuery = q
		return api.ParseParams(r, "state", "limit")
	}
	p, err := parse("state=dead")
	require.NoError(t, err)
	require.Equal(t, "dead", p.Get("state"))
	require.Empty(t, p.Get("limit"))
	for q, text := range map[string]string{
		"stat=dead":          "unknown parameter",
		"state=a&state=b":    "comes 2 times",
		"state=dead&limit=":  "limit is empty",
		"state":              "state is empty",
		"state=%00":          "control characters",
		"state=%ff":          "control characters",
		"state=%zz":          "not well-formed",
		"state=a;limit=1":    "not well-formed",
		"%00=1":              "unknown parameter",
		"state=" + long(600): "at most 512",
		long(9000):           "at most 8192",
	} {
		_, err := parse(q)
		require.ErrorContains(t, err, text, q)
		require.Equal(t, fault.Invalid, fault.KindOf(err))
	}
}

func long(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a'
	}
	return string(b)
}

func TestSealedTextsComeBackUnchangedOrNotAtAll(t *testing.T) {
	c := newClock()
	s, err := api.NewSealer(make([]byte, 32), c.now)
	require.NoError(t, err)
	type point struct{ ID string }
	text, err := s.Seal("cursor", point{"9007199254740993"}, 5*time.Minute)
	require.NoError(t, err)
	var got point
	require.NoError(t, s.Open("cursor", text, &got))
	require.Equal(t, point{"9007199254740993"}, got)

	require.Equal(t, fault.Invalid, fault.KindOf(s.Open("confirmation", text, &got)), "another purpose")
	for i := range text {
		for _, bit := range []byte{1, 2, 4, 8, 16, 32} {
			raw := []byte(text)
			raw[i] ^= bit
			require.Error(t, s.Open("cursor", string(raw), &got), "byte %d bit %d", i, bit)
		}
	}
	for _, bad := range []string{"", "x", text + "A", text[1:], long(20000)} {
		require.Error(t, s.Open("cursor", bad, &got))
	}
	c.step(5*time.Minute + time.Millisecond)
	require.ErrorContains(t, s.Open("cursor", text, &got), "too old")
	_, err = api.NewSealer(make([]byte, 31), nil)
	require.Error(t, err)
}

func TestNodesOfOneDeploymentShareTheSealingKey(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		require.NoError(t, api.Migrate(t.Context(), db))
		a, err := api.LoadSealer(t.Context(), db, nil)
		require.NoError(t, err)
		b, err := api.LoadSealer(t.Context(), db, nil)
		require.NoError(t, err)
		text, err := a.Seal("cursor", 1, 0)
		require.NoError(t, err)
		var n int
		require.NoError(t, b.Open("cursor", text, &n))
		require.Equal(t, 1, n)
	})
}
