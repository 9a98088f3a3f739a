package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
)

// MaxBatch is how many pushes one call of PushBatch may hold.
const MaxBatch = 1000

// BatchResult is what became of one push of a batch: Err is nil if it is durable,
// and otherwise a *Problem.
type BatchResult struct {
	Accepted
	Err error
}

type batchPush struct {
	Push
	IdempotencyKey string `json:"idempotency_key"`
	ExpiresAt      string `json:"expires_at,omitempty"`
	NotBefore      string `json:"not_before,omitempty"`
}

// PushBatch queues up to MaxBatch messages. The results are in the order of the
// pushes; each is accepted or refused by itself. After an error of the call any of
// them may have been accepted: call again with the keys in the results, which are
// there also then.
func (c *Client) PushBatch(ctx context.Context, pushes []Push) ([]BatchResult, error) {
	out := make([]BatchResult, len(pushes))
	all := make([]batchPush, len(pushes))
	for i, p := range pushes {
		if p.IdempotencyKey == "" {
			p.IdempotencyKey = "auto-" + rand.Text()
		}
		all[i] = batchPush{Push: p, IdempotencyKey: p.IdempotencyKey, ExpiresAt: rfc3339(p.ExpiresAt), NotBefore: rfc3339(p.NotBefore)}
		out[i].IdempotencyKey = p.IdempotencyKey
	}
	body, err := json.Marshal(map[string]any{"pushes": all})
	if err != nil {
		return out, fmt.Errorf("push batch: %w", err)
	}
	var answer struct {
		Results []struct {
			ID      string   `json:"id"`
			State   string   `json:"state"`
			Problem *Problem `json:"problem"`
		} `json:"results"`
	}
	if err := c.call(ctx, http.MethodPost, c.pushes+"/v1/pushes:batch", nil, body, http.StatusOK, &answer); err != nil {
		return out, fmt.Errorf("push batch: %w", err)
	}
	if len(answer.Results) != len(out) {
		return out, fmt.Errorf("push batch: %d results for %d pushes", len(answer.Results), len(out))
	}
	for i, r := range answer.Results {
		out[i].ID, out[i].State = r.ID, r.State
		if r.Problem != nil {
			out[i].Err = r.Problem
		}
	}
	return out, nil
}
