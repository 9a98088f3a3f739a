package wechatsim

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// control makes a request to the control surface and returns its answer.
func control(t *testing.T, s *Sim, method, path, body string, want int) map[string]any {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(method, "/sim/v1/"+path, strings.NewReader(body)))
	require.Equal(t, want, w.Code, w.Body.String())
	var out map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &out), w.Body.String())
	return out
}

func TestControlSurface(t *testing.T) {
	b, s := replyBot(t, ModeSafe)
	added := control(t, s, http.MethodPost, "followers", `{"count":2}`, http.StatusOK)
	require.Len(t, added["openids"], 2)
	require.Len(t, control(t, s, http.MethodGet, "followers?limit=7", "", http.StatusOK)["openids"], 7)

	said := control(t, s, http.MethodPost, "say", `{"text":"你好","mark":true}`, http.StatusOK)
	require.Equal(t, true, said["acked"])
	require.NotEmpty(t, said["token"])
	control(t, s, http.MethodPost, "say", `{"type":"image"}`, http.StatusOK)
	control(t, s, http.MethodPost, "say", `{"text":"满意","menu_item":"101"}`, http.StatusOK)
	control(t, s, http.MethodPost, "menu", `{"key":"BALANCE"}`, http.StatusOK)
	control(t, s, http.MethodPost, "menu", `{"url":"https://example.com/"}`, http.StatusOK)
	control(t, s, http.MethodPost, "scan", `{"scene":"shop","mark":true}`, http.StatusOK)
	control(t, s, http.MethodPost, "subscribe", `{"scene":"shop"}`, http.StatusOK)
	control(t, s, http.MethodPost, "location", `{}`, http.StatusOK)
	control(t, s, http.MethodPost, "raw", `{"xml":"<xml><Broken></xml>"}`, http.StatusOK)
	control(t, s, http.MethodPost, "unsubscribe", `{}`, http.StatusOK)
	var names []string
	for _, r := range b.received() {
		names = append(names, strings.TrimPrefix(r.fields["MsgType"]+"/"+r.fields["Event"], "event/"))
	}
	require.Equal(t, []string{"text/", "image/", "text/", "CLICK", "VIEW", "SCAN", "subscribe", "LOCATION", "/", "unsubscribe"}, names)
	require.Equal(t, "qrscene_shop", b.received()[6].fields["EventKey"])

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, s.Idle(ctx))
	v := control(t, s, http.MethodGet, "verdict?grace=1s", "", http.StatusOK)
	require.Equal(t, true, v["ok"])
	replies, isObject := v["replies"].(map[string]any)
	require.True(t, isObject)
	require.EqualValues(t, 2, replies["answered"])
}

func TestControlRefusesMistakes(t *testing.T) {
	s := quietSim(t, nil)
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{http.MethodPost, "say", `{"text":"x"}`, 400, "no callback_url"},
		{http.MethodPost, "say", `{"txt":"x"}`, 400, `unknown field "txt"`},
		{http.MethodPost, "say", `{"text":"x"}{}`, 400, "one JSON object"},
		{http.MethodPost, "say", `{"text":"x","account":"wxnone"}`, 404, testAppID},
		{http.MethodPost, "menu", `{}`, 400, "name the menu key"},
		{http.MethodPost, "scan", `{}`, 400, "scene"},
		{http.MethodPost, "raw", `{}`, 400, "xml"},
		{http.MethodPost, "followers", `{"count":0}`, 400, "at least one"},
		{http.MethodPost, "followers", `{"count":2000000}`, 400, "the most is"},
		{http.MethodPost, "refuse", `{"openid":"oNobody"}`, 404, "unknown follower"},
		{http.MethodPost, "load", `{"count":1}`, 400, "no callback_url"},
		{http.MethodPost, "load", `{"rate":1}`, 400, "so that it ends"},
		{http.MethodPost, "load", `{"count":1,"loop":"open"}`, 400, "needs a rate"},
		{http.MethodPost, "load", `{"for":20}`, 400, `"20s"`},
		{http.MethodPost, "faults", `{"faults":[{"do":"explode"}]}`, 400, "unknown fault"},
		{http.MethodPost, "faults", `{"faults":[{"do":"errcode"}]}`, 400, "other than 0"},
		{http.MethodPost, "faults", `{"faults":[{"do":"reset","account":"wxnone"}]}`, 404, "unknown account"},
		{http.MethodPost, "callback", `{"url":"ftp://x"}`, 400, "http"},
		{http.MethodGet, "verdict?grace=5", "", 400, `"5s"`},
		{http.MethodGet, "followers?limit=0", "", 400, "limit"},
		{http.MethodGet, "journal?after=x", "", 400, "after"},
	} {
		out := control(t, s, c.method, c.path, c.body, c.status)
		require.Contains(t, out["error"], c.says, "%+v", c)
	}
}

func TestControlIsClosedToOtherOrigins(t *testing.T) {
	s := quietSim(t, nil)
	r := httptest.NewRequest(http.MethodPost, "/sim/v1/followers", strings.NewReader(`{"count":1}`))
	r.Header.Set("Origin", "https://evil.example")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	require.Equal(t, http.StatusForbidden, w.Code)
}

func TestJournalStreamsAndFilters(t *testing.T) {
	_, s := replyBot(t, ModePlain)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+"/sim/v1/journal?follow=1&kind=delivery&limit=2", nil)
	require.NoError(t, err)
	resp, err := s.client.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	for range 2 {
		_, err := s.Act(ctx, "", Text(anyone(t, s), "x"))
		require.NoError(t, err)
	}
	lines := bufio.NewScanner(resp.Body)
	for range 2 {
		require.True(t, lines.Scan())
		var e Entry
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		require.Equal(t, KindDelivery, e.Kind)
		require.Equal(t, JudgedSuccess, e.Judged)
		require.Greater(t, e.Answered, e.Sent)
	}
	require.False(t, lines.Scan(), "the limit ends the stream")
}

func TestAnnouncedPush(t *testing.T) {
	s := quietSim(t, nil)
	out := control(t, s, http.MethodPost, "expect", `{}`, http.StatusOK)
	require.EqualValues(t, 1, s.Verdict(0).Pushes.Lost)
	token := stable(t, s, false).Token
	body := templateTo(fmt.Sprint(out["openid"]), "T", "c1", fmt.Sprintf(`{"thing1":{"value":%q}}`, out["mark"]))
	require.Zero(t, post(t, s, PathTemplateSend, token, body).Errcode)
	require.True(t, s.Verdict(0).OK)
}
