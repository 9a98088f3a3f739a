package queues

import (
	"math"
	"time"
)

// smoothing is the time after which a speed has followed a change by two
// thirds.
const smoothing = 3 * time.Second

// speed is a smoothed number of records per second.
type speed struct {
	perSecond float64
	known     bool
}

func (s *speed) add(records int64, took time.Duration) {
	now := float64(records) / took.Seconds()
	if !s.known {
		s.perSecond, s.known = now, true
		return
	}
	s.perSecond += (1 - math.Exp(-took.Seconds()/smoothing.Seconds())) * (now - s.perSecond)
}

// raise is add where little work says nothing about how much could be done.
func (s *speed) raise(records int64, took time.Duration) {
	if records > 0 && (!s.known || float64(records)/took.Seconds() > s.perSecond) {
		s.add(records, took)
	}
}

// slowest is the speed, in records per second, below which no time is promised.
const slowest = 0.01

// maxDrain bounds what is said about the time to drain.
const maxDrain = 30 * 24 * time.Hour

// drain is how long so many records take; ok is false where nobody can know.
func (s *speed) drain(records int64) (d time.Duration, ok bool) {
	if records <= 0 {
		return 0, true
	}
	if !s.known || s.perSecond < slowest {
		return 0, false
	}
	seconds := float64(records) / s.perSecond
	if seconds >= maxDrain.Seconds() {
		return maxDrain, true
	}
	return time.Duration(seconds * float64(time.Second)), true
}
