package wechat

import "tidegate/pkg/fault"

// Refusal is the error for a callback that is not authentic or not in form.
// Its text is always the same, so that an answer built from it tells the peer
// nothing; Reason is for our own metrics and has a small closed set of values.
type Refusal struct {
	Reason Reason
}

// Reason says why a callback was refused. The values are fit for a metric label.
type Reason string

const (
	// ReasonQuery: the query string is not in form (double, odd or oversized parameters).
	ReasonQuery Reason = "query"
	// ReasonMissing: signature, timestamp or nonce is missing.
	ReasonMissing Reason = "missing"
	// ReasonSignature: no configured token gives this signature.
	ReasonSignature Reason = "signature"
	// ReasonStale: the timestamp is outside the freshness window.
	ReasonStale Reason = "stale"
	// ReasonMode: the request does not have the form that the account's mode
	// demands, for example a plain body for an account in safe mode.
	ReasonMode Reason = "mode"
	// ReasonEnvelope: the body is not an envelope (empty, a DOCTYPE, no root).
	ReasonEnvelope Reason = "envelope"
	// ReasonCiphertext: it was signed, but none of the configured keys opens it.
	ReasonCiphertext Reason = "ciphertext"
	// ReasonTooLarge: the body is longer than MaxBody.
	ReasonTooLarge Reason = "too_large"
)

func (r *Refusal) Error() string { return "callback refused" }

// As lets fault.KindOf see a refusal as fault.Denied (fault.Invalid when the
// body is only too long) without a second wrapper around it.
func (r *Refusal) As(target any) bool {
	f, ok := target.(**fault.Error)
	if !ok {
		return false
	}
	kind := fault.Denied
	if r.Reason == ReasonTooLarge {
		kind = fault.Invalid
	}
	*f = &fault.Error{Kind: kind, Op: "open callback", Err: r}
	return true
}

func refuse(reason Reason) error { return &Refusal{Reason: reason} }
