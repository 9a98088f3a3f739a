package proxy

import (
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/proxy/queues"
)

// newQueues makes the watch over queue depth; nil where it is switched off or
// there is nobody to ask.
func (p *Proxy) newQueues(reg prometheus.Registerer) (*queues.Watch, error) {
	if p.cfg.Queues.Poll == 0 || p.d.Admin == nil {
		return nil, nil
	}
	d := queues.Deps{
		Admin: p.d.Admin, Names: queues.Names{Topics: p.d.Topics, Robot: p.d.Groups.Robot, Receipts: p.d.Groups.Receipts},
		Spool: p.out.spooled, Alarms: p.d.Alarms, Log: p.d.Log.Named("queues"), Registry: reg, Now: p.d.Now,
	}
	if p.cfg.Ahead.Enabled {
		d.Threshold = p.cfg.Ahead.Threshold
	}
	return queues.New(p.cfg.Queues, accountNames(*p.accounts.Load()), d)
}

func accountNames(m map[string]*entry) []string {
	out := make([]string, 0, len(m))
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Queues is GET /ops/v1/queues; nil where nobody watches.
func (p *Proxy) Queues() http.Handler {
	if p.queues == nil {
		return nil
	}
	return p.queues
}

// spooled is what this node keeps on disk for the queue.
func (o *outlet) spooled() queues.Spooled {
	if o.spool == nil {
		return queues.Spooled{}
	}
	d := o.spool.Depth()
	return queues.Spooled{Records: d.Records, Bytes: d.Bytes, Oldest: d.Oldest, Topics: o.spool.Waiting()}
}
