package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// What answers at --ops is not always ours: it must not steer the terminal of
// whoever asks.
func TestARefusalDoesNotSteerTheTerminal(t *testing.T) {
	for _, errcode := range []string{"invalid", "unavailable"} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]string{
				"errcode": errcode, "detail": "limit: \x1b]0;owned\x07 use 1\r\nto 500" + strings.Repeat(" a", 5000), "do": "ask \u202eagain\x9b2J",
			})
		}))
		defer srv.Close()
		c, err := newOpsClient(srv.URL, "")
		require.NoError(t, err)
		_, err = c.get(t.Context(), "/ops/v1/queues", nil, &struct{}{})
		require.ErrorContains(t, err, "use 1??to 500")
		require.Less(t, len(err.Error()), 3000)
		require.NotContains(t, err.Error(), "\u202e")
		require.Equal(t, -1, strings.IndexFunc(err.Error(), unicode.IsControl))
	}
}
