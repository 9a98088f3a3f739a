package receipts_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/api"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/wire"
)

func ids(page map[string]any) []string {
	var out []string
	for _, m := range page["messages"].([]any) {
		out = append(out, m.(map[string]any)["id"].(string))
	}
	return out
}

func TestListPagesThroughASelection(t *testing.T) {
	each(t, func(w *world) {
		const n = 23
		for i := range n {
			w.outcome(w.push(i), wire.Dead)
		}
		w.settled(n, wire.Dead)
		seen := map[string]bool{}
		query := "state=dead,expired&kind=push&limit=5&from=" + url.QueryEscape(time.Now().Add(-time.Hour).Format(time.RFC3339))
		cursor, pages := "", 0
		for {
			code, page := w.call("card", http.MethodGet, "/v1/messages?"+query+cursor, nil)
			require.Equal(w, http.StatusOK, code, "%v", page)
			pages++
			for _, id := range ids(page) {
				require.False(w, seen[id], "no message comes twice")
				seen[id] = true
			}
			next, more := page["next"].(string)
			if !more {
				break
			}
			cursor = "&cursor=" + next
			code, page = w.call("card", http.MethodGet, "/v1/messages?state=expired"+cursor, nil)
			require.Equal(w, http.StatusBadRequest, code)
			require.Equal(w, "cursor", page["field"])
			code, _ = w.call("till", http.MethodGet, "/v1/messages?"+query+cursor, nil)
			require.Equal(w, http.StatusBadRequest, code, "another app's cursor")
		}
		require.Len(w, seen, n)
		require.Equal(w, 5, pages)
	})
}

func TestFiltersOfTheList(t *testing.T) {
	each(t, func(w *world) {
		a, b := w.push(1), w.push(2)
		b.Account, b.App, b.TemplateID, b.ResendOf = "shop", "till", "tpl-2", a.ID
		w.queue(a)
		w.queue(b)
		w.outcome(b, wire.Rejected, func(r *wire.Receipt) { r.ErrCode, r.PossibleDuplicate, r.ResendOf = 40037, true, a.ID })
		w.message(a.ID, wire.Queued)
		w.message(b.ID, wire.Rejected)
		for query, want := range map[string][]string{
			"":                            {a.ID, b.ID},
			"id=" + a.ID:                  {a.ID},
			"openid=" + openID(2):         {b.ID},
			"app=till":                    {b.ID},
			"account=bank":                {a.ID},
			"reference=bill+1":            {a.ID},
			"template_id=tpl-2":           {b.ID},
			"resend_of=" + a.ID:           {b.ID},
			"state=queued":                {a.ID},
			"state=queued,rejected":       {a.ID, b.ID},
			"kind=reply":                  nil,
			"errcode=40037":               {b.ID},
			"possible_duplicate=true":     {b.ID},
			"to=2020-01-01T00:00:00Z":     nil,
			"reference=%27%20OR%201%3D1":  nil,
			"openid=%25":                  nil,
			"account=bank&state=rejected": nil,
		} {
			code, page := w.call("ops", http.MethodGet, "/v1/messages?"+query, nil)
			require.Equal(w, http.StatusOK, code, "%s: %v", query, page)
			require.ElementsMatch(w, want, ids(page), query)
		}
	})
}

func TestRefusalsNameTheField(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t))
	for query, field := range map[string]string{
		"/v1/messages?stat=dead":                         "stat",
		"/v1/messages?state=broken":                      "state",
		"/v1/messages?state=dead&state=held":             "state",
		"/v1/messages?kind=letter":                       "kind",
		"/v1/messages?limit=0":                           "limit",
		"/v1/messages?limit=501":                         "limit",
		"/v1/messages?errcode=x":                         "errcode",
		"/v1/messages?from=yesterday":                    "from",
		"/v1/messages?to=9999-01-01T00:00:00Z":           "to",
		"/v1/messages?cursor=abc":                        "cursor",
		"/v1/messages?account=A%20B":                     "account",
		"/v1/messages?possible_duplicate=maybe":          "possible_duplicate",
		"/v1/messages?id=%00":                            "id",
		"/v1/messages/12345":                             "id",
		"/v1/reports/failures?format=pdf":                "format",
		"/v1/reports/failures?from=2026-01-01T00:00:00Z": "from",
		"/v1/reports/failures?to=2020-01-01T00:00:00Z&from=2021-01-01T00:00:00Z": "from",
	} {
		code, problem := w.call("ops", http.MethodGet, query, nil)
		require.Equal(t, http.StatusBadRequest, code, query)
		require.Equal(t, field, problem["field"], "%s: %v", query, problem)
		require.NotEmpty(t, problem["do"])
	}
}

// Every route, without a key and with a key that lacks its scope (S59, S60).
func TestRoutesAskForTheirScope(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t))
	w.key("pusher", []string{api.PushesWrite}, "*")
	id, _ := idOf(1)
	for _, route := range []struct{ method, path string }{
		{http.MethodGet, "/v1/messages"}, {http.MethodGet, "/v1/messages/" + id},
		{http.MethodPost, "/v1/messages:resend"}, {http.MethodGet, "/v1/reports/failures"},
	} {
		code, _ := w.call("nobody", route.method, route.path, nil)
		require.Equal(t, http.StatusUnauthorized, code, route.path)
		code, problem := w.call("pusher", route.method, route.path, nil)
		require.Equal(t, http.StatusForbidden, code, route.path)
		require.Contains(t, problem["detail"], "lacks the scope")
		code, _ = w.call("ops", http.MethodDelete, route.path, nil)
		require.Equal(t, http.StatusMethodNotAllowed, code, route.path)
	}
	code, _ := w.call("ops", http.MethodGet, "/v1/receipts", nil)
	require.Equal(t, http.StatusNotFound, code)
}

// An app sees its own messages in its own accounts and nothing else.
func TestAppsAreApart(t *testing.T) {
	each(t, func(w *world) {
		mine, foreign := w.push(1), w.push(2)
		foreign.App, foreign.Account = "till", "shop"
		reply, hash := idOf(3)
		w.outcome(mine, wire.Dead)
		w.outcome(foreign, wire.Dead)
		w.put(w.topics.Receipts(), &wire.Receipt{Source: wire.FromSender, MessageKind: wire.KindReply, ID: reply, IdentityHash: hash, Account: "bank", OpenID: openID(1), State: wire.Accepted, At: w.clock.now().UnixMilli()})
		w.message(mine.ID, wire.Dead)
		w.message(foreign.ID, wire.Dead)
		w.message(reply, wire.Accepted)

		_, page := w.call("card", http.MethodGet, "/v1/messages", nil)
		require.Equal(w, []string{mine.ID}, ids(page))
		for _, id := range []string{foreign.ID, reply} {
			code, _ := w.call("card", http.MethodGet, "/v1/messages/"+id, nil)
			require.Equal(w, http.StatusNotFound, code, "as if it were not there")
		}
		code, problem := w.call("card", http.MethodGet, "/v1/messages?app=till", nil)
		require.Equal(w, http.StatusForbidden, code)
		require.Equal(w, "app", problem["field"])
		code, problem = w.call("till", http.MethodGet, "/v1/messages?account=bank", nil)
		require.Equal(w, http.StatusForbidden, code)
		require.Equal(w, "account", problem["field"])
		_, report := w.call("card", http.MethodGet, "/v1/reports/failures", nil)
		require.Equal(w, "1", fmt.Sprint(report["total"]))

		// A key for all apps, but for one account.
		w.key("shopkeeper", []string{api.MessagesRead, api.AllApps}, "shop")
		_, page = w.call("shopkeeper", http.MethodGet, "/v1/messages", nil)
		require.Equal(w, []string{foreign.ID}, ids(page))
		code, _ = w.call("shopkeeper", http.MethodGet, "/v1/messages/"+mine.ID, nil)
		require.Equal(w, http.StatusNotFound, code)
	})
}

func TestTwinsOfAnIDAreShownTogether(t *testing.T) {
	each(t, func(w *world) {
		p := w.push(1)
		w.outcome(p, wire.Dead)
		w.outcome(p, wire.Rejected, func(r *wire.Receipt) { r.IdentityHash = "ff" })
		w.settled(1, wire.Rejected)
		got := w.message(p.ID, wire.Dead)
		require.Len(w, got["twins"], 1)
		require.Equal(w, "rejected", got["twins"].([]any)[0].(map[string]any)["state"])
	})
}
