package spool

import (
	"context"
	"sync"

	"tidegate/pkg/crash"
	"tidegate/pkg/fault"
)

// publish sends the window's lanes side by side and tells whether anything got
// through.
func (p *pass) publish(ctx context.Context, publish Publish) bool {
	var wg sync.WaitGroup
	free := make(chan struct{}, windowLanes)
	for _, l := range lanes(p.items) {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			p.sendLane(ctx, l, publish)
		})
	}
	wg.Wait()
	good := false
	for _, it := range p.items {
		good = good || it.done
		if it.err != nil {
			p.failed[it.rec.Topic] = true
			if p.err == nil {
				p.err = it.err
			}
		}
	}
	return good
}

// lanes groups the items by key, in their order.
func lanes(items []*item) [][]*item {
	var out [][]*item
	place := map[uint64]int{}
	for _, it := range items {
		i, known := place[it.lane]
		switch {
		case it.rec.Key == nil:
			out = append(out, []*item{it})
		case known:
			out[i] = append(out[i], it)
		default:
			place[it.lane] = len(out)
			out = append(out, []*item{it})
		}
	}
	return out
}

// sendLane stops at the first record that fails: the ones behind it must not
// overtake.
func (p *pass) sendLane(ctx context.Context, l []*item, publish Publish) {
	for _, it := range l {
		err := publish(ctx, it.rec)
		if k := fault.KindOf(err); err != nil && (k == fault.Invalid || k == fault.Final) {
			if !p.parkItem(it) {
				it.err = err
				return
			}
			p.s.stats.parked.Add(1)
			it.done = true
			continue
		}
		if err != nil {
			it.err = err
			return
		}
		p.s.stats.replayed.Add(1)
		it.done = true
		crash.At("CP7")
	}
}

// parkItem puts a record aside that the queue will never take. Its segment may
// not be the one that the pass has open any more.
func (p *pass) parkItem(it *item) bool {
	f, err := p.s.fs.Open(it.seg.path)
	if err != nil {
		return false
	}
	defer f.Close()
	return p.s.park(it.seg, f, it.off, it.off+it.size)
}
