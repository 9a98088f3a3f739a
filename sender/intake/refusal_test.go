package intake_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/sender/intake"
)

// Every refusal names its field and says what to do, and nothing is queued.
func TestEveryRefusalNamesItsField(t *testing.T) {
	long := strings.Repeat("字", 1001)
	many := map[string]any{}
	for i := range 33 {
		many["k"+strings.Repeat("x", i%30)+string(rune('a'+i%26))+string(rune('a'+i/26))] = "v"
	}
	fat := map[string]any{}
	for _, k := range []string{"a", "b", "c", "d"} {
		fat[k] = strings.Repeat("字", 900)
	}
	sub := func(m map[string]any) map[string]any { m["kind"] = "subscription"; return m }
	custom := func(m map[string]any) map[string]any {
		for k, v := range map[string]any{"kind": "custom", "template_id": nil, "data": nil, "content": map[string]any{"type": "text", "text": "x"}} {
			if _, given := m[k]; !given {
				m[k] = v
			}
		}
		return m
	}
	cases := []struct {
		name   string
		change map[string]any
		field  string
		says   string
	}{
		{"no account", map[string]any{"account": nil}, "account", "name the account"},
		{"unknown account", map[string]any{"account": "nowhere"}, "account", "no account"},
		{"odd kind", map[string]any{"kind": "mass"}, "kind", "template"},
		{"odd lane", map[string]any{"lane": "replies"}, "lane", "bulk"},
		{"no openid", map[string]any{"openid": nil}, "openid", "1 to 64"},
		{"odd openid", map[string]any{"openid": "o\r\nSet-Cookie: x"}, "openid", "1 to 64"},
		{"no template", map[string]any{"template_id": ""}, "template_id", "1 to 64"},
		{"odd template", map[string]any{"template_id": "a b"}, "template_id", "1 to 64"},
		{"no data", map[string]any{"data": nil}, "data", "values"},
		{"many keys", map[string]any{"data": many}, "data", "at most 32"},
		{"odd key", map[string]any{"data": map[string]any{"1thing": "x"}}, "data", "no key"},
		{"long value", map[string]any{"data": map[string]any{"first": long}}, "data.first", "at most 1000"},
		{"control character", map[string]any{"data": map[string]any{"first": "a\x07b"}}, "data.first", "control"},
		{"much data", map[string]any{"data": fat}, "data", "bytes"},
		{"wrapped value", map[string]any{"data": map[string]any{"first": map[string]any{"value": "x"}}}, "data.first", "must be a string"},
		{"number as value", map[string]any{"data": map[string]any{"first": 12}}, "data.first", "must be a string"},
		{"ftp", map[string]any{"url": "ftp://example.com/x"}, "url", "https://"},
		{"script", map[string]any{"url": "javascript:alert(1)"}, "url", "https://"},
		{"relative url", map[string]any{"url": "/bill"}, "url", "https://"},
		{"url with space", map[string]any{"url": "https://example.com/a b"}, "url", "https://"},
		{"url with password", map[string]any{"url": "https://u:p@example.com/"}, "url", "password"},
		{"long url", map[string]any{"url": "https://example.com/" + strings.Repeat("a", 1024)}, "url", "1024"},
		{"page of template", map[string]any{"page": "pages/x"}, "page", "use url"},
		{"url of subscription", sub(map[string]any{"url": "https://example.com"}), "url", "use page"},
		{"odd mini program", map[string]any{"mini_app_id": "gh_1"}, "mini_app_id", "wx"},
		{"path alone", map[string]any{"mini_path": "pages/x"}, "mini_path", "needs mini_app_id"},
		{"odd path", map[string]any{"mini_app_id": "wx0123456789abcdef", "mini_path": "a b"}, "mini_path", "without spaces"},
		{"thing too long", sub(map[string]any{"data": map[string]any{"thing1": strings.Repeat("字", 21)}}), "data.thing1", "at most 20"},
		{"phrase too long", sub(map[string]any{"data": map[string]any{"phrase3": "六个汉字太长"}}), "data.phrase3", "at most 5"},
		{"long reference", map[string]any{"reference": strings.Repeat("r", 129)}, "reference", "128"},
		{"reference with line break", map[string]any{"reference": "a\nb"}, "reference", "control"},
		{"past", map[string]any{"expires_at": noon.Add(-time.Second).Format(time.RFC3339)}, "expires_at", "passed"},
		{"far future", map[string]any{"expires_at": noon.Add(8 * 24 * time.Hour).Format(time.RFC3339)}, "expires_at", "7 days"},
		{"no time", map[string]any{"expires_at": "tomorrow"}, "expires_at", "RFC 3339"},
		{"number for time", map[string]any{"expires_at": 1790000000}, "expires_at", "a string is expected"},
		{"long key", map[string]any{"idempotency_key": strings.Repeat("k", 129)}, "idempotency_key", "128"},
		{"key with space", map[string]any{"idempotency_key": "a b"}, "idempotency_key", "printable"},
		{"not before and content", map[string]any{"not_before": "soon"}, "not_before", "RFC 3339"},
		{"not before in a month", map[string]any{"not_before": noon.Add(8 * 24 * time.Hour).Format(time.RFC3339)}, "not_before", "7 days"},
		{"over before it begins", map[string]any{"not_before": noon.Add(2 * time.Hour).Format(time.RFC3339), "expires_at": noon.Add(time.Hour).Format(time.RFC3339)}, "expires_at", "never go"},
		{"callback to ourselves", map[string]any{"callback_url": "http://127.0.0.1:6379/"}, "callback_url", "not public"},
		{"callback to metadata", map[string]any{"callback_url": "http://[::ffff:169.254.169.254]/"}, "callback_url", "not public"},
		{"callback by ftp", map[string]any{"callback_url": "ftp://hook.example/"}, "callback_url", "http"},
		{"callback with a login", map[string]any{"callback_url": "https://u:p@hook.example/"}, "callback_url", "login"},
		{"content of a template", map[string]any{"content": map[string]any{"type": "text", "text": "x"}}, "content", "custom"},
		{"class of a template", map[string]any{"class": "prefer_loss"}, "class", "custom"},
		{"template of custom", custom(map[string]any{"template_id": "T"}), "template_id", "content"},
		{"url of custom", custom(map[string]any{"url": "https://example.com"}), "url", "content"},
		{"no content", custom(map[string]any{"content": nil}), "content", "says"},
		{"odd class", custom(map[string]any{"class": "any"}), "class", "prefer_loss"},
		{"odd content", custom(map[string]any{"content": map[string]any{"type": "card"}}), "content.type", "msgmenu"},
		{"two contents", custom(map[string]any{"content": map[string]any{"type": "text", "text": "x", "media_id": "y"}}), "content.media_id", "none"},
		{"blank text", custom(map[string]any{"content": map[string]any{"type": "text", "text": " \n"}}), "content.text", "blank"},
		{"long text", custom(map[string]any{"content": map[string]any{"type": "text", "text": strings.Repeat("字", 2501)}}), "content.text", "7500"},
		{"image without id", custom(map[string]any{"content": map[string]any{"type": "image"}}), "content.media_id", "needs"},
		{"news without title", custom(map[string]any{"content": map[string]any{"type": "news", "news": map[string]any{"url": "https://example.com"}}}), "content.news.title", "title"},
		{"news to a script", custom(map[string]any{"content": map[string]any{"type": "news", "news": map[string]any{"title": "t", "url": "javascript:x"}}}), "content.news.url", "https://"},
		{"menu without items", custom(map[string]any{"content": map[string]any{"type": "msgmenu", "menu": map[string]any{}}}), "content.menu.items", "1 to"},
		{"music without address", custom(map[string]any{"content": map[string]any{"type": "music", "music": map[string]any{"thumb_media_id": "m"}}}), "content.music.url", "https://"},
		{"unknown field in content", custom(map[string]any{"content": map[string]any{"type": "text", "txt": "x"}}), "content.txt", "unknown field"},
		{"unknown field", map[string]any{"opnid": "x"}, "opnid", "unknown field"},
		{"field in capitals", map[string]any{"OpenID": "x"}, "OpenID", "openid"},
	}
	d := open(t, sqldbtest.OpenSQLite(t))
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a := d.post(body(t, c.change))
			require.Equal(t, http.StatusBadRequest, a.Status)
			require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"))
			require.Equal(t, c.field, a.Field, a.Detail)
			require.Equal(t, "/"+strings.ReplaceAll(c.field, ".", "/"), a.Pointer)
			require.Contains(t, a.Detail, c.says)
			require.Empty(t, a.ID)
		})
	}
	require.Empty(t, d.queue.all())
}

func TestBrokenBodies(t *testing.T) {
	d := open(t, sqldbtest.OpenSQLite(t))
	good := body(t, nil)
	for name, b := range map[string]string{
		"empty": "", "no JSON": "hello", "cut": good[:len(good)-4], "array": "[" + good + "]", "two": good + good, "tail": good + "x",
		"doubled": `{"openid":"a",` + good[1:], "doubled inside": strings.Replace(good, `"data":{`, `"data":{"thing1":"x",`, 1),
		"bad UTF-8": strings.Replace(good, "电", "\xff", 1), "deep": strings.Repeat("[", 20000), "null": "null", "number": "17",
	} {
		t.Run(name, func(t *testing.T) {
			a := d.post(b)
			require.Equal(t, http.StatusBadRequest, a.Status, "%+v", a)
			require.NotEmpty(t, a.Detail)
		})
	}
	require.Empty(t, d.queue.all())
}

func TestRefusalsBeforeTheBody(t *testing.T) {
	d := open(t, sqldbtest.OpenSQLite(t), func(c *intake.Config) { c.MaxBody = 2048 })
	a := d.post(body(t, nil), "Authorization", "Bearer wrong")
	require.Equal(t, http.StatusUnauthorized, a.Status)
	require.NotEmpty(t, a.Header.Get("WWW-Authenticate"))
	a = d.post(body(t, nil), "Authorization", "Bearer "+d.keys["reader"])
	require.Equal(t, http.StatusForbidden, a.Status)
	require.Contains(t, a.Detail, "pushes:write")
	a = d.post(body(t, nil), "Authorization", "Bearer "+d.keys["bank"])
	require.Equal(t, http.StatusForbidden, a.Status)
	require.Equal(t, "account", a.Field)
	a = d.post(body(t, nil), "Content-Type", "text/plain")
	require.Equal(t, http.StatusUnsupportedMediaType, a.Status)
	require.Contains(t, a.Detail, "application/json")
	a = d.post(body(t, map[string]any{"reference": strings.Repeat("r", 4096)}))
	require.Equal(t, http.StatusRequestEntityTooLarge, a.Status)
	require.Contains(t, a.Detail, "2048")
	a = d.post(body(t, nil), "Idempotency-Key", "")
	require.Equal(t, http.StatusBadRequest, a.Status, "a caller that believes in its key would send twice")
	require.Equal(t, "idempotency_key", a.Field)
	a = d.post(body(t, map[string]any{"idempotency_key": "a"}), "Idempotency-Key", "b")
	require.Equal(t, http.StatusBadRequest, a.Status)
	require.Equal(t, "idempotency_key", a.Field)
	require.Empty(t, d.queue.all())
}
