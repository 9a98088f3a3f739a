package ratelimit

import "math/bits"

// frac is the number of parts that a microsecond of a period is counted in. Sums
// of some thousand periods stay below 2^53, so that scripts add them exactly.
const frac = 1 << 30

// period is the time between two permits: µs microseconds and part/frac of one,
// rounded up. The rounding is below 10⁻¹⁵ s a permit. A zero rate has none.
func period(rate float64) (us, part int64) {
	if rate == 0 {
		return 0, 0
	}
	num, den := fraction(rate)
	per := uint64(den) * 1e6 // den is at most 10⁹
	us = int64(per / uint64(num))
	hi, lo := bits.Mul64(per%uint64(num), frac)
	q, r := bits.Div64(hi, lo, uint64(num))
	if r > 0 {
		q++
	}
	if q == frac {
		return us + 1, 0
	}
	return us, int64(q)
}
