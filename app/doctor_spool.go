package app

import (
	"context"
	"errors"
	"os"
	"time"

	"tidegate/proxy/spool"
)

// checkSpool looks at the door's disk without writing to it: whether it can be
// written the door itself says at its start.
func (d *doctor) checkSpool(context.Context) []finding {
	dir := d.cfg.Proxy.Spool.Dir
	r, err := spool.Inspect(dir)
	if errors.Is(err, os.ErrNotExist) {
		return []finding{ok("spool %s is made when the door starts", dir)}
	}
	if err != nil {
		return []finding{fail("run the doctor as the door's user, or give another directory", "proxy.spool.dir: %v", err)}
	}
	var out []finding
	switch {
	case r.Waiting > 0 && !r.InUse:
		out = append(out, warn("start the door, or 'tidegate spool drain "+dir+"' if this node is not coming back",
			"spool %s: %d acknowledged callbacks wait for Kafka and no door is running", dir, r.Waiting))
	case r.Waiting > 0:
		out = append(out, warn("they go to Kafka as soon as it takes them", "spool %s: %d callbacks wait for Kafka, the oldest since %s",
			dir, r.Waiting, d.now().Sub(r.Oldest).Round(time.Second)))
	default:
		out = append(out, ok("spool %s is empty", dir))
	}
	if n := len(r.Parked); n > 0 {
		out = append(out, warn("look at them with 'tidegate spool inspect "+dir+"', then remove the files", "spool %s: %d records were put aside", dir, n))
	}
	return out
}
