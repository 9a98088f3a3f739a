package app

import (
	"math"
	"os"
	"runtime/debug"

	"go.uber.org/zap"
)

// Garbage is collected when the heap has grown to five times what is in use,
// instead of twice: what is in use at the door is small (some 10 MB at 512
// connections), so that Go's default collects dozens of times a second and costs
// every seventh cycle of an acknowledgement. Towards the limit it collects as
// often as it must, so a role stays within the 512 MB that it is given.
const (
	heapGrowth = 400
	heapLimit  = 384 << 20
)

// tuneMemory sets both, unless whoever runs the process has chosen (GOGC,
// GOMEMLIMIT).
func tuneMemory(log *zap.Logger) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		debug.SetMemoryLimit(heapLimit)
		limit = heapLimit
	}
	log.Debug("memory", zap.Int64("limit_bytes", limit))
}
