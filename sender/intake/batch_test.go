package intake_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/sender/intake"
)

type batchReply struct {
	Status   int
	Accepted int `json:"accepted"`
	Refused  int `json:"refused"`
	Results  []struct {
		ID      string `json:"id"`
		State   string `json:"state"`
		Problem *struct {
			Status  int    `json:"status"`
			Errcode string `json:"errcode"`
			Field   string `json:"field"`
			Detail  string `json:"detail"`
		} `json:"problem"`
	} `json:"results"`
	Detail string `json:"detail"`
	Field  string `json:"field"`
}

// batch posts a body as it is.
func (d *desk) batch(body string) batchReply {
	d.t.Helper()
	s := httptest.NewServer(d.BatchHandler())
	defer s.Close()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, s.URL, bytes.NewReader([]byte(body)))
	require.NoError(d.t, err)
	r.Header.Set("Authorization", "Bearer "+d.keys["crm"])
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	require.NoError(d.t, err)
	defer func() { require.NoError(d.t, res.Body.Close()) }()
	b, err := io.ReadAll(res.Body)
	require.NoError(d.t, err)
	a := batchReply{Status: res.StatusCode}
	require.NoError(d.t, json.Unmarshal(b, &a), "%s", b)
	return a
}

func batchOf(pushes ...string) string { return `{"pushes": [` + strings.Join(pushes, ",") + `]}` }

// Each push of a batch is accepted or refused by itself, with the field named; what
// is accepted is in the queue, in the order of each follower.
func TestEachPushOfABatchForItself(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		d := open(t, db)
		var all []string
		for i := range 200 {
			all = append(all, body(t, map[string]any{"openid": fmt.Sprint("oUser", i%7), "reference": fmt.Sprint(i), "idempotency_key": fmt.Sprint("k", i)}))
		}
		all[3] = body(t, map[string]any{"openid": "no openid!"})
		all[5] = `{"account": "shop", "wrong": 1}`
		all[8] = body(t, map[string]any{"account": "nobody"})
		all[9] = body(t, map[string]any{"data": map[string]any{"thing1": 12}})
		all[11] = body(t, nil) // without a key
		all[12] = all[10]      // the same key and push
		all[13] = body(t, map[string]any{"idempotency_key": "k10", "reference": "another"})
		all[14] = `"no object"`
		got := d.batch(batchOf(all...))
		require.Equal(t, http.StatusOK, got.Status)
		require.Len(t, got.Results, 200)
		for i, field := range map[int]string{3: "openid", 5: "wrong", 8: "account", 9: "data.thing1", 13: "idempotency_key", 14: ""} {
			require.NotNil(t, got.Results[i].Problem, i)
			require.Equal(t, field, got.Results[i].Problem.Field)
			require.Empty(t, got.Results[i].ID)
		}
		require.Equal(t, http.StatusConflict, got.Results[13].Problem.Status)
		require.Equal(t, 194, got.Accepted)
		require.Equal(t, 6, got.Refused)
		require.Equal(t, got.Results[10].ID, got.Results[12].ID)
		require.NotEqual(t, got.Results[10].ID, got.Results[11].ID)
		posted := d.queue.all()
		require.Len(t, posted, 193, "a push that is twice in it is queued once")
		newest := map[string]int{}
		for _, p := range posted {
			var n int
			_, err := fmt.Sscan(p.push.Reference+" ", &n)
			if err != nil {
				continue // the one without a reference
			}
			require.GreaterOrEqual(t, n, newest[p.push.OpenID], "in the order of the batch")
			newest[p.push.OpenID] = n
		}

		// The same batch again is the same pushes; a single one too.
		again := d.batch(batchOf(all...))
		for i, r := range again.Results {
			if i != 11 {
				require.Equal(t, got.Results[i].ID, r.ID)
			}
		}
		require.Len(t, d.queue.all(), 194, "only the one without a key is new")
		require.Equal(t, got.Results[20].ID, d.post(all[20]).ID)
		require.Len(t, d.queue.all(), 194)
	})
}

// The queue is away: nothing is accepted, and the repeat of the batch is.
func TestABatchWhileTheQueueIsAway(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		d := open(t, db)
		all := batchOf(body(t, map[string]any{"idempotency_key": "a"}), body(t, map[string]any{"idempotency_key": "b"}))
		d.queue.set(errors.New("away"), nil)
		got := d.batch(all)
		require.Equal(t, 2, got.Refused)
		require.Equal(t, http.StatusServiceUnavailable, got.Results[0].Problem.Status)
		d.queue.set(nil, fault.New(fault.Ambiguous, "publish", "no confirmation"))
		got = d.batch(all)
		require.Equal(t, 2, got.Refused)
		require.Equal(t, http.StatusServiceUnavailable, got.Results[1].Problem.Status)
		d.queue.set(nil, nil)
		got = d.batch(all)
		require.Equal(t, 2, got.Accepted)
		ids := map[string]int{}
		for _, p := range d.queue.all() {
			ids[p.push.ID]++
		}
		require.Equal(t, map[string]int{got.Results[0].ID: 2, got.Results[1].ID: 2}, ids, "the sender recognises the ids")
	})
}

func TestBatchesThatAreNone(t *testing.T) {
	d := open(t, sqldbtest.OpenSQLite(t), func(c *intake.Config) { c.MaxBatchBody = 1 << 20 })
	one := body(t, nil)
	for _, b := range []string{
		``, `[]`, `{}`, `{"pushes": {}}`, `{"pushes": []}`, `{"pushes": [` + one, `{"pushes": [` + one + `], "pushes": []}`, batchOf(one) + "x",
		`{"Pushes": [` + one + `]}`, batchOf(one, `{"a":`), batchOf(strings.Split(strings.Repeat(`1,`, 1001), ",")[:1001]...),
	} {
		got := d.batch(b)
		require.Equal(t, http.StatusBadRequest, got.Status, "%.60s", b)
		require.NotEmpty(t, got.Detail)
	}
	require.Equal(t, http.StatusRequestEntityTooLarge, d.batch(batchOf(body(t, map[string]any{"reference": strings.Repeat("x", 1<<20)}))).Status)
	require.Empty(t, d.queue.all())
	got := d.batch(batchOf(strings.Split(strings.Repeat("1,", 1000), ",")[:1000]...))
	require.Equal(t, 1000, got.Refused, "a thousand are a batch")
}
