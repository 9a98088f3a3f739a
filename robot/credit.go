package robot

import (
	"tidegate/pkg/credit"
	"tidegate/pkg/wire"
)

// note tells the ledger of reply credits what a follower did, also where nothing is
// answered: the next reply may be to something else. It waits for nothing. A replay
// is no new act, and whom a quarantined document names is not known.
func (r *Robot) note(c *wire.Callback) {
	if c.ReplayOf != "" || c.Quarantined != "" {
		return
	}
	_, item := c.Fields["bizmsgmenuid"]
	r.d.Credits.Note(credit.Act{
		Account: c.Account, OpenID: c.OpenID, ID: c.ID, MsgType: c.MsgType, Event: c.Event, MenuItem: item,
		CreateTime: c.CreateTime, ReceivedAt: c.ReceivedAt,
	})
}
