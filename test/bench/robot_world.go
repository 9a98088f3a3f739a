//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/redis"
)

// robotAccount is the account whose callbacks are worked.
const robotAccount = "bench"

// robotWorld is what outlives a run: the programs, the engines, the back end.
type robotWorld struct {
	dir, id              string
	kafkaAddr, redisAddr string
	backend              string
	admin                *kafka.Admin
	producer             *kafka.Producer
	stack                []func() error
}

func (w *robotWorld) open(ctx context.Context) (err error) {
	w.kafkaAddr, w.redisAddr = os.Getenv("TIDEGATE_TEST_KAFKA"), os.Getenv("TIDEGATE_TEST_REDIS")
	if w.kafkaAddr == "" || w.redisAddr == "" {
		return errors.New(`TIDEGATE_TEST_KAFKA and TIDEGATE_TEST_REDIS are not set: run deployments/dev/engines up, then eval "$(deployments/dev/engines env)"`)
	}
	w.id = "benchr" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if w.dir, err = os.MkdirTemp("", "tidegate-bench"); err != nil {
		return err
	}
	w.stack = append(w.stack, func() error { return os.RemoveAll(w.dir) })
	for name, pkg := range map[string]string{"tidegate": ".", "copy": "./test/bench/copy"} {
		if err := command(ctx, ".", "go", "build", "-tags", "bench", "-o", filepath.Join(w.dir, name), pkg); err != nil {
			return err
		}
	}
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{w.kafkaAddr}
	if w.admin, err = kafka.NewAdmin(cfg); err != nil {
		return err
	}
	w.stack = append(w.stack, w.admin.Close)
	// Nothing of the fill is measured: large batches, and room for all of one.
	if w.producer, err = kafka.NewProducer(cfg, kafka.ProducerOptions{Linger: 5 * time.Millisecond}, zap.NewNop(), nil); err != nil {
		return err
	}
	w.stack = append(w.stack, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return w.producer.Close(ctx)
	})
	return w.startBackend(ctx)
}

// startBackend serves in this process, so that its CPU is in the column load.
func (w *robotWorld) startBackend(ctx context.Context) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	answer := []byte(`{"balance":"12.50"}`)
	srv := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rw.Header()["Content-Type"] = []string{"application/json"}
		_, _ = rw.Write(answer)
	})}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	w.backend = "http://" + ln.Addr().String()
	w.stack = append(w.stack, func() error {
		err := srv.Close()
		if e := <-done; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	})
	return nil
}

func (w *robotWorld) stop() error {
	var errs []error
	for i := len(w.stack) - 1; i >= 0; i-- {
		errs = append(errs, w.stack[i]())
	}
	return errors.Join(errs...)
}

// remove deletes the topics, so that runs do not fill a disk.
func (st *station) remove() {
	e := &effects{broker: st.w.kafkaAddr, all: append(append(st.names.Shared(), st.names.OfAccount(robotAccount)...), st.copied)}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := e.deleteTopics(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

// describe is where the figures are from.
func (w *robotWorld) describe(ctx context.Context) machine {
	rc := redis.DefaultConfig()
	rc.Addrs, rc.Timeout = []string{w.redisAddr}, 5*time.Second
	c, err := redis.Open(rc, zap.NewNop())
	if err != nil {
		return describe(ctx, w.admin, nil)
	}
	defer c.Close()
	return describe(ctx, w.admin, c)
}

// The robot as it is shipped: the configuration names engines, an account and a
// back end that bears everything, and changes nothing else. The rule's level is
// the one that is never refused, since all of the callbacks wait from the start.
const robotYAML = `
log: {level: warn, format: json, hash_key: bench}
topics: {prefix: %[1]s, partitions: %[2]d, replication: 1, min_insync_replicas: 1, retention: 24h}
kafka: {brokers: ["%[3]s"]}
redis: {addrs: ["%[4]s"], prefix: %[1]s}
accounts:
  - {name: bench, mode: safe, gh_id: %[5]s, app_id: %[6]s, token: %[7]s, encoding_aes_key: Qm7rT0xkV3sZ9bYh2LdNcP5wEaGfJu8oXiKyRzMt4Bq}
rules: %[8]s
robot:
  backends:
    - {name: core, base_url: "%[9]s", rate: 100000, burst: 10000, concurrency: 1000}
`

const robotRulesYAML = `
version: 1
fallback: "busy"
rules:
  - name: parcel
    match: {message_type: text}
    level: vital
    %s
`
