package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tidegate/pkg/fault"
)

// behind says that nodes hold limits of a newer version than the database has,
// as after a backup was put back; "" if none does, or if it cannot be told. The
// limiters of such a node go by the higher version, and so do those of all nodes
// together, so a change would have no effect. reports must have been read before:
// the database is asked last, and what it has then is at least what any node has
// from it.
//
// There is no way around a restart that is simple and safe: a node that begins now
// knows nothing of the versions before the backup, so the others' would still be
// the highest.
func (p *Panel) behind(ctx context.Context, reports []report) string {
	s := p.view.open()
	if s == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	version, err := s.Version(ctx)
	if err != nil {
		return "" // that the database does not answer is told by the age
	}
	var names []string
	newest := version
	for _, r := range reports {
		if held := max(r.Version, r.Newest); !r.Off && held > version {
			names = append(names, r.Node)
			newest = max(newest, held)
		}
	}
	if len(names) == 0 {
		return ""
	}
	const shown = 20
	slices.Sort(names)
	list := strings.Join(names[:min(len(names), shown)], ", ")
	if len(names) > shown {
		list += ", …"
	}
	return fmt.Sprintf("the database is at version %d and %s hold limits of version %d, as if a backup had been put back: what is set now would have no effect until these processes (%d) are restarted, one after the other; wait %s after the last one",
		version, list, newest, len(names), forgotten)
}

// forgotten is how long the newest version counts after the last node that held it
// is gone: the life of a report and the time after which permits forget a version
// that nobody holds (pkg/ratelimit).
const forgotten = 15 * time.Second

// inForce refuses a change that would not come into force.
func (p *Panel) inForce(ctx context.Context) error {
	reports, _ := p.reports(ctx)
	if why := p.behind(ctx, reports); why != "" {
		return fault.New(fault.Final, "set limit", "%s; then set it again", why)
	}
	return nil
}
