package proxy

import "context"

// CheckQueues is one poll of the watch, for tests whose clock is their own.
func (p *Proxy) CheckQueues(ctx context.Context) error { return p.queues.Check(ctx) }
