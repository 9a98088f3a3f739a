package kafka

import (
	"fmt"
	"strings"
	"sync"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"
	"go.uber.org/zap"
)

// bridgeOnce guards sarama's two process-wide switches. They are plain
// variables which running clients read without a lock, so they can only be set
// once, before the first client: the first logger given wins.
var bridgeOnce sync.Once

// bridge sends sarama's own chatter to the debug level and turns its metrics
// off: ours are in metrics.go, and go-metrics would keep a goroutine for ever.
func bridge(log *zap.Logger) {
	bridgeOnce.Do(func() {
		metrics.UseNilMetrics = true
		if log != nil {
			sarama.Logger = saramaLog{log.Named("sarama").WithOptions(zap.AddCallerSkip(1)).Sugar()}
		}
	})
}

type saramaLog struct{ s *zap.SugaredLogger }

func (l saramaLog) Print(v ...any)            { l.put(fmt.Sprint(v...)) }
func (l saramaLog) Printf(f string, v ...any) { l.put(fmt.Sprintf(f, v...)) }
func (l saramaLog) Println(v ...any)          { l.put(fmt.Sprintln(v...)) }
func (l saramaLog) put(s string)              { l.s.Debug(strings.TrimRight(s, "\n")) }
