package sender

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
	"tidegate/sender/intent"
)

// headerPast carries what is known of a letter that was held after a try had
// begun, so that it does not come back as one whose past nobody knows.
const headerPast = "past"

// past is what was known when a letter was put aside. Each life of a letter that
// begins after such a hold has an intent of its own, named by the generation: if
// that is fresh, nothing but this has happened.
type past struct {
	Generation int   `json:"gen"`
	FirstTry   int64 `json:"first,omitempty"` // milliseconds; only where a request may have arrived
	Requests   int   `json:"requests,omitempty"`
	Spent      int   `json:"spent,omitempty"`
	Unsure     int   `json:"unsure,omitempty"`
	Part       int   `json:"part,omitempty"`
}

const maxGeneration = 1_000_000

// readPast reads the header of a record that was fed back; other records have
// none.
func readPast(rec kafka.Record) (past, error) {
	text := rec.Header(headerPast)
	if text == nil {
		return past{}, nil
	}
	var b past
	if err := json.Unmarshal(text, &b); err != nil || b.Generation < 1 || b.Generation > maxGeneration || min(b.FirstTry, int64(b.Requests), int64(b.Spent), int64(b.Unsure), int64(b.Part)) < 0 {
		return past{}, fmt.Errorf("the header %s is not what a held letter has", headerPast)
	}
	return b, nil
}

// tryKey names the letter's present life in the store of intents.
func (p *parcel) tryKey() intent.Key { return p.keyOf(p.past.Generation) }

func (p *parcel) keyOf(generation int) intent.Key {
	if generation == 0 {
		return p.key
	}
	return intent.Key{ID: p.key.ID + "/" + strconv.Itoa(generation), IdentityHash: p.key.IdentityHash}
}

// seed gives a letter's progress what its past says.
func (p *parcel) seed(g *progress) {
	b := p.past
	if g.seeded || b.Generation == 0 {
		return
	}
	g.seeded = true
	g.requests, g.spent, g.unsure, g.part = b.Requests, b.Spent, b.Unsure, min(b.Part, p.parts-1)
	if b.Unsure > 0 {
		g.firstTry = time.UnixMilli(b.FirstTry)
	}
}

// next is the past of a letter that is put aside now. One that was not begun in
// this life goes on with the same.
func (p *parcel) next(g *progress) past {
	if !g.begun {
		return p.past
	}
	b := past{Generation: p.past.Generation + 1, Requests: g.requests, Spent: g.spent, Unsure: g.unsure, Part: g.part}
	if g.unsure > 0 {
		b.FirstTry = g.firstTry.UnixMilli()
	}
	return b
}

// headers are a record's own with the past in place of an earlier one.
func (b past) headers(own []wire.Header) ([]wire.Header, error) {
	out := make([]wire.Header, 0, len(own)+1)
	for _, h := range own {
		if h.Key != headerPast {
			out = append(out, h)
		}
	}
	if b.Generation == 0 {
		return out, nil
	}
	text, err := json.Marshal(b)
	return append(out, wire.Header{Key: headerPast, Value: text}), err
}
