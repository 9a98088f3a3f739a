package dialogue

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
)

// Config is the section robot.dialogue.
type Config struct {
	// Key seals what followers wrote in dialogues while it lies in Redis; all
	// robots of a deployment have the same. Rules with dialogues need one.
	Key string `koanf:"key" secret:"true"`
	// PrevKey opens what was sealed before Key was changed.
	PrevKey string `koanf:"prev_key" secret:"true"`
}

const minKey = 16

// Validate checks the keys.
func (c Config) Validate() error {
	for name, key := range map[string]string{"key": c.Key, "prev_key": c.PrevKey} {
		if key != "" && len(key) < minKey {
			return fmt.Errorf("robot.dialogue.%s: it has %d characters, use at least %d: 'openssl rand -base64 32' makes one", name, len(key), minKey)
		}
	}
	if c.PrevKey != "" && c.Key == "" {
		return errors.New("robot.dialogue.prev_key: there is no key beside it")
	}
	return nil
}

// sealVersion begins every sealed record.
const sealVersion = "\x01"

var errSealed = errors.New("the record cannot be opened with robot.dialogue.key")

// sealer hides records. It seals with the first key and opens with any.
type sealer []cipher.AEAD

func newSealer(keys ...string) (sealer, error) {
	var out sealer
	for _, k := range keys {
		if k == "" {
			continue
		}
		derived, err := hkdf.Key(sha256.New, []byte(k), nil, "tidegate dialogue 1", 32)
		if err != nil {
			return nil, err
		}
		block, err := aes.NewCipher(derived)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, err
		}
		out = append(out, aead)
	}
	return out, nil
}

// seal binds the text to the name of its key, so that a record copied to
// another follower's key is no record.
func (s sealer) seal(name string, text []byte) string {
	nonce := make([]byte, s[0].NonceSize(), s[0].NonceSize()+len(text)+s[0].Overhead())
	_, _ = rand.Read(nonce) // never fails
	return sealVersion + string(s[0].Seal(nonce, nonce, text, []byte(name)))
}

func (s sealer) open(name, sealed string) ([]byte, error) {
	if len(sealed) == 0 || sealed[:1] != sealVersion {
		return nil, errSealed
	}
	sealed = sealed[1:]
	for _, aead := range s {
		if n := aead.NonceSize(); len(sealed) > n {
			if text, err := aead.Open(nil, []byte(sealed[:n]), []byte(sealed[n:]), []byte(name)); err == nil {
				return text, nil
			}
		}
	}
	return nil, errSealed
}
