package wechatsim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// What a fault does. The first group bends API answers, the second callbacks,
// the third receipts.
const (
	FaultErrcode  = "errcode"  // answer Errcode
	FaultSlow     = "slow"     // answer after Delay
	FaultReset    = "reset"    // read the request, then cut the connection
	FaultHang     = "hang"     // read the request, then never answer
	FaultHTML     = "html"     // answer Status with an HTML page
	FaultGarbage  = "garbage"  // status 200, not JSON
	FaultTruncate = "truncate" // cut the connection in the middle of the answer

	FaultParallel = "parallel" // deliver Copies at the same time
	FaultLoseAck  = "lose_ack" // an accepted answer is lost on its way: repeat

	ReceiptEarly   = "receipt_early"   // the receipt comes before the API answer
	ReceiptTwice   = "receipt_twice"   // it comes twice
	ReceiptLate    = "receipt_late"    // it comes after Delay
	ReceiptNever   = "receipt_never"   // it does not come
	ReceiptStatus  = "receipt_status"  // it carries Outcome
	ReceiptForeign = "receipt_foreign" // one for a message nobody sent comes along
)

// Fault is one scripted misbehaviour. Conditions left empty match everything.
type Fault struct {
	ID string `json:"id,omitempty"`
	// API is a path; empty is every path. Callback faults ignore it.
	API     string `json:"api,omitempty"`
	Account string `json:"account,omitempty"`
	OpenID  string `json:"openid,omitempty"`
	// Rate is the share of matching requests, 0 (meaning always) to 1. After skips the
	// first matching ones; Count ends the fault after so many hits.
	Rate  float64 `json:"rate,omitempty"`
	After int     `json:"after,omitempty"`
	Count int     `json:"count,omitempty"`

	Do      string `json:"do"`
	Errcode int    `json:"errcode,omitempty"`
	Status  int    `json:"status,omitempty"`
	DelayMS int    `json:"delay_ms,omitempty"`
	Copies  int    `json:"copies,omitempty"`
	Outcome string `json:"outcome,omitempty"`
	// Applied makes WeChat carry out the request although the caller does not
	// learn it. Slow answers are always applied.
	Applied bool `json:"applied,omitempty"`

	// Seen and Hits are filled by the simulator.
	Seen int `json:"seen"`
	Hits int `json:"hits"`
}

func (f Fault) delay() time.Duration { return time.Duration(f.DelayMS) * time.Millisecond }

func (f Fault) validate() error {
	if f.Rate < 0 || f.Rate > 1 {
		return fmt.Errorf("rate %v: must be 0 to 1", f.Rate)
	}
	if f.After < 0 || f.Count < 0 || f.DelayMS < 0 || f.DelayMS > 3_600_000 || f.Copies < 0 || f.Copies > 10 {
		return errors.New("after, count, delay_ms (at most an hour) and copies (at most 10) must not be negative")
	}
	switch f.Do {
	case FaultErrcode:
		if f.Errcode == 0 {
			return errors.New("errcode: set a code other than 0")
		}
	case FaultSlow, ReceiptLate:
		if f.DelayMS == 0 {
			return errors.New(f.Do + ": set delay_ms")
		}
	case ReceiptStatus:
		if f.Outcome == "" {
			return errors.New(`receipt_status: set outcome, for instance "failed:user block"`)
		}
	case FaultHTML:
		if f.Status != 0 && (f.Status < 400 || f.Status > 599) {
			return errors.New("html: status must be 400 to 599 (default 502)")
		}
	case FaultReset, FaultHang, FaultGarbage, FaultTruncate, FaultParallel, FaultLoseAck,
		ReceiptEarly, ReceiptTwice, ReceiptNever, ReceiptForeign:
	default:
		return fmt.Errorf("do %q: unknown fault", f.Do)
	}
	return nil
}

// kinds of places that ask for faults.
var (
	apiFaults      = []string{FaultErrcode, FaultSlow, FaultReset, FaultHang, FaultHTML, FaultGarbage, FaultTruncate}
	callbackFaults = []string{FaultParallel, FaultLoseAck}
	receiptFaults  = []string{ReceiptEarly, ReceiptTwice, ReceiptLate, ReceiptNever, ReceiptStatus, ReceiptForeign}
)

// faults is the script in force.
type faults struct {
	mu   sync.Mutex
	dice *rand.Rand
	list []*Fault
	next int
}

// set replaces the script.
func (fs *faults) set(list []Fault) error {
	for i, f := range list {
		if err := f.validate(); err != nil {
			return fmt.Errorf("faults[%d]: %w", i, err)
		}
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.list = nil
	for _, f := range list {
		if f.ID == "" {
			fs.next++
			f.ID = fmt.Sprintf("f%d", fs.next)
		}
		f.Seen, f.Hits = 0, 0
		fs.list = append(fs.list, &f)
	}
	return nil
}

// state is the script with its counters.
func (fs *faults) state() []Fault {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	out := make([]Fault, 0, len(fs.list))
	for _, f := range fs.list {
		out = append(out, *f)
	}
	return out
}

// pick returns the faults of the given kinds that hit this request: at most one
// of each kind, in script order.
func (fs *faults) pick(kinds []string, api, account, openid string) []Fault {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var hit []Fault
	for _, f := range fs.list {
		if !slices.Contains(kinds, f.Do) || !f.matches(api, account, openid) {
			continue
		}
		f.Seen++
		if f.Seen <= f.After || (f.Count > 0 && f.Hits >= f.Count) || (f.Rate > 0 && fs.dice.Float64() >= f.Rate) {
			continue
		}
		if slices.ContainsFunc(hit, func(h Fault) bool { return h.Do == f.Do }) {
			continue
		}
		f.Hits++
		hit = append(hit, *f)
	}
	return hit
}

func (f *Fault) matches(api, account, openid string) bool {
	return (f.API == "" || api == "" || f.API == api) &&
		(f.Account == "" || f.Account == account) && (f.OpenID == "" || f.OpenID == openid)
}

// first returns the fault that does one of what, if any.
func first(hit []Fault, what ...string) (Fault, bool) {
	for _, f := range hit {
		if slices.Contains(what, f.Do) {
			return f, true
		}
	}
	return Fault{}, false
}
