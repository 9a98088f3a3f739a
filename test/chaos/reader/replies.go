package reader

import (
	"fmt"

	"tidegate/pkg/wechat/wechatsim"
	"tidegate/test/chaos/drive"
	"tidegate/test/chaos/history"
)

// Replies writes the messages that the simulated WeChat has shown since entry
// after, and gives their number and the last entry. account translates an appid
// into the account's name; unmarked is what may come without a mark, nil nothing.
func Replies(sim *wechatsim.Sim, after uint64, account func(appID string) string, unmarked *Unmarked, w *history.Writer) (n int, last uint64, err error) {
	if _, dropped := sim.Journal().Len(); dropped > after {
		return 0, after, fmt.Errorf("the simulator has forgotten %d entries of its journal: make it longer", dropped)
	}
	shown := func(e *wechatsim.Entry) bool { return e.Kind == wechatsim.KindArrival && e.Visible }
	for last = after; ; {
		entries, next := sim.Journal().Read(last, 1000, shown)
		for _, e := range entries {
			token := drive.FindMark([]byte(e.Text))
			if token == "" {
				token = unmarked.Next(account(e.Account), e.OpenID)
			}
			if token == "" {
				return n, last, fmt.Errorf("entry %d: a message to %s without a mark of this run", e.Seq, e.OpenID)
			}
			w.Add(history.Event{Kind: history.Reply, Node: "wechat", Token: token, Account: account(e.Account), OpenID: e.OpenID, Order: int64(e.Seq)})
			n++
		}
		if next == last || len(entries) == 0 {
			return n, next, nil
		}
		last = next
	}
}
