package guard

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
)

// box encrypts personal values (AES-256-GCM) and ties each to its place, so that
// who can write to Redis cannot show one person's value to another.
type box struct{ aead cipher.AEAD }

func newBox(key []byte) (*box, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("deployment key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("deployment key: %w", err)
	}
	return &box{aead}, nil
}

var errSealed = errors.New("a cached value cannot be decrypted: do all nodes have the same key?")

// seal makes a value ready for Redis.
func (g *Guard) seal(p place, body []byte) []byte {
	if !p.personal {
		return body
	}
	//nolint:gosec // this AEAD makes a random nonce for each value itself and takes none
	return g.box.aead.Seal(make([]byte, 0, len(body)+g.box.aead.Overhead()), nil, body, []byte(g.cfg.Backend+"/"+p.id()))
}

// unseal reads what seal made.
func (g *Guard) unseal(p place, sealed []byte) ([]byte, error) {
	if !p.personal {
		return sealed, nil
	}
	body, err := g.box.aead.Open(nil, nil, sealed, []byte(g.cfg.Backend+"/"+p.id()))
	if err != nil {
		return nil, errSealed
	}
	return body, nil
}

// token is a random owner of leases.
func token() string { return rand.Text() }
