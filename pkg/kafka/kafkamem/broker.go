// Package kafkamem is the embedded Kafka-protocol broker: kfake with a data
// directory, for one machine, for development, tests and small installations.
// There is one broker and no replication.
//
// Invariants: one process per directory (a lock on it is taken first, since the
// broker itself would open a directory twice); a restart in the same directory
// keeps the address, the topics, the records and the groups' offsets; retention
// is applied every minute.
//
// On failure: a process that is killed loses nothing that was acknowledged; a
// machine that loses power may lose the last moments unless Durable is set, and
// even that is best effort. A start replays what is kept: retention bounds the
// start as well as the disk.
package kafkamem

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Options of the embedded broker. The zero value keeps everything in memory on
// a free port of 127.0.0.1.
type Options struct {
	// Dir keeps the state; empty keeps it in memory.
	Dir string
	// Addr is host:port to listen on; empty means 127.0.0.1 and the port that Dir
	// remembers, or a free one.
	Addr string
	// Durable syncs every batch to the disk before it is acknowledged: far slower,
	// and the only protection against power loss.
	Durable bool
	// Partitions of a topic created without a number. Default 4: each partition
	// costs a sync of its own when Durable.
	Partitions int
	// RetainBytes bounds each partition, RetainFor the age of its records, where a
	// topic says nothing else. Defaults 1 GiB and 7 days. What lies beyond is
	// deleted whether or not it was read, as in Kafka: watch the lag's Skipped.
	RetainBytes int64
	RetainFor   time.Duration
}

func (o Options) withDefaults() Options {
	if o.Partitions == 0 {
		o.Partitions = 4
	}
	if o.RetainBytes == 0 {
		o.RetainBytes = 1 << 30
	}
	if o.RetainFor == 0 {
		o.RetainFor = 7 * 24 * time.Hour
	}
	return o
}

// retentionEvery is the pause between two looks at what may be deleted: kfake
// does not do it by itself.
const retentionEvery = time.Minute

// Broker is a running broker.
type Broker struct {
	cluster *kfake.Cluster
	addr    string
	lock    *dirLock
	close   sync.Once
	quit    chan struct{}
	ended   chan struct{}
}

// Start runs a broker. It fails when another process holds the directory, or
// when the address is taken.
func Start(o Options) (*Broker, error) {
	o = o.withDefaults()
	if o.Partitions < 0 || o.RetainBytes < 0 || o.RetainFor < 0 {
		return nil, errors.New("start embedded kafka: partitions and retention must be positive")
	}
	var lock *dirLock
	if o.Dir != "" {
		var err error
		if lock, err = lockDir(o.Dir); err != nil {
			return nil, err
		}
	}
	b, err := start(o)
	if err != nil {
		return nil, errors.Join(err, lock.release())
	}
	b.lock = lock
	go b.retain()
	return b, nil
}

func start(o Options) (*Broker, error) {
	ln, err := listen(o)
	if err != nil {
		return nil, err
	}
	addr := ln.Addr().String()
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.DefaultNumPartitions(o.Partitions),
		kfake.ClusterID("tidegate-embedded"),
		kfake.GroupMinSessionTimeout(time.Second),
		kfake.ListenFn(func(string, string) (net.Listener, error) { return ln, nil }),
		kfake.BrokerConfigs(map[string]string{
			"log.retention.bytes": strconv.FormatInt(o.RetainBytes, 10),
			"log.retention.ms":    strconv.FormatInt(o.RetainFor.Milliseconds(), 10),
			"log.segment.bytes":   strconv.FormatInt(max(1<<20, min(16<<20, o.RetainBytes/4)), 10),
		}),
	}
	if o.Dir != "" {
		opts = append(opts, kfake.DataDir(filepath.Join(o.Dir, "log")))
		if o.Durable {
			opts = append(opts, kfake.SyncWrites())
		}
	}
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start embedded kafka on %s in %q: %w", addr, o.Dir, err), ln.Close())
	}
	b := &Broker{cluster: c, addr: addr, quit: make(chan struct{}), ended: make(chan struct{})}
	if o.Dir != "" {
		if err := os.WriteFile(addrFile(o.Dir), []byte(addr+"\n"), 0o600); err != nil {
			c.Close()
			return nil, fmt.Errorf("start embedded kafka: remember the address: %w", err)
		}
	}
	return b, nil
}

func addrFile(dir string) string { return filepath.Join(dir, "address") }

// listen opens the given address, or the remembered one, or a free one. Chosen
// ports lie below the range from which systems take the ports of outgoing
// connections, so that nobody has taken it by accident at the next start.
func listen(o Options) (net.Listener, error) {
	if o.Addr != "" {
		return open(o.Addr, "choose another address")
	}
	if o.Dir == "" {
		return open("127.0.0.1:0", "")
	}
	old, err := os.ReadFile(addrFile(o.Dir))
	if err == nil && len(old) > 0 {
		return open(strings.TrimSpace(string(old)), "stop what listens there, or remove "+addrFile(o.Dir)+" to take another")
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("start embedded kafka: %w", err)
	}
	for range 50 {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.N(10000)))
		if err == nil {
			return ln, nil
		}
	}
	return open("127.0.0.1:0", "")
}

func open(addr, advice string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("start embedded kafka: cannot listen on %s (%s): %w", addr, advice, err)
	}
	return ln, nil
}

func (b *Broker) retain() {
	defer close(b.ended)
	t := time.NewTicker(retentionEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			b.ApplyRetention()
		case <-b.quit:
			return
		}
	}
}

// ApplyRetention deletes at once what the topics' bounds allow to delete; it
// happens every minute by itself. Not after Close.
func (b *Broker) ApplyRetention() { b.cluster.ApplyRetention() }

// Addr is the bootstrap address, host:port.
func (b *Broker) Addr() string { return b.addr }

// Close writes everything to the directory, stops, and lets the directory go. It
// may be called twice.
func (b *Broker) Close() error {
	var err error
	b.close.Do(func() {
		close(b.quit)
		<-b.ended
		b.cluster.Close()
		err = b.lock.release()
	})
	return err
}
