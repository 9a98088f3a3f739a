package kafka

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"
	"go.uber.org/zap"
)

// saramaOut is the package's only state, because sarama's logger is one for the
// whole process: a plain variable that running clients read without a lock. It
// is therefore set once, before the first client, to a forwarder; the first
// logger given is where it forwards to.
var saramaOut struct {
	once sync.Once
	to   atomic.Pointer[zap.Logger]
}

// bridge sends sarama's own chatter to the debug level and turns its metrics
// off: ours are in metrics.go, and go-metrics would keep a goroutine for ever.
func bridge(log *zap.Logger) {
	if log != nil {
		saramaOut.to.CompareAndSwap(nil, log.Named("sarama").WithOptions(zap.WithCaller(false)))
	}
	saramaOut.once.Do(func() {
		metrics.UseNilMetrics = true
		sarama.Logger = saramaLog{}
	})
}

type saramaLog struct{}

func (l saramaLog) Print(v ...any)            { l.put(func() string { return fmt.Sprint(v...) }) }
func (l saramaLog) Printf(f string, v ...any) { l.put(func() string { return fmt.Sprintf(f, v...) }) }
func (l saramaLog) Println(v ...any)          { l.put(func() string { return fmt.Sprintln(v...) }) }

// put formats only what is wanted: sarama writes a line for every batch that it
// repeats.
func (l saramaLog) put(text func() string) {
	log := saramaOut.to.Load()
	if log == nil || !log.Core().Enabled(zap.DebugLevel) {
		return
	}
	log.Debug(strings.TrimRight(text(), "\n"))
}
