package plugin

import (
	"encoding/json"
	"fmt"

	"tidegate/pkg/api"
	"tidegate/pkg/wire"
	"tidegate/robot/engine"
)

// formatVersion is the version of request and answer. Fields may be added to
// requests without a new one.
const formatVersion = 1

// letter is the request's body.
type letter struct {
	Version  int            `json:"version"`
	Type     string         `json:"type"` // "callback"
	Rule     string         `json:"rule"`
	Language string         `json:"language"`
	Dialogue standing       `json:"dialogue"`
	Vars     map[string]any `json:"vars"`
	Callback callback       `json:"callback"`
}

// standing tells the engine where it is with the follower.
type standing struct {
	Open    bool `json:"open"`     // the engine kept the follower with its last answer
	MayStay bool `json:"may_stay"` // it may answer "dialogue": "stay"
}

// callback is the follower's message or event in the names of pkg/wire, without
// what an engine has no use for.
type callback struct {
	ID         string            `json:"id"`
	Account    string            `json:"account"`
	OpenID     string            `json:"openid"`
	MsgType    string            `json:"msg_type"`
	Event      string            `json:"event,omitempty"`
	EventKey   string            `json:"event_key,omitempty"`
	MsgID      string            `json:"msg_id,omitempty"`
	CreateTime int64             `json:"create_time"`
	ReceivedAt int64             `json:"received_at"`
	Content    string            `json:"content,omitempty"`
	Fields     map[string]string `json:"fields,omitempty"`
}

func letterOf(c *wire.Callback, a *engine.Ask) ([]byte, error) {
	vars := a.Vars
	if vars == nil {
		vars = map[string]any{}
	}
	return json.Marshal(letter{
		Version: formatVersion, Type: "callback", Rule: a.Rule, Language: a.Lang,
		Dialogue: standing{Open: a.Inside, MayStay: a.MayStay}, Vars: vars,
		Callback: callback{
			ID: c.ID, Account: c.Account, OpenID: c.OpenID, MsgType: c.MsgType, Event: c.Event, EventKey: c.EventKey, MsgID: c.MsgID,
			CreateTime: c.CreateTime, ReceivedAt: c.ReceivedAt, Content: c.Content, Fields: c.Fields,
		},
	})
}

// answer is what an engine may say.
type answer struct {
	Replies  []content         `json:"replies"`
	Silence  bool              `json:"silence"`
	HandOver bool              `json:"hand_over"`
	Dialogue string            `json:"dialogue"`
	Vars     map[string]string `json:"vars"`
}

// content is one reply, in the words of rules files.
type content struct {
	Type    string        `json:"type"` // text, image, news or menu
	Text    string        `json:"text"`
	MediaID string        `json:"media_id"`
	News    *wire.Article `json:"news"`
	Menu    *wire.Menu    `json:"menu"`
}

// Bounds of what an engine may have kept for it.
const (
	maxVars  = 32
	maxValue = 512
	maxName  = 32
)

// read takes an answer, strictly: what is not understood whole is not an
// answer. Its errors quote names of fields and no values.
func read(body []byte) (engine.Said, error) {
	var a answer
	if err := api.DecodeBytes(body, &a); err != nil {
		return engine.Said{}, err
	}
	said := engine.Said{HandOver: a.HandOver, Dialogue: a.Dialogue, Vars: a.Vars}
	switch {
	case a.Silence && (a.HandOver || len(a.Replies) > 0):
		return said, fmt.Errorf("silence: true stands alone")
	case !a.Silence && !a.HandOver && len(a.Replies) == 0:
		return said, fmt.Errorf("it says nothing: give replies, hand_over: true or silence: true")
	case len(a.Replies) > engine.MaxReplies:
		return said, fmt.Errorf("it gives %d replies, WeChat takes %d", len(a.Replies), engine.MaxReplies)
	case a.Dialogue != "" && a.Dialogue != engine.DialogueStay && a.Dialogue != engine.DialogueEnd:
		return said, fmt.Errorf("dialogue: write stay or end")
	case len(a.Vars) > maxVars:
		return said, fmt.Errorf("vars: %d of them, at most %d are kept", len(a.Vars), maxVars)
	}
	for name, v := range a.Vars {
		if len(name) > maxName || len(v) > maxValue {
			return said, fmt.Errorf("vars: a name has up to %d bytes and a value up to %d", maxName, maxValue)
		}
	}
	for i, r := range a.Replies {
		c := wire.Content{Type: r.Type, Text: r.Text, MediaID: r.MediaID, News: r.News, Menu: r.Menu}
		if c.Type == "menu" {
			c.Type = "msgmenu"
		}
		if err := engine.CheckContent(&c); err != nil {
			return said, fmt.Errorf("replies[%d]: %w", i, err)
		}
		said.Replies = append(said.Replies, c)
	}
	return said, nil
}
