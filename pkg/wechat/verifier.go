package wechat

import (
	"bytes"
	"crypto/cipher"
	"errors"
	"fmt"
	"time"
)

// Mode is how an account exchanges messages with WeChat. It is a setting of the
// account and decides what a callback must look like; the request has no say.
type Mode string

const (
	// ModePlain: bodies are readable and not signed. Only the query string is
	// authentic, so anybody who sees one request can send another body with it.
	ModePlain Mode = "plain"
	// ModeCompatible: bodies hold both forms; only the encrypted one is used.
	ModeCompatible Mode = "compatible"
	// ModeSafe: bodies are encrypted and signed.
	ModeSafe Mode = "safe"
)

// Credentials are the settings of one account's callback. PrevToken and
// PrevEncodingAESKey are the values before a change; they stay accepted until
// PrevUntil, or while they are configured if it is zero, because WeChat uses the
// new ones from the moment of the change while requests with the old ones are
// still on their way. Afterwards what they signed is refused like anything else.
type Credentials struct {
	AppID              string    `koanf:"app_id"`
	Token              string    `koanf:"token" secret:"true"`
	PrevToken          string    `koanf:"prev_token" secret:"true"`
	EncodingAESKey     string    `koanf:"encoding_aes_key" secret:"true"`
	PrevEncodingAESKey string    `koanf:"prev_encoding_aes_key" secret:"true"`
	PrevUntil          time.Time `koanf:"prev_until"`
	// Mode defaults to safe.
	Mode Mode `koanf:"mode"`
	// Freshness is how far a timestamp may be from our clock, in either
	// direction. Zero accepts any timestamp: WeChat documents no limit.
	Freshness time.Duration `koanf:"freshness"`
}

// Validate reports what is missing or malformed, without showing any secret.
func (c Credentials) Validate() error {
	_, err := NewVerifier(c)
	return err
}

// Verifier checks and opens callbacks of one account and seals answers to them.
// It may be used by many goroutines.
type Verifier struct {
	mode      Mode
	appID     string
	tokens    []string
	keys      []aesKey
	prevUntil time.Time
	freshness time.Duration
	now       func() time.Time
}

type aesKey struct {
	raw   []byte
	block cipher.Block
}

// VerifierOption changes how a Verifier is built.
type VerifierOption func(*Verifier)

// WithClock sets the clock that the freshness window is measured against.
func WithClock(now func() time.Time) VerifierOption {
	return func(v *Verifier) { v.now = now }
}

// NewVerifier prepares the keys of an account. Its errors name the field to
// correct and never show the value.
func NewVerifier(c Credentials, options ...VerifierOption) (*Verifier, error) {
	v := &Verifier{mode: c.Mode, appID: c.AppID, prevUntil: c.PrevUntil, freshness: c.Freshness, now: time.Now}
	if v.mode == "" {
		v.mode = ModeSafe
	}
	switch v.mode {
	case ModePlain, ModeCompatible, ModeSafe:
	default:
		return nil, fmt.Errorf("wechat credentials: mode %q is unknown; use plain, compatible or safe", c.Mode)
	}
	if c.Token == "" {
		return nil, errors.New("wechat credentials: token is empty; set it to the Token of the account's server settings")
	}
	if c.Freshness < 0 {
		return nil, fmt.Errorf("wechat credentials: freshness is %s; use 0 (off) or a positive duration", c.Freshness)
	}
	if !c.PrevUntil.IsZero() && c.PrevToken == "" && c.PrevEncodingAESKey == "" {
		return nil, errors.New("wechat credentials: prev_until is the end of prev_token and prev_encoding_aes_key; set one of them, or leave prev_until out")
	}
	v.tokens = []string{c.Token}
	if c.PrevToken != "" {
		v.tokens = append(v.tokens, c.PrevToken)
	}
	if v.mode != ModePlain {
		if err := v.addKeys(c); err != nil {
			return nil, err
		}
	}
	for _, o := range options {
		o(v)
	}
	return v, nil
}

func (v *Verifier) addKeys(c Credentials) error {
	if c.AppID == "" {
		return errors.New("wechat credentials: app_id is empty; encrypted callbacks cannot be checked without it")
	}
	if c.EncodingAESKey == "" {
		return fmt.Errorf("wechat credentials: encoding_aes_key is empty; mode %s needs it", v.mode)
	}
	fields := []struct{ name, value string }{
		{"encoding_aes_key", c.EncodingAESKey},
		{"prev_encoding_aes_key", c.PrevEncodingAESKey},
	}
	for _, f := range fields {
		if f.value == "" {
			continue
		}
		raw, err := DecodeAESKey(f.value)
		if err != nil {
			return fmt.Errorf("wechat credentials: %s: %w", f.name, err)
		}
		block, err := newBlock(raw)
		if err != nil {
			return fmt.Errorf("wechat credentials: %s: %w", f.name, err)
		}
		v.keys = append(v.keys, aesKey{raw: raw, block: block})
	}
	return nil
}

// Mode returns the account's mode.
func (v *Verifier) Mode() Mode { return v.mode }

// CheckQuery checks what can be known before the body is read: signature,
// timestamp and nonce are there, the signature is of one of our tokens and the
// timestamp is fresh. It proves nothing about the body; Open does. The error is
// a *Refusal.
func (v *Verifier) CheckQuery(q Query) error {
	if q.Signature == "" || q.Timestamp == "" || q.Nonce == "" {
		return refuse(ReasonMissing)
	}
	if v.signer(q.Signature, nil, q.Timestamp, q.Nonce) < 0 {
		return refuse(ReasonSignature)
	}
	if v.freshness > 0 {
		age := v.now().Sub(time.Unix(q.Seconds(), 0))
		if age > v.freshness || age < -v.freshness {
			return refuse(ReasonStale)
		}
	}
	return nil
}

// CheckURL answers the GET request by which WeChat checks the address. The
// result is the exact body to send back, as text/plain. In all modes of a
// service account the text is not encrypted. The error is a *Refusal.
func (v *Verifier) CheckURL(q Query) (string, error) {
	if err := v.CheckQuery(q); err != nil {
		return "", err
	}
	if !q.HasEchoStr || q.EchoStr == "" {
		return "", refuse(ReasonMissing)
	}
	return q.EchoStr, nil
}

// Opened is an authentic callback.
type Opened struct {
	// Plain is the message document. It may share memory with the body given
	// to Open.
	Plain []byte
	// Encrypted says that Plain came out of the ciphertext, so that it is
	// WeChat's word and not only a body beside a valid query string.
	Encrypted bool

	token int
	key   int
}

// Open checks a callback and returns its message document. What it demands
// follows from the account's mode alone (S9): in compatible and safe mode a
// valid msg_signature over the ciphertext, and only the decrypted part is used.
// The signature is checked before anything is decrypted. The current keys are
// tried first, then the previous ones. The error is a *Refusal.
func (v *Verifier) Open(q Query, body []byte) (Opened, error) {
	if err := v.CheckQuery(q); err != nil {
		return Opened{}, err
	}
	return v.OpenChecked(q, body)
}

// OpenChecked is Open for a query that CheckQuery has let through.
func (v *Verifier) OpenChecked(q Query, body []byte) (Opened, error) {
	if len(body) > MaxBody {
		return Opened{}, refuse(ReasonTooLarge)
	}
	if v.mode == ModePlain {
		return v.openPlain(q, body)
	}
	if q.MsgSignature == "" {
		return Opened{}, refuse(ReasonMode)
	}
	if _, p := readProlog(body); p != prologClean {
		return Opened{}, refuse(ReasonEnvelope)
	}
	texts := encryptTexts(body)
	if len(texts) == 0 {
		return Opened{}, refuse(ReasonMode)
	}
	for _, text := range texts {
		token := v.signer(q.MsgSignature, text, q.Timestamp, q.Nonce)
		if token < 0 {
			continue
		}
		for i, k := range v.keys {
			if i > 0 && v.overlapEnded() {
				break
			}
			plain, err := decrypt(k.block, k.raw, v.appID, text)
			if err == nil {
				return Opened{Plain: plain, Encrypted: true, token: token, key: i}, nil
			}
		}
		return Opened{}, refuse(ReasonCiphertext)
	}
	return Opened{}, refuse(ReasonSignature)
}

// openPlain takes the body as it is. A body that holds nothing but ciphertext
// means that the account was switched to safe mode and we were not: refusing
// makes that visible, acknowledging would lose every message without a trace.
func (v *Verifier) openPlain(q Query, body []byte) (Opened, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return Opened{}, refuse(ReasonEnvelope)
	}
	if q.EncryptType == "aes" && !bytes.Contains(body, []byte("<MsgType>")) {
		return Opened{}, refuse(ReasonMode)
	}
	return Opened{Plain: body, token: v.signer(q.Signature, nil, q.Timestamp, q.Nonce)}, nil
}

// signer returns the index of the token that made the given signature over the
// parts and the sealed text, if there is one; or -1.
// All tokens are tried whatever the first one gives; the previous one only while
// the overlap lasts.
func (v *Verifier) signer(given string, sealed []byte, parts ...string) int {
	found := -1
	var few [4]string
	for i, token := range v.tokens {
		if i > 0 && v.overlapEnded() {
			break
		}
		all := append(append(few[:0], token), parts...)
		if sameText(signature(sealed, all...), given) && found < 0 {
			found = i
		}
	}
	return found
}

// overlapEnded tells that the values before a change are not good any more.
func (v *Verifier) overlapEnded() bool {
	return !v.prevUntil.IsZero() && !v.now().Before(v.prevUntil)
}

// Seal turns a passive answer into the body to send: encrypted with the key
// and signed with the token that the request used, or unchanged when the
// request was plain. The words that only acknowledge, "success" and the empty
// body, are never encrypted. timestamp and nonce are ours to choose: decimal
// seconds and a short text of letters and digits.
func (v *Verifier) Seal(o Opened, plain []byte, timestamp, nonce string) ([]byte, error) {
	if !o.Encrypted || len(plain) == 0 || string(plain) == Success {
		return plain, nil
	}
	if !isTimestamp(timestamp) || timestamp == "" {
		return nil, errors.New("seal answer: timestamp must be decimal seconds")
	}
	if nonce == "" || len(nonce) > maxNonce || !isWord(nonce) {
		return nil, errors.New("seal answer: nonce must be 1 to 128 letters, digits, - or _")
	}
	text, err := Encrypt(v.keys[o.key].raw, v.appID, nil, plain)
	if err != nil {
		return nil, fmt.Errorf("seal answer: %w", err)
	}
	return sealedEnvelope(v.tokens[o.token], text, timestamp, nonce), nil
}

// sealedEnvelope writes the encrypted form of an answer.
func sealedEnvelope(token, text, timestamp, nonce string) []byte {
	b := make([]byte, 0, len(text)+256)
	b = append(b, "<xml><Encrypt><![CDATA["...)
	b = append(b, text...)
	b = append(b, "]]></Encrypt><MsgSignature><![CDATA["...)
	b = append(b, Signature(token, timestamp, nonce, text)...)
	b = append(b, "]]></MsgSignature><TimeStamp>"...)
	b = append(b, timestamp...)
	b = append(b, "</TimeStamp><Nonce><![CDATA["...)
	b = append(b, nonce...)
	b = append(b, "]]></Nonce></xml>"...)
	return b
}

// Success is the body that acknowledges a callback. It goes out as these seven
// bytes: WeChat counts the word in quotes as an error.
const Success = "success"
