package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// KindLimit is the kind of rows whose value is a Limit and whose subject is a
// knob's.
const KindLimit = "limit"

// Limit is what a knob is set to. A zero Rate or Concurrency is no such cap.
type Limit struct {
	Rate        float64 `json:"rate"`        // a second
	Burst       int     `json:"burst"`       // at once after a pause; 0 is 1
	Concurrency int     `json:"concurrency"` // at the same time
}

// The largest values that an operator may set.
const (
	minRate        = 1e-4 // one in three hours
	maxRate        = 1e6
	maxBurst       = 1_000_000
	maxConcurrency = 10_000
	maxSpan        = 1e8 // seconds that a burst may stand for, as in pkg/ratelimit
)

// Validate reports every value out of range. mustCap refuses the zeros that
// mean "no cap".
func (l Limit) Validate(mustCap bool) error {
	var errs []error
	switch {
	case mustCap && l.Rate == 0:
		errs = append(errs, fmt.Errorf("rate: this limit needs one: use %g to %g a second", minRate, maxRate))
	case math.IsNaN(l.Rate) || l.Rate < 0 || l.Rate > maxRate || l.Rate > 0 && l.Rate < minRate:
		errs = append(errs, fmt.Errorf("rate: %v a second is outside %g to %g", l.Rate, minRate, maxRate))
	}
	if l.Burst < 0 || l.Burst > maxBurst {
		errs = append(errs, fmt.Errorf("burst: %d is outside 0 to %d", l.Burst, maxBurst))
	} else if l.Rate > 0 && float64(l.Burst) > max(1, l.Rate*maxSpan) {
		errs = append(errs, fmt.Errorf("burst: %d would take years to save up at %g a second", l.Burst, l.Rate))
	}
	switch {
	case mustCap && l.Concurrency == 0:
		errs = append(errs, fmt.Errorf("concurrency: this limit needs one: use 1 to %d", maxConcurrency))
	case l.Concurrency < 0 || l.Concurrency > maxConcurrency:
		errs = append(errs, fmt.Errorf("concurrency: %d is outside 0 to %d", l.Concurrency, maxConcurrency))
	}
	return errors.Join(errs...)
}

// String is for people: 50/s, burst 5, 10 at once.
func (l Limit) String() string {
	rate, at := "no rate", "any number at once"
	if l.Rate > 0 {
		rate = fmt.Sprintf("%g/s, burst %d", l.Rate, max(l.Burst, 1))
	}
	if l.Concurrency > 0 {
		at = fmt.Sprintf("%d at once", l.Concurrency)
	}
	return rate + ", " + at
}

// json gives the value of a row.
func (l Limit) json() json.RawMessage {
	b, err := json.Marshal(l)
	if err != nil {
		return json.RawMessage(`{}`) // a NaN, which Validate has refused
	}
	return b
}

// limitOf reads the value of a row. Fields that a later release may add are let
// pass.
func limitOf(value json.RawMessage) (Limit, error) {
	var l Limit
	if err := json.Unmarshal(value, &l); err != nil {
		return l, fmt.Errorf("the value is no limit: %w", err)
	}
	return l, l.Validate(false)
}
