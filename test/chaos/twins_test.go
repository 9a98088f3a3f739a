//go:build chaos

package chaos

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/test/chaos/drive"
)

// twins sends pairs of callbacks that differ in one part of their identity
// alone: both are worked (G5; T3, T4).
func twins(t *testing.T, e *engines, n numbers) {
	w := newWorld(t, e, shape{doors: 2, broker: e.brokerOf(n)})
	kinds := w.kindsOfTwins()
	slots := make(chan struct{}, 32)
	var wg sync.WaitGroup
	for i := range n.twins.pairs {
		a, b := kinds[i%len(kinds)](i)
		for k, act := range []drive.Act{a, b} {
			act.Token = drive.Mark(w.run, 2*i+k)
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				if !w.drive.Send(t.Context(), act, time.Time{}) {
					t.Errorf("%s was not acknowledged", act.Identity())
				}
			})
		}
	}
	wg.Wait()
	v := w.verify(w.busy())
	require.Equal(t, 2*n.twins.pairs, v.acked)
	require.Equal(t, 2*n.twins.pairs, v.logged)
	ci(t, "G5 %d pairs that differ in account, openid, event, key, second or MsgId alone: acked %d, in the log %d, dropped %d", n.twins.pairs, v.acked, v.logged, v.lost)
}

// kindsOfTwins gives a pair for a number, in each way in which twins differ.
func (w *world) kindsOfTwins() []func(i int) (a, b drive.Act) {
	card, shop := accounts[0].Name, accounts[1].Name
	now := time.Now().Unix()
	event := func(i int, name, key string) drive.Act {
		return drive.Act{Account: card, OpenID: user(i), CreateTime: now, Event: name, EventKey: key}
	}
	text := func(i int) drive.Act {
		return drive.Act{Account: card, OpenID: user(i), CreateTime: now, MsgID: w.ids.Add(1)}
	}
	return []func(i int) (drive.Act, drive.Act){
		func(i int) (a, b drive.Act) { a, b = text(i), text(i); b.Account, b.MsgID = shop, a.MsgID; return },
		func(i int) (a, b drive.Act) {
			a, b = text(i), text(i)
			b.OpenID, b.MsgID = user(i)+"x", a.MsgID
			return
		},
		func(i int) (a, b drive.Act) { a, b = text(i), text(i); b.MsgID = a.MsgID + 1; w.ids.Add(1); return },
		func(i int) (a, b drive.Act) { return event(i, "CLICK", "BILL"), event(i, "VIEW", "BILL") },
		func(i int) (a, b drive.Act) { return event(i, "subscribe", ""), event(i, "LOCATION", "") },
		func(i int) (a, b drive.Act) { return event(i, "CLICK", "BILL"), event(i, "CLICK", "BILL2") },
		func(i int) (a, b drive.Act) {
			key := fmt.Sprint("k", i)
			a, b = event(i, "SCAN", key+":1"), event(i, "SCAN", key+":"+"1 ")
			return
		},
		func(i int) (a, b drive.Act) {
			a, b = event(i, "LOCATION", ""), event(i, "LOCATION", "")
			b.CreateTime++
			return
		},
		func(i int) (a, b drive.Act) {
			a, b = event(i, "CLICK", "A"), event(i, "CLICK", "A")
			b.Account = shop
			return
		},
		func(i int) (a, b drive.Act) {
			a, b = event(i, "CLICK", "A"), event(i, "CLICK", "A")
			b.OpenID += "x"
			return
		},
	}
}
