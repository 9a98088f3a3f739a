package receipts_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wire"
	"tidegate/receipts"
)

// journey puts a callback, its reply in two attempts, and what each of them tells
// into the queue, the last things first.
func (w *world) journey() (callback, reply string) {
	callback, ch := idOf(1)
	reply, rh := idOf(2)
	at := w.clock.now().UnixMilli()
	accepted := &wire.Receipt{Source: wire.FromSender, MessageKind: wire.KindReply, ID: reply, IdentityHash: rh, Account: "bank", OpenID: openID(1), CallbackID: callback,
		State: wire.Accepted, Attempt: 2, Line: "line-b", BornAt: at + 300, At: at + 900}
	sending := *accepted
	sending.State, sending.Attempt, sending.Line, sending.ErrCode, sending.Reason, sending.At = wire.Sending, 1, "line-a", -1, "system busy", at+500
	w.put(w.topics.Receipts(), accepted)
	w.put(w.topics.Receipts(), &sending)
	w.put(w.topics.Replies("bank"), &wire.Reply{ID: reply, IdentityHash: rh, CallbackID: callback, Ordinal: 1, Account: "bank", OpenID: openID(1),
		Content: wire.Content{Type: "text", Text: "12.50"}, Class: wire.PreferDuplicate, Rule: "balance", ReceivedAt: at, CreatedAt: at + 300})
	answered := &wire.Receipt{Source: wire.FromRobot, MessageKind: wire.KindCallback, ID: callback, IdentityHash: ch, Account: "bank", OpenID: openID(1), State: wire.Answered,
		Detail: "rule balance", BornAt: at, At: at + 301, Steps: []wire.Step{
			{At: at, Room: wire.FromDoor, What: "received", Detail: "claimed"},
			{At: at + 5, Room: wire.FromDoor, What: "queued", Detail: "partition 3 offset 42"},
			{At: at + 20, Room: wire.FromRobot, What: "called", Detail: "back end card answered after 250 ms"},
		}}
	w.put(w.topics.Receipts(), answered)
	w.put(w.topics.Receipts(), answered) // once more, as after a crash
	w.message(reply, wire.Accepted)
	w.message(callback, wire.Answered)
	return callback, reply
}

func TestOneTraceFromTheDoorToTheReceipt(t *testing.T) {
	each(t, func(w *world) {
		callback, reply := w.journey()
		require.Eventually(w, func() bool { return len(w.message(reply, wire.Accepted)["timeline"].([]any)) == 7 }, 30*time.Second, 10*time.Millisecond)
		for _, id := range []string{callback, reply} {
			_, got := w.call("ops", http.MethodGet, "/v1/messages/"+id, nil)
			var story [][2]any
			for _, s := range got["timeline"].([]any) {
				step := s.(map[string]any)
				what := step["state"]
				if what == nil {
					what = step["event"]
				}
				of := step["kind"]
				if of == nil {
					of = got["kind"]
				}
				story = append(story, [2]any{of, what})
			}
			require.Equal(w, [][2]any{{"callback", "received"}, {"callback", "queued"}, {"callback", "called"}, {"reply", "queued"},
				{"callback", "answered"}, {"reply", "sending"}, {"reply", "accepted"}}, story)
		}

		rec := httptest.NewRecorder()
		mux := http.NewServeMux()
		for pattern, h := range w.room.Ops() {
			mux.Handle(pattern, h)
		}
		mux.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/ops/v1/trace/"+callback, nil))
		require.Equal(w, http.StatusOK, rec.Code)
		var v receipts.TraceView
		require.NoError(w, json.Unmarshal(rec.Body.Bytes(), &v))
		require.Len(w, v.Messages, 2)
		require.Len(w, v.Timeline, 7)
		require.Equal(w, []string{"line-a", "line-b"}, []string{v.Timeline[5].Line, v.Timeline[6].Line})
		require.NotContains(w, rec.Body.String(), openID(1), "operations see the keyed hash (S50)")
		require.Contains(w, rec.Body.String(), w.hasher.OpenID(openID(1)))
		none, _ := idOf(99)
		for path, code := range map[string]int{"/ops/v1/trace/12": http.StatusBadRequest, "/ops/v1/trace/" + none: http.StatusNotFound} {
			rec := httptest.NewRecorder()
			mux.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
			require.Equal(w, code, rec.Code)
		}
	})
}
