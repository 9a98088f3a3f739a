package chart

import (
	"errors"
	"fmt"
	"math"
)

// Chart is one picture.
type Chart struct {
	Title  string
	Note   string // below the title, broken into lines where need be
	X, Y   Axis
	Series []Series
	// Groups makes it a chart of bars: each series has one bar per group, in order.
	Groups []string
	Marks  []Mark
	Foot   []string // small print: what made the picture, and where
}

// Axis begins at zero, or at the smallest value if it is logarithmic.
type Axis struct {
	Label string // with the unit
	Log   bool
}

// Series is one line, or the bars of one colour.
type Series struct {
	Name   string
	Points []Point
	Plain  bool // without a sign at each point
}

// Point of a line, or a bar: then X is not used and Text, if set, stands above it.
type Point struct {
	X, Y float64
	Text string
}

// Mark is a value worth a thin line across the picture: of Y, or of X if
// Vertical.
type Mark struct {
	Value    float64
	Vertical bool
	Label    string
}

// maxSeries is how many can be told apart.
const maxSeries = 4

func (c Chart) check() error {
	if len(c.Series) == 0 || len(c.Series) > maxSeries {
		return fmt.Errorf("draw %q: %d series: use 1 to %d", c.Title, len(c.Series), maxSeries)
	}
	var errs []error
	for _, s := range c.Series {
		if len(s.Points) == 0 {
			errs = append(errs, fmt.Errorf("draw %q: series %q has no points", c.Title, s.Name))
		}
		if len(c.Groups) > 0 && len(s.Points) != len(c.Groups) {
			errs = append(errs, fmt.Errorf("draw %q: series %q has %d bars for %d groups", c.Title, s.Name, len(s.Points), len(c.Groups)))
		}
		for _, p := range s.Points {
			if !c.X.holds(p.X) && len(c.Groups) == 0 || !c.Y.holds(p.Y) {
				errs = append(errs, fmt.Errorf("draw %q: series %q: point (%v, %v) has no place", c.Title, s.Name, p.X, p.Y))
			}
		}
	}
	return errors.Join(errs...)
}

func (a Axis) holds(v float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && v >= 0 && (v > 0 || !a.Log)
}

// scale turns values into parts of an axis, 0 to 1, and knows where ticks go.
type scale struct {
	log      bool
	min, max float64
	ticks    []float64
}

// scaleOf finds round ends and ticks that contain all values.
func (a Axis) scaleOf(values []float64) scale {
	low, high := math.Inf(1), 0.0
	for _, v := range values {
		low, high = math.Min(low, v), math.Max(high, v)
	}
	if high == 0 {
		high = 1
	}
	if a.Log {
		return logScale(low, high)
	}
	step := round(high / 6)
	s := scale{max: step * math.Ceil(high*0.9999/step)}
	for i := 0; float64(i)*step <= s.max*1.0001; i++ {
		s.ticks = append(s.ticks, float64(i)*step)
	}
	return s
}

func logScale(low, high float64) scale {
	s := scale{log: true, min: low, max: high}
	if low == high {
		s.min, s.max = low/2, high*2
	}
	for decade := math.Pow(10, math.Floor(math.Log10(s.min))); decade <= s.max; decade *= 10 {
		for _, m := range []float64{1, 2, 5} {
			if v := m * decade; v >= s.min*0.999 && v <= s.max*1.001 {
				s.ticks = append(s.ticks, v)
			}
		}
	}
	return s
}

// round gives the next larger of 1, 2, 2.5 and 5 times a power of ten.
func round(v float64) float64 {
	base := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*base >= v*0.999 {
			return m * base
		}
	}
	return 10 * base
}

// at is where a value lies.
func (s scale) at(v float64) float64 {
	if s.log {
		return (math.Log(v) - math.Log(s.min)) / (math.Log(s.max) - math.Log(s.min))
	}
	return (v - s.min) / (s.max - s.min)
}
