package dedupe

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Options tunes a Store. Zero fields take the defaults of DefaultOptions.
type Options struct {
	ClaimTTL time.Duration `koanf:"claim_ttl"` // life of a claim whose owner died
	DoneTTL  time.Duration `koanf:"done_ttl"`  // life of a done mark; WeChat's repeats end within seconds
	Wait     time.Duration `koanf:"wait"`      // how long a repeat waits for the first delivery
	Budget   time.Duration `koanf:"budget"`    // longest time that one question to Redis may cost

	BreakAfter int           `koanf:"break_after"` // failures in a row until Redis is no longer asked
	ProbeEvery time.Duration `koanf:"probe_every"` // pause between probes while it is not asked

	// Log gets one line when Redis stops answering and one when it is back; nil is silent.
	Log *zap.Logger `koanf:"-"`
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer `koanf:"-"`
}

// DefaultOptions are the numbers of the design: a claim outlives every handler
// (budget 3 s) by far, and a repeat waits less than WeChat does (5 s).
func DefaultOptions() Options {
	return Options{
		ClaimTTL: 15 * time.Second, DoneTTL: 10 * time.Minute,
		Wait: 2 * time.Second, Budget: 100 * time.Millisecond,
		BreakAfter: 3, ProbeEvery: time.Second,
	}
}

// Validate reports every setting that would break a promise.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	if o.Wait+o.Budget >= 4*time.Second {
		errs = append(errs, fmt.Errorf("dedupe.wait: %v leaves no time to answer within WeChat's 5 s; use at most 3s", o.Wait))
	}
	if o.ClaimTTL <= o.Wait {
		errs = append(errs, fmt.Errorf("dedupe.claim_ttl: %v must be longer than dedupe.wait (%v)", o.ClaimTTL, o.Wait))
	}
	if o.DoneTTL < time.Minute {
		errs = append(errs, fmt.Errorf("dedupe.done_ttl: %v is shorter than WeChat's repeats may take; use at least 1m", o.DoneTTL))
	}
	if o.Budget < time.Millisecond || o.Budget > time.Second {
		errs = append(errs, fmt.Errorf("dedupe.budget: %v is outside 1ms to 1s", o.Budget))
	}
	if o.BreakAfter < 1 {
		errs = append(errs, fmt.Errorf("dedupe.break_after: %d must be at least 1", o.BreakAfter))
	}
	return errors.Join(errs...)
}

func (o Options) withDefaults() Options {
	d := DefaultOptions()
	def := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.ClaimTTL, d.ClaimTTL)
	def(&o.DoneTTL, d.DoneTTL)
	def(&o.Wait, d.Wait)
	def(&o.Budget, d.Budget)
	def(&o.ProbeEvery, d.ProbeEvery)
	if o.BreakAfter == 0 {
		o.BreakAfter = d.BreakAfter
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return o
}
