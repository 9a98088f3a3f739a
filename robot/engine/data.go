package engine

import (
	"reflect"
	"sort"
	"strings"
	"time"

	"tidegate/pkg/wire"
)

// data is what templates see. Its exported fields are part of the format of
// rules files.
type data struct {
	ID         string            // of the callback, 23 digits
	Account    string            //
	OpenID     string            // of the follower; use mask when it is shown
	MsgType    string            //
	Event      string            //
	EventKey   string            //
	Scene      string            // of a QR code, without its prefix
	MsgID      string            //
	CreateTime int64             // Unix seconds, WeChat's
	ReceivedAt int64             // Unix milliseconds, ours
	Content    string            //
	Fields     map[string]string // every other element, nested names joined by a dot
	Match      []string          // the groups of the rule's regular expression
	Vars       map[string]any    // what the rule's dialogue has collected, and what the robot adds
	User       string            // the business user that the follower is, "" if he is not bound
	Last       []Action          // what the follower did before, the newest first
	Lang       string            // the language of the answer
	Answer     any               // the back end's answer

	body  []byte    // what Body gives
	at    time.Time // moment of the callback
	steps int
}

func dataOf(c *wire.Callback, groups []string) *data {
	d := &data{
		ID: c.ID, Account: c.Account, OpenID: c.OpenID, MsgType: c.MsgType, Event: c.Event,
		EventKey: c.EventKey, MsgID: c.MsgID, CreateTime: c.CreateTime, ReceivedAt: c.ReceivedAt,
		Content: c.Content, Fields: c.Fields, body: c.Body, Match: groups, at: moment(c),
	}
	if c.MsgType == "event" {
		if scene := sceneOf(c); scene != nil {
			d.Scene = *scene
		}
	}
	return d
}

// Body is the original XML, decrypted. It is the longest part of a callback, and
// hardly any template asks for it.
func (d *data) Body() string { return string(d.body) }

// keep adds a variable.
func (d *data) keep(name string, value any) {
	if d.Vars == nil {
		d.Vars = map[string]any{}
	}
	d.Vars[name] = value
}

// Tick counts one round of a range loop. Package template calls it; rules
// have no reason to.
func (d *data) Tick() (string, error) {
	d.steps++
	if d.steps > maxSteps {
		return "", errSteps
	}
	return "", nil
}

// dataFields are the names that a template may use.
var dataFields, dataFieldList = fieldNames()

func fieldNames() (map[string]bool, string) {
	known := map[string]bool{"Body": true}
	names := []string{".Body"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[data]()) {
		if f.IsExported() {
			known[f.Name] = true
			names = append(names, "."+f.Name)
		}
	}
	sort.Strings(names)
	return known, strings.Join(names, " ")
}
