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
	"strings"
	"time"

	"tidegate/pkg/wire"
)

// The targets.
const (
	bare        = "bare"
	realEngines = "real"     // the proxy role on Apache Kafka and Redis
	beside      = "beside"   // another build of the proxy, on the same engines as real
	embedded    = "embedded" // the proxy role on the engines of tidegate dev
)

// target is one server that takes the load.
type target struct {
	name    string
	addr    string
	ops     string         // operations listener of a proxy
	cpu     map[string]int // process ids by the name of the column
	effects *effects       // nil for bare
	last    float64        // answers per second of the last closed cell
}

// world is everything that runs.
type world struct {
	dir     string
	id      string
	writer  *writer
	targets []*target
	stack   []func() error
	phases  bool // print the door's histograms of each cell
}

func (w *world) target(name string) *target {
	for _, t := range w.targets {
		if t.name == name {
			return t
		}
	}
	return nil
}

func (w *world) start(ctx context.Context, s settings) (err error) {
	kafkaAddr, redisAddr := os.Getenv("TIDEGATE_TEST_KAFKA"), os.Getenv("TIDEGATE_TEST_REDIS")
	if kafkaAddr == "" || redisAddr == "" {
		return errors.New(`TIDEGATE_TEST_KAFKA and TIDEGATE_TEST_REDIS are not set: run deployments/dev/engines up, then eval "$(deployments/dev/engines env)"`)
	}
	w.id = "bench" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if w.writer, err = newWriter(); err != nil {
		return err
	}
	if w.dir, err = os.MkdirTemp("", "tidegate-bench"); err != nil {
		return err
	}
	w.stack = append(w.stack, func() error { return os.RemoveAll(w.dir) })
	for name, pkg := range map[string]string{"tidegate": ".", "bare": "./test/bench/bare"} {
		if err := command(ctx, ".", "go", "build", "-tags", "bench", "-o", filepath.Join(w.dir, name), pkg); err != nil {
			return err
		}
	}
	if s.targets.MatchString(bare) {
		if err := w.startBare(); err != nil {
			return err
		}
	}
	tidegate := filepath.Join(w.dir, "tidegate")
	// The proxy on real engines always runs: the report describes its engines.
	if err := w.startProxy(ctx, instance{realEngines, tidegate, kafkaAddr, redisAddr, s.parts, engineIDs(kafkaAddr, redisAddr)}); err != nil {
		return err
	}
	if s.beside != "" {
		if err := w.startProxy(ctx, instance{beside, s.beside, kafkaAddr, redisAddr, s.parts, engineIDs(kafkaAddr, redisAddr)}); err != nil {
			return err
		}
	}
	if s.targets.MatchString(embedded) {
		return w.startEmbedded(ctx, tidegate)
	}
	return nil
}

func engineIDs(kafkaAddr, redisAddr string) map[string]int {
	return map[string]int{"kafka": listenerOf(kafkaAddr), "redis": listenerOf(redisAddr)}
}

func (w *world) startBare() error {
	p, err := w.launch("bare", filepath.Join(w.dir, "bare"))
	if err != nil {
		return err
	}
	addr, err := p.line()
	p.attend()
	w.targets = append(w.targets, &target{name: bare, addr: addr, cpu: map[string]int{"door": p.cmd.Process.Pid}})
	return err
}

// launch starts a process of ours and remembers to stop it.
func (w *world) launch(name, path string, args ...string) (*process, error) {
	p, err := launch(name, w.dir, path, args...)
	if err != nil {
		return nil, err
	}
	w.stack = append(w.stack, p.stop)
	return p, nil
}

// startEmbedded starts the engines of tidegate dev in a process of their own,
// so that their CPU is told apart from the door's.
func (w *world) startEmbedded(ctx context.Context, tidegate string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := w.launch("engines", self, enginesCommand, filepath.Join(w.dir, "kafka"))
	if err != nil {
		return err
	}
	line, err := p.line()
	p.attend()
	if err != nil {
		return err
	}
	kafkaAddr, redisAddr, _ := strings.Cut(line, " ")
	return w.startProxy(ctx, instance{embedded, tidegate, kafkaAddr, redisAddr, wire.PartitionsEmbedded, map[string]int{"engines": p.cmd.Process.Pid}})
}

// instance is one proxy to start.
type instance struct {
	name, program        string
	kafkaAddr, redisAddr string
	partitions           int
	cpu                  map[string]int // of the engines, by the name of the column
}

// startProxy starts the proxy role as it is shipped: the configuration names
// engines and accounts and changes nothing else. Each has topics and keys of its
// own.
func (w *world) startProxy(ctx context.Context, i instance) error {
	id := w.id + i.name[:1]
	door, ops, err := freeAddrs()
	if err != nil {
		return err
	}
	file := filepath.Join(w.dir, i.name+".yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, configYAML, id, i.partitions, i.kafkaAddr, i.redisAddr, id, ghID, appID, token, aesKey, filepath.Join(w.dir, "spool-"+i.name)), 0o600); err != nil {
		return err
	}
	if err := command(ctx, w.dir, i.program, "topics", "--config", file); err != nil {
		return err
	}
	// Pushed before the proxy: topics are removed when nobody writes to them any more.
	e, err := newEffects(i.kafkaAddr, i.redisAddr, id)
	if err != nil {
		return err
	}
	w.stack = append(w.stack, e.close)
	p, err := w.launch("proxy-"+i.name, i.program, "proxy", "--config", file, "--set", "ops.addr="+ops, "--set", "proxy.http.addr="+door)
	if err != nil {
		return err
	}
	p.attend()
	if err := p.ready(ctx, func() (string, error) { return get(ctx, "http://"+ops+"/readyz") }); err != nil {
		return err
	}
	i.cpu["door"] = p.cmd.Process.Pid
	w.targets = append(w.targets, &target{name: i.name, addr: door, ops: ops, cpu: i.cpu, effects: e})
	return nil
}

const configYAML = `
log: {level: warn, format: json, hash_key: bench}
topics: {prefix: %[1]s, partitions: %[2]d, replication: 1, min_insync_replicas: 1, retention: 24h}
kafka: {brokers: ["%[3]s"]}
redis: {addrs: ["%[4]s"], prefix: %[5]s}
proxy: {spool: {dir: "%[10]s"}}
accounts:
  - {name: safe, mode: safe, gh_id: %[6]s, app_id: %[7]s, token: %[8]s, encoding_aes_key: %[9]s}
  - {name: plain, mode: plain, allow_from: [127.0.0.1], gh_id: %[6]sp, app_id: %[7]sp, token: %[8]s}
`

// stop ends what was started, last first.
func (w *world) stop() error {
	var errs []error
	for i := len(w.stack) - 1; i >= 0; i-- {
		errs = append(errs, w.stack[i]())
	}
	return errors.Join(errs...)
}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := (&http.Client{Timeout: 3 * time.Second}).Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	return string(b), err
}

// freeAddrs finds two ports that were free a moment ago.
func freeAddrs() (a, b string, err error) {
	one, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer one.Close()
	two, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer two.Close()
	return one.Addr().String(), two.Addr().String(), nil
}
