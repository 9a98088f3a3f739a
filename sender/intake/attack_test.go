package intake_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/sqldb/sqldbtest"
)

// The numbers are those of reliability.md 4b and 4c, at the door that business
// systems use.

func TestS26JSONIsReadStrictly(t *testing.T) {
	d := open(t, sqldbtest.OpenSQLite(t))
	good := body(t, nil)
	with := func(more string) string { return strings.TrimSuffix(good, "}") + "," + more + "}" }
	for name, c := range map[string]struct {
		body   string
		status int
		field  string
	}{
		"a key twice":         {with(`"openid":"oVICTIMaaaaaaaaaaaaaaaaaaaaaa"`), 400, "openid"},
		"a key in other case": {with(`"OpenID":"oVICTIMaaaaaaaaaaaaaaaaaaaaaa"`), 400, "OpenID"},
		"an escaped key":      {with(`"\u006fpenid":"oVICTIMaaaaaaaaaaaaaaaaaaaaaa"`), 400, "openid"},
		"an unknown key":      {with(`"admin":true`), 400, "admin"},
		"a key twice, deeper": {with(`"content":{"type":"text","text":"a","text":"b"}`), 400, "content.text"},
		"other case, deeper":  {with(`"content":{"type":"text","Text":"a"}`), 400, "content.Text"},
		"a key twice, inside": {strings.Replace(good, `"thing1":`, `"thing1":"x","thing1":`, 1), 400, "data.thing1"},
		"depth 10,000":        {with(`"x":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000)), 400, ""},
		"1e400":               {strings.Replace(good, `"shop"`, "1e400", 1), 400, "account"},
		"a string of 1 MB":    {with(`"reference":"` + strings.Repeat("x", 1<<20) + `"`), 413, ""},
		"a second value":      {good + good, 400, ""},
		"text behind it":      {good + "x", 400, ""},
		"cut off":             {good[:len(good)-1], 400, ""},
		"bad UTF-8":           {strings.Replace(good, "thing1", "thing\xff", 1), 400, ""},
		"no object":           {"[]", 400, ""},
		"nothing":             {"", 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := d.post(c.body)
			require.Equal(t, c.status, a.Status, a.Detail)
			if c.field != "" {
				require.Equal(t, c.field, a.Field)
			}
			require.NotEmpty(t, a.Do)
			require.Empty(t, d.queue.all())
		})
	}
	require.Equal(t, http.StatusAccepted, d.post(good).Status)
}

func TestS27NoBombIsUnfoldedAtTheIntake(t *testing.T) {
	d := open(t, sqldbtest.OpenSQLite(t))
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, err := io.CopyN(z, zeros{}, 64<<20)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	for _, coding := range []string{"gzip", "deflate", "br", "gzip, gzip"} {
		require.Equal(t, http.StatusUnsupportedMediaType, d.post(bomb.String()[:min(bomb.Len(), 60000)], "Content-Encoding", coding).Status)
	}
	require.Empty(t, d.queue.all())
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestS36LinksDoNotNameTheHostOfTheRequest(t *testing.T) {
	d := open(t, sqldbtest.OpenSQLite(t))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url, strings.NewReader(body(t, nil)))
	require.NoError(t, err)
	r.Host = "evil.example"
	r.Header.Set("Authorization", "Bearer "+d.keys["crm"])
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Forwarded-Host", "evil.example")
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusAccepted, res.StatusCode)
	require.Regexp(t, `^/v1/messages/\d{23}$`, res.Header.Get("Location"))
	require.NotContains(t, string(b), "evil")
}
