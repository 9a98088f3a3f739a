package dedupe

import (
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"
)

// maxNonces bounds what one node remembers of nonces, about 10 MB. Beyond it the
// older half is forgotten: Redis remembers all of them, this is what is left
// while it is away. Only who can sign makes new ones, so a stranger cannot push
// the memory out.
const maxNonces = 1 << 17

// nonceMemory is one node's own memory of nonces, in two generations.
type nonceMemory struct {
	limit int // of one generation

	mu         sync.Mutex
	young, old map[nonceKey]nonceUse
}

type nonceKey [16]byte

type nonceUse struct {
	body  [16]byte
	until int64 // unix milliseconds
}

func keyOf(text string) nonceKey {
	sum := sha256.Sum256([]byte(text))
	return nonceKey(sum[:16])
}

// note remembers n and tells how it was used here before.
func (m *nonceMemory) note(n Nonce, now time.Time) NonceVerdict {
	k := keyOf(n.Key)
	m.mu.Lock()
	defer m.mu.Unlock()
	u, seen := m.young[k]
	if !seen {
		u, seen = m.old[k]
	}
	switch {
	case !seen || u.until <= now.UnixMilli():
		m.put(k, nonceUse{body: [16]byte(n.Body[:16]), until: now.Add(n.TTL).UnixMilli()})
		return NonceFirst
	case u.body != [16]byte(n.Body[:16]):
		return NonceReused
	}
	return NonceRepeated
}

// correct takes another node's word for which body came first, so that the
// forgery is not what this node remembers.
func (m *nonceMemory) correct(n Nonce, mark string, now time.Time) {
	b, err := base64.RawURLEncoding.DecodeString(mark)
	if err != nil || len(b) != 16 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(keyOf(n.Key), nonceUse{body: [16]byte(b), until: now.Add(n.TTL).UnixMilli()})
}

func (m *nonceMemory) put(k nonceKey, u nonceUse) {
	if len(m.young) >= m.limit {
		m.old, m.young = m.young, nil
	}
	if m.young == nil {
		m.young = map[nonceKey]nonceUse{}
	}
	m.young[k] = u
}
