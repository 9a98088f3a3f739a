package slice

import (
	"errors"
	"fmt"
	"time"
)

// Mode says which slices make up the period.
type Mode string

// The modes; see the package comment.
const (
	Paper    Mode = "paper"
	Strict   Mode = "strict"
	Weighted Mode = "weighted"
)

// Rule is what one scope is held to.
type Rule struct {
	// Limit is how much fits into a period; 0 only counts.
	Limit  int64         `koanf:"limit"`
	Period time.Duration `koanf:"period"`
	Slices int           `koanf:"slices"` // more are more exact and cost more
	Mode   Mode          `koanf:"mode"`
}

// The bounds of a rule: what one call reads stays small, and sums stay exact in
// the numbers of a script (2^53).
const (
	MaxSlices = 100
	MaxPeriod = 366 * 24 * time.Hour
	MaxLimit  = 1 << 40
	minWidth  = time.Millisecond
)

// Validate reports every value out of range.
func (r Rule) Validate() error {
	var errs []error
	if r.Limit < 0 || r.Limit > MaxLimit {
		errs = append(errs, fmt.Errorf("limit: %d is outside 0 to %d; 0 only counts", r.Limit, int64(MaxLimit)))
	}
	if r.Slices < 1 || r.Slices > MaxSlices {
		errs = append(errs, fmt.Errorf("slices: %d is outside 1 to %d", r.Slices, MaxSlices))
	}
	if r.Period < minWidth || r.Period > MaxPeriod || r.Slices > 0 && r.Period/time.Duration(r.Slices) < minWidth {
		errs = append(errs, fmt.Errorf("period: %v in %d slices: a slice is at least %v and a period at most %v", r.Period, r.Slices, minWidth, MaxPeriod))
	}
	if r.Mode != Paper && r.Mode != Strict && r.Mode != Weighted {
		errs = append(errs, fmt.Errorf("mode: %.20q: use %s, %s or %s", r.Mode, Paper, Strict, Weighted))
	}
	return errors.Join(errs...)
}

// width is the length of a slice in microseconds. A period that cannot be cut
// evenly becomes longer by less than a microsecond per slice.
func (r Rule) width() int64 {
	n := int64(r.Slices) * int64(time.Microsecond)
	return (int64(r.Period) + n - 1) / n
}
