package reader

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Outcome is what senders have said of one message, in as many receipts as there
// are.
type Outcome struct {
	Receipts int
	// States counts the receipts by state; two states of one message contradict
	// each other.
	States map[string]int
	// Flagged tells that one of them says that the user may have seen it twice.
	Flagged bool
	// OpenIDs are the followers that they name.
	OpenIDs map[string]bool
}

// receiptLetter is the part of a receipt letter that is needed.
type receiptLetter struct {
	Source            string `json:"source"`
	ID                string `json:"id"`
	OpenID            string `json:"openid"`
	State             string `json:"state"`
	PossibleDuplicate bool   `json:"possible_duplicate"`
}

// Outcomes reads the receipts of senders, by the message's id.
func Outcomes(ctx context.Context, broker, topic string) (map[string]*Outcome, error) {
	out := map[string]*Outcome{}
	_, err := each(ctx, broker, []string{topic}, func(r *kgo.Record) error {
		var l receiptLetter
		if err := json.Unmarshal(r.Value, &l); err != nil {
			return fmt.Errorf("record %s/%d:%d is no letter: %w", r.Topic, r.Partition, r.Offset, err)
		}
		if l.Source != "sender" {
			return nil
		}
		o := out[l.ID]
		if o == nil {
			o = &Outcome{States: map[string]int{}, OpenIDs: map[string]bool{}}
			out[l.ID] = o
		}
		o.Receipts++
		o.States[l.State]++
		o.Flagged = o.Flagged || l.PossibleDuplicate
		o.OpenIDs[l.OpenID] = true
		return nil
	})
	return out, err
}
