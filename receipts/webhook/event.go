package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"tidegate/pkg/fault"
	"tidegate/receipts/store"
)

// event is one line of the outbox before it is written.
type event struct {
	id, endpoint, url string
	message           store.Message
	body              []byte
}

// body is what receivers read. Ids are texts, since JavaScript rounds numbers
// beyond 2^53. Fields may be added; receivers ignore what they do not know.
type body struct {
	Type      string `json:"type"`
	Timestamp string `json:"timestamp"` // of the change
	Data      data   `json:"data"`
}

type data struct {
	ID                string `json:"id"`
	Account           string `json:"account"`
	App               string `json:"app"`
	OpenID            string `json:"openid,omitempty"`
	Lane              string `json:"lane,omitempty"`
	TemplateID        string `json:"template_id,omitempty"`
	Reference         string `json:"reference,omitempty"`
	ResendOf          string `json:"resend_of,omitempty"`
	State             string `json:"state"`
	Terminal          bool   `json:"terminal"`
	Rank              int    `json:"rank"` // grows with every change of one message
	Reason            string `json:"reason,omitempty"`
	ErrCode           int    `json:"errcode,omitempty"`
	MsgID             string `json:"msg_id,omitempty"` // WeChat's
	Attempts          int    `json:"attempts,omitempty"`
	PossibleDuplicate bool   `json:"possible_duplicate,omitempty"`
}

// newEvent writes what an endpoint is told of a message that has just reached
// its state.
func newEvent(endpoint, url string, m store.Message, now int64) (event, error) {
	at := now
	if m.State.Terminal() && m.SettledAt > 0 {
		at = m.SettledAt
	}
	text, err := json.Marshal(body{
		Type: typeOf(m), Timestamp: time.UnixMilli(at).UTC().Format("2006-01-02T15:04:05.000Z07:00"),
		Data: data{
			ID: m.ID, Account: m.Account, App: m.App, OpenID: m.OpenID, Lane: m.Lane, TemplateID: m.Template, Reference: m.Reference,
			ResendOf: m.ResendOf, State: string(m.State), Terminal: m.State.Terminal(), Rank: m.State.Rank(), Reason: m.Reason,
			ErrCode: m.ErrCode, MsgID: m.MsgID, Attempts: m.Attempts, PossibleDuplicate: m.PossibleDuplicate,
		},
	})
	if err != nil {
		return event{}, fault.Wrap(fault.Internal, "write webhook event", err)
	}
	return event{id: eventID(endpoint, m), endpoint: endpoint, url: url, message: m, body: text}, nil
}

func typeOf(m store.Message) string { return "message." + string(m.State) }

// eventID depends on what is told to whom and on nothing else: a message enters
// a state once, so news that is joined again makes no second event.
func eventID(endpoint string, m store.Message) string {
	h := sha256.New()
	for _, s := range []string{endpoint, m.ID, strconv.Itoa(m.Variant), string(m.State)} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	return "evt_" + hex.EncodeToString(h.Sum(nil)[:16])
}
