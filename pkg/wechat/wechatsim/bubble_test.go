package wechatsim

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// inProcess carries callbacks to a handler without sockets, so that a synctest
// bubble can move time. A status of 0 cuts the connection.
type inProcess struct {
	handler http.Handler
}

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	served := r.Clone(r.Context())
	served.Body = io.NopCloser(bytes.NewReader(body))
	w := httptest.NewRecorder()
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		p.handler.ServeHTTP(w, served)
	}()
	select {
	case crash := <-done:
		if crash != nil {
			return nil, io.ErrUnexpectedEOF
		}
		return w.Result(), nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// bubbleSim makes a simulator and a bot joined in-process. It must be called
// inside the bubble.
func bubbleSim(t *testing.T, cfg Config, answer func(w http.ResponseWriter, r received)) (*Sim, *bot) {
	t.Helper()
	b := &bot{t: t, mode: cfg.Accounts[0].Mode, answer: answer}
	for i := range cfg.Accounts {
		cfg.Accounts[i].CallbackURL = "http://bot.invalid/wx"
	}
	s, err := New(cfg, zap.NewNop(), WithTransport(inProcess{b}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, b
}

// anyone is the first follower.
func anyone(t *testing.T, s *Sim) string {
	t.Helper()
	ids, err := s.Followers("", 1)
	require.NoError(t, err)
	require.NotEmpty(t, ids)
	return ids[0]
}

// deliveries are the journal's delivery entries.
func deliveries(s *Sim) []Entry {
	out, _ := s.Journal().Read(0, 100_000, func(e *Entry) bool { return e.Kind == KindDelivery })
	return out
}

// passes waits for d of the bubble's time.
func passes(d time.Duration) { <-time.NewTimer(d).C }

// hang answers nothing until the delivery is given up.
func hang(_ http.ResponseWriter, r received) { <-r.gone }
