package webhook_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wire"
)

// Every change wakes the workers: changes without a gap must not put the first
// look off for as long as they last.
func TestChangesWithoutAGapAreTold(t *testing.T) {
	each(t, func(w *world) {
		r := newReceiver(t, w.clock.now, secret)
		w.app("card", r.URL)
		h := w.hub()
		w.run(h)
		w.apply(w.outcome(w.push(1), wire.Delivered))
		r.await(1)
		w.drained(h, "card")
		begun := time.Now()
		for n := 2; len(r.got()) == 1 && time.Since(begun) < 10*time.Second; n++ {
			w.apply(w.outcome(w.push(n), wire.Delivered))
		}
		require.Greater(t, len(r.got()), 1)
	})
}
