package api

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

// maxSealed leaves room for a selection of some hundred ids.
const maxSealed = 16 << 10

// Sealer makes texts that come back unchanged or not at all: cursors, and
// confirmations of a counted selection. They are signed, not encrypted.
type Sealer struct {
	key []byte
	now func() time.Time
}

// NewSealer makes a sealer with a key of at least 32 bytes. now may be nil for
// the real clock.
func NewSealer(key []byte, now func() time.Time) (*Sealer, error) {
	if len(key) < 32 {
		return nil, fault.New(fault.Internal, "make sealer", "the key has %d bytes, at least 32 are needed", len(key))
	}
	if now == nil {
		now = time.Now
	}
	return &Sealer{key: key, now: now}, nil
}

// LoadSealer makes a sealer with the deployment's key, which the first node
// that asks puts into the database.
func LoadSealer(ctx context.Context, db *sqldb.DB, now func() time.Time) (*Sealer, error) {
	fresh := make([]byte, 32)
	rand.Read(fresh)
	var key []byte
	err := db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO api_secrets (name, secret) VALUES ('seal', $1) ON CONFLICT (name) DO NOTHING`, fresh); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT secret FROM api_secrets WHERE name = 'seal'`).Scan(&key)
	})
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), "load key for cursors", err)
	}
	return NewSealer(key, now)
}

type sealed struct {
	Until int64           `json:"u,omitempty"` // Unix milliseconds, 0: no end
	Value json.RawMessage `json:"v"`
}

// Seal packs a value for a purpose ("cursor of messages"); with life > 0 it is
// refused after that time.
func (s *Sealer) Seal(purpose string, v any, life time.Duration) (string, error) {
	const op = "seal value"
	value, err := json.Marshal(v)
	if err != nil {
		return "", fault.Wrap(fault.Internal, op, err)
	}
	box := sealed{Value: value}
	if life > 0 {
		box.Until = s.now().Add(life).UnixMilli()
	}
	body, err := json.Marshal(box)
	if err != nil {
		return "", fault.Wrap(fault.Internal, op, err)
	}
	return base64.RawURLEncoding.EncodeToString(append(s.sum(purpose, body), body...)), nil
}

// Open unpacks a text that Seal made for the same purpose. Anything else, and
// one past its life, is fault.Invalid.
func (s *Sealer) Open(purpose, text string, v any) error {
	op := "read " + purpose
	bad := fault.New(fault.Invalid, op, "the %s is not one that was given out here", purpose)
	if len(text) > maxSealed {
		return bad
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) < sha256.Size || !hmac.Equal(raw[:sha256.Size], s.sum(purpose, raw[sha256.Size:])) {
		return bad
	}
	var box sealed
	if err := json.Unmarshal(raw[sha256.Size:], &box); err != nil {
		return bad
	}
	if box.Until != 0 && s.now().UnixMilli() > box.Until {
		return fault.New(fault.Invalid, op, "the %s is too old: ask for a new one", purpose)
	}
	if err := json.Unmarshal(box.Value, v); err != nil {
		return bad
	}
	return nil
}

func (s *Sealer) sum(purpose string, body []byte) []byte {
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(purpose))
	h.Write([]byte{0})
	h.Write(body)
	return h.Sum(nil)
}
