package redis

import (
	"context"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logBridge brings go-redis' own lines into our log. go-redis has one logger
// per process, so the client opened last gives it.
type logBridge struct{ log *zap.Logger }

// Printf is called by go-redis for pool, sentinel and cluster notices.
func (b logBridge) Printf(_ context.Context, format string, v ...any) {
	b.log.Info("redis driver", zap.String("notice", fmt.Sprintf(format, v...)))
}

// bridgeLog installs the bridge, at most five driver lines a minute: during an
// outage the driver repeats itself, and every failure is also returned to a
// caller who reports it once.
func bridgeLog(log *zap.Logger) {
	if log == nil {
		log = zap.NewNop()
	}
	sampled := log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Minute, 5, 0)
	}))
	goredis.SetLogger(logBridge{log: sampled})
}
