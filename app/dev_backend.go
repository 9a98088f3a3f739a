package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"

	"tidegate/pkg/run"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/robot/backend"
)

// devSecrets reads the account of a data directory, or makes one: the secrets
// must be the same when a run goes on after a restart.
func devSecrets(path string) (wechatsim.Account, error) {
	var a wechatsim.Account
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		a = freshAccount(wechatsim.ModeSafe, "")
		a.Followers = devFollowers
		b, err = json.Marshal(a) //nolint:gosec // the secrets of a simulated account, into a file of mode 0600
		if err != nil {
			return a, err
		}
		return a, os.WriteFile(path, b, 0o600)
	case err != nil:
		return a, fmt.Errorf("account of the data directory: %w", err)
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return a, fmt.Errorf("account of the data directory %s: %w (remove the directory to begin anew)", path, err)
	}
	return a, nil
}

// startBackend runs the small business system that menu buttons ask.
func (w *devWorld) startBackend() error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/echo", echo)
	cfg := run.DefaultHTTPConfig()
	cfg.Addr = "127.0.0.1:0"
	s, err := run.NewHTTPServer("business system", cfg, mux, w.log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	w.stack.Push("business system", func(context.Context) error { cancel(); return <-ended })
	w.cfg.Robot.Backends = devBackends("http://" + s.Addr())
	return nil
}

// echo answers what it was asked, as a balance query would. It demands the
// idempotency key that every call of the robot carries.
func echo(rw http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Idempotency-Key") == "" {
		http.Error(rw, `{"error":"Idempotency-Key is missing"}`, http.StatusBadRequest)
		return
	}
	var q struct {
		Key string `json:"key"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 64<<10)).Decode(&q); err != nil {
		http.Error(rw, `{"error":"bad JSON"}`, http.StatusBadRequest)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(map[string]string{"echo": q.Key, "trace": rand.Text()})
}

// devBackends names the business system as the rules do.
func devBackends(url string) []backend.Config {
	return []backend.Config{{Name: "core", BaseURL: url, Rate: 1000, Burst: 50, Concurrency: 50}}
}
