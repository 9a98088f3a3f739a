package ratelimit

import (
	"errors"
	"fmt"
	"math"
)

// Limit is what a Limiter holds to. A zero Rate or Concurrency means "no such
// limit"; a zero Burst means 1.
type Limit struct {
	Rate        float64 `koanf:"rate"`        // permits a second; 1019.0/60 is exactly 1,019 a minute
	Burst       int     `koanf:"burst"`       // permits that may leave at once after a pause
	Concurrency int     `koanf:"concurrency"` // permits out at the same time
	StartFull   bool    `koanf:"start_full"`  // begin with the whole burst; only where a restart may exceed the rate
}

// The largest values; beyond them the arithmetic would overflow.
const (
	maxRate  = 1e6
	maxBurst = 1 << 20
	minRate  = 1e-6 // one in 11 days
	maxSpan  = 1e8  // seconds that a burst may stand for
)

// Validate reports every value out of range.
func (l Limit) Validate() error {
	var errs []error
	if math.IsNaN(l.Rate) || l.Rate < 0 || l.Rate > maxRate || l.Rate > 0 && l.Rate < minRate {
		errs = append(errs, fmt.Errorf("rate: %v a second is outside %g to %g; use 0 for no limit", l.Rate, minRate, maxRate))
	}
	if l.Burst < 0 || l.Burst > maxBurst {
		errs = append(errs, fmt.Errorf("burst: %d is outside 0 to %d", l.Burst, maxBurst))
	} else if l.Rate > 0 && float64(l.Burst) > max(1, l.Rate*maxSpan) {
		errs = append(errs, fmt.Errorf("burst: %d would take more than three years to save up at %g a second", l.Burst, l.Rate))
	}
	if l.Concurrency < 0 {
		errs = append(errs, fmt.Errorf("concurrency: %d is negative; use 0 for no limit", l.Concurrency))
	}
	return errors.Join(errs...)
}

// fraction finds the fraction with the smallest denominator that is the float,
// to within its own precision: the float of 1019.0/60 becomes 1019/60.
// Continued fractions; rate must be valid and positive.
func fraction(rate float64) (num, den int64) {
	const maxDen = 1e9
	p0, q0, p1, q1 := int64(0), int64(1), int64(1), int64(0)
	for x := rate; ; {
		whole := math.Floor(x)
		if whole*float64(q1)+float64(q0) > maxDen {
			return p1, q1
		}
		p2, q2 := int64(whole)*p1+p0, int64(whole)*q1+q0
		p0, q0, p1, q1 = p1, q1, p2, q2
		rest := x - whole
		if math.Abs(float64(p1)/float64(q1)-rate) <= rate*1e-14 || rest < 1e-12 {
			return p1, q1
		}
		x = 1 / rest
	}
}

// clamp brings every value into range, so that a limiter cannot be made that
// lets everything through by an overflow.
func (l Limit) clamp() Limit {
	switch {
	case math.IsNaN(l.Rate) || l.Rate < 0:
		l.Rate = minRate
	case l.Rate > 0:
		l.Rate = min(max(l.Rate, minRate), maxRate)
	}
	l.Burst = min(max(l.Burst, 1), maxBurst)
	if l.Rate > 0 {
		l.Burst = min(l.Burst, int(max(1, l.Rate*maxSpan)))
	}
	l.Concurrency = max(l.Concurrency, 0)
	return l
}
