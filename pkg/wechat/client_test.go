package wechat

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
)

const canaryToken, canarySecret = "91_CANARY&token+AAAA", "canarysecret0123456789abcdef0123"

// fakeHost answers every call in the same way and keeps what it was asked. It
// is no stand-in for WeChat (pkg/wechat/wechatsim is); it plays what lies
// between WeChat and us.
type fakeHost struct {
	*httptest.Server
	mu    sync.Mutex
	calls []call
}

type call struct {
	method, path, body, contentType string
	query                           map[string][]string
}

func newFakeHost(t testing.TB, status int, body string) *fakeHost {
	return newFakeHandler(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

func newFakeHandler(t testing.TB, h http.HandlerFunc) *fakeHost {
	f := &fakeHost{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		f.mu.Lock()
		f.calls = append(f.calls, call{r.Method, r.URL.Path, string(b), r.Header.Get("Content-Type"), r.URL.Query()})
		f.mu.Unlock()
		h(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fakeHost) seen() []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]call(nil), f.calls...)
}

func newTestClient(t testing.TB, o Options) *Client {
	t.Helper()
	c, err := NewClient(nil, o)
	require.NoError(t, err)
	t.Cleanup(c.CloseIdle)
	return c
}

func sample(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/api/" + name)
	require.NoError(t, err)
	return string(b)
}

// fromSample reads a request sample into the type that makes such requests, so
// that a field which the type does not know fails the comparison.
func fromSample[T any](t testing.TB, name string) T {
	var v T
	require.NoError(t, json.Unmarshal([]byte(sample(t, name)), &v))
	return v
}

// Every request sample of the calls that we make is what the client sends.
func TestRequestSamples(t *testing.T) {
	ctx := context.Background()
	type trip struct {
		api  API
		call func(*Client) error
	}
	trips := map[string]trip{
		"stable_token.request.json": {APIStableToken, func(c *Client) error {
			_, err := c.StableToken(ctx, ourAppID, "0123456789abcdef0123456789abcdef", false)
			return err
		}},
		"custom-typing.request.json": {APITyping, func(c *Client) error { return c.Typing(ctx, canaryToken, sampleOpenID, true) }},
		"quota-get.request.json": {APIQuotaGet, func(c *Client) error {
			_, err := c.QuotaGet(ctx, canaryToken, APICustomSend)
			return err
		}},
		"template-send.request.json": {APITemplateSend, func(c *Client) error {
			_, err := c.TemplateSend(ctx, canaryToken, fromSample[TemplateMessage](t, "template-send.request.json"))
			return err
		}},
		"subscribe-bizsend.request.json": {APIBizSend, func(c *Client) error {
			_, err := c.BizSend(ctx, canaryToken, fromSample[SubscriptionMessage](t, "subscribe-bizsend.request.json"))
			return err
		}},
	}
	customs, err := filepath.Glob("testdata/api/custom-send-*.request.json")
	require.NoError(t, err)
	require.Len(t, customs, 13)
	for _, f := range customs {
		name := filepath.Base(f)
		trips[name] = trip{APICustomSend, func(c *Client) error {
			m := fromSample[CustomMessage](t, name)
			m.MsgType = ""
			return c.CustomSend(ctx, canaryToken, m)
		}}
	}
	for name, tr := range trips {
		t.Run(name, func(t *testing.T) {
			host := newFakeHost(t, 200, `{"errcode":0,"errmsg":"ok","access_token":"t","expires_in":7200}`)
			require.NoError(t, tr.call(newTestClient(t, Options{BaseURLs: []string{host.URL}})))
			require.Len(t, host.seen(), 1)
			got := host.seen()[0]
			require.JSONEq(t, sample(t, name), got.body)
			require.NotContains(t, got.body, `\u`)
			require.Equal(t, http.MethodPost, got.method)
			require.Equal(t, tr.api.Path(), got.path)
			require.Equal(t, "application/json; charset=utf-8", got.contentType)
			if tr.api != APIStableToken {
				require.Equal(t, []string{canaryToken}, got.query["access_token"])
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	ctx := context.Background()
	client := func(t *testing.T, name string) (*Client, *fakeHost) {
		host := newFakeHost(t, 200, sample(t, name))
		return newTestClient(t, Options{BaseURLs: []string{host.URL}}), host
	}
	t.Run("stable token", func(t *testing.T) {
		c, _ := client(t, "stable_token.response.json")
		got, err := c.StableToken(ctx, ourAppID, canarySecret, true)
		require.NoError(t, err)
		require.Equal(t, AccessToken{"91_EXAMPLEtokenBBBB", 5873 * time.Second}, got)
	})
	t.Run("token", func(t *testing.T) {
		c, host := client(t, "token.response.json")
		got, err := c.Token(ctx, ourAppID, canarySecret)
		require.NoError(t, err)
		require.Equal(t, AccessToken{"91_EXAMPLEtokenAAAA", 7200 * time.Second}, got)
		require.Equal(t, http.MethodGet, host.seen()[0].method)
		require.Equal(t, []string{canarySecret}, host.seen()[0].query["secret"])
	})
	t.Run("template", func(t *testing.T) {
		c, _ := client(t, "template-send.response.json")
		got, err := c.TemplateSend(ctx, "t", fromSample[TemplateMessage](t, "template-send.request.json"))
		require.NoError(t, err)
		require.Equal(t, SendResult{MsgID: "4102938475610293840"}, got)
	})
	t.Run("bizsend without id", func(t *testing.T) {
		c, _ := client(t, "subscribe-bizsend.response.json")
		got, err := c.BizSend(ctx, "t", fromSample[SubscriptionMessage](t, "subscribe-bizsend.request.json"))
		require.NoError(t, err)
		require.Equal(t, SendResult{}, got)
	})
	t.Run("quota", func(t *testing.T) {
		c, _ := client(t, "quota-get.response.json")
		got, err := c.QuotaGet(ctx, "t", APICustomSend)
		require.NoError(t, err)
		minute := Rate{Calls: 2000, Per: time.Minute}
		require.Equal(t, Quota{500000, 1234, 498766, minute, minute}, got)
	})
	for name, want := range map[string]UserPage{
		"user-get-page1.response.json": {10002, []string{"oEXAMPLE00001", "...9998 more...", "oEXAMPLE10000"}, "oEXAMPLE10000"},
		"user-get-page2.response.json": {10002, []string{"oEXAMPLE10001", "oEXAMPLE10002"}, "oEXAMPLE10002"},
		"user-get-last.response.json":  {10002, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, host := client(t, name)
			got, err := c.UserGet(ctx, "t", "oBEFORE")
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Equal(t, []string{"oBEFORE"}, host.seen()[0].query["next_openid"])
			got, err = c.UserGet(ctx, "t", want.Next)
			require.NoError(t, err)
			require.Empty(t, got.Next, "a page that leads to itself is the last one")
		})
	}
	t.Run("templates", func(t *testing.T) {
		host := newFakeHost(t, 200, `{"template_list":[{"template_id":"T1","title":"t","primary_industry":"a","deputy_industry":"b","content":"{{thing1.DATA}}","example":"e"}]}`)
		got, err := newTestClient(t, Options{BaseURLs: []string{host.URL}}).TemplateList(ctx, "t")
		require.NoError(t, err)
		require.Equal(t, []Template{{"T1", "t", "a", "b", "{{thing1.DATA}}", "e"}}, got)
	})
}

// The ids of messages come as numbers of 19 digits, as text, as zero or not.
func TestMessageIDs(t *testing.T) {
	for body, want := range map[string]SendResult{
		`{"errcode":0,"msgid":9223372036854775807}`:             {MsgID: "9223372036854775807"},
		`{"msgid":"9007199254740993"}`:                          {MsgID: "9007199254740993"},
		`{"errcode":"0","errmsg":"ok","msgid":0}`:               {},
		`{"errcode":0,"msgid":null}`:                            {},
		`{"errcode":0,"msgid":{"a":1}}`:                         {},
		`{"errcode":0,"msgid":"a b"}`:                           {},
		"\xef\xbb\xbf {\"errcode\":0,\"errmsg\":7,\"msgid\":5}": {MsgID: "5"},
		`{"errcode":44007,"errmsg":"repeated","msgid":5}`:       {MsgID: "5", Repeated: true},
	} {
		host := newFakeHost(t, 200, body)
		got, err := newTestClient(t, Options{BaseURLs: []string{host.URL}}).
			TemplateSend(context.Background(), "t", TemplateMessage{ToUser: "o1", TemplateID: "T", Data: Values(nil)})
		require.NoError(t, err, body)
		require.Equal(t, want, got, body)
	}
}

// Every error sample leads to the action that the table gives, with WeChat's
// words kept apart from the error's text.
func TestErrorSamples(t *testing.T) {
	want := map[string]Action{
		"error--1": ActionRetry, "error-40001": ActionRefresh, "error-40003": ActionUser, "error-40014": ActionRefresh,
		"error-40037": ActionTemplate, "error-40165": ActionRequest, "error-42001": ActionRefresh, "error-43004": ActionUser,
		"error-43101": ActionUser, "error-43116": ActionTemplate, "error-45009": ActionQuota, "error-45011": ActionSlow,
		"error-45015": ActionWindow, "error-45047": ActionWindow, "error-47001": ActionRequest, "error-47003": ActionRequest,
		"error-48001": ActionStopAPI, "error-48002": ActionUser, "error-48004": ActionStopAPI, "error-50002": ActionUser,
		"error-50005": ActionUser, "error-61007": ActionStopAccount, "token.error-40125": ActionStopAccount,
		"token.error-40164": ActionIP, "clear_quota.error-48006": ActionQuota, "mass-send.error-45028": ActionQuota,
		"mass-send.error-45066": ActionSlow,
	}
	files, err := filepath.Glob("testdata/api/*error-*.json")
	require.NoError(t, err)
	tested := 0
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".json")
		action, ok := want[name]
		if !ok {
			require.Contains(t, []string{"mass-send.error-45065", "tags-batchtagging.error-45171"}, name)
			continue
		}
		tested++
		t.Run(name, func(t *testing.T) {
			body := sample(t, name+".json")
			host := newFakeHost(t, 200, body)
			err := newTestClient(t, Options{BaseURLs: []string{host.URL}}).Typing(context.Background(), canaryToken, sampleOpenID, false)
			var e *APIError
			require.ErrorAs(t, err, &e)
			require.Equal(t, action, e.Action())
			var a struct {
				ErrCode int
				ErrMsg  string
			}
			require.NoError(t, json.Unmarshal([]byte(body), &a))
			require.Equal(t, a.ErrCode, e.Code)
			require.Equal(t, a.ErrMsg, e.Msg)
			require.NotContains(t, err.Error(), a.ErrMsg)
			require.Contains(t, err.Error(), string(action))
			require.False(t, e.NotSent)
			require.Len(t, host.seen(), 1, "the client retries nothing")
		})
	}
	require.Equal(t, len(want), tested)
}

func TestActions(t *testing.T) {
	require.Equal(t, ActionStopAccount, ActionOf(40001, APIStableToken))
	require.Equal(t, ActionStopAccount, ActionOf(40001, APIToken))
	require.Equal(t, ActionRefresh, ActionOf(40001, APICustomSend))
	require.Equal(t, ActionUnknown, ActionOf(123456, APICustomSend))
	require.Equal(t, ActionSuccess, ActionOf(45065, APICustomSend))
	require.Equal(t, ActionNone, ActionOf(0, APICustomSend))
	seen := map[int]Action{}
	for _, g := range codeGroups {
		for _, c := range g.codes {
			require.NotContains(t, seen, c, "a code is in one group only")
			seen[c] = g.action
		}
	}
	for action, kind := range map[int]fault.Kind{
		-1: fault.Ambiguous, 45011: fault.Limited, 40001: fault.Unavailable, 48001: fault.Stopped, 40164: fault.Stopped,
		43101: fault.Final, 45047: fault.Final, 47003: fault.Final, 43116: fault.Final, 45009: fault.Limited,
		41001: fault.Internal, 123456: fault.Final,
	} {
		err := error(&APIError{API: APICustomSend, Code: action})
		require.Equal(t, kind, fault.KindOf(err), action)
	}
	require.Equal(t, fault.Unavailable, fault.KindOf(&APIError{API: APIQuotaGet, Code: -1}))
	require.Equal(t, time.Minute, fault.RetryAfter(&APIError{API: APICustomSend, Code: 45011}))
}
