package wechatsim

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// FuzzAnswer: whatever a server answers is judged, and only the three accepted
// forms are accepted.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{"", "success", `"success"`, "<xml>", "<xml><Encrypt>x</Encrypt></xml>", passiveText(sampleUser, testGhID, "hi")} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, mode := range []string{ModePlain, ModeCompatible, ModeSafe} {
			judged, _, err := testSealer(t, mode).answerTo(Text(sampleUser, "x"), body)
			require.Equal(t, err == nil, accepted(judged))
			if mode == ModeSafe && judged == JudgedPassive {
				require.Contains(t, string(body), "Encrypt")
			}
		}
	})
}

// FuzzAPIBody: every request gets JSON with an errcode, and nothing but a
// well-formed message to a known user is applied.
func FuzzAPIBody(f *testing.F) {
	cfg := testConfig(ModePlain)
	s, err := New(cfg, zap.NewNop())
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, s.Close()) })
	token := s.accounts[0].stable.issue(s.clock.Now(), 1<<50, 0).text
	for _, seed := range []string{"", "{", "{}", "[]", textTo("oX", "x"), templateTo("oX", "T", "c", someData), `{"touser":{}}`, "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{PathCustomSend, PathTemplateSend, PathBizSend, PathCustomTyping, PathQuotaGet, PathUserBatch, PathStableToken} {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, path+"?access_token="+token, bytes.NewReader(body)))
			if w.Code != http.StatusRequestEntityTooLarge {
				require.Equal(t, http.StatusOK, w.Code)
				require.Contains(t, w.Body.String(), `"errcode":`)
			}
		}
		require.Zero(t, s.Verdict(0).Pushes.Visible, "no follower was named")
	})
}

// FuzzReadJournal: damaged files give an error or a shorter journal.
func FuzzReadJournal(f *testing.F) {
	f.Add([]byte("{}\n{}"))
	f.Add(encodeJSON(Entry{Seq: 1, Kind: KindNote}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		entries, size, err := ReadJournal(bytes.NewReader(raw))
		if err != nil {
			return
		}
		again, sameSize, err := ReadJournal(bytes.NewReader(raw[:size]))
		require.NoError(t, err)
		require.Equal(t, size, sameSize)
		require.Len(t, again, len(entries))
	})
}
