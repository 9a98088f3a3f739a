package wechat

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

const (
	// padBlock is the block size of the padding. It is twice the block of AES,
	// so pads of 17 to 32 bytes are as normal as short ones; code that checks
	// against 16 fails on every second message.
	padBlock = 32
	// randomLength and lengthField are the two parts in front of the message.
	randomLength = 16
	lengthField  = 4
	// encodedKeyLength is the length of an EncodingAESKey.
	encodedKeyLength = 43
	// keyLength is the length of the decoded AES key.
	keyLength = 32
	// maxPlain bounds what Encrypt takes: far above any reply, far below what
	// would let a length calculation wrap.
	maxPlain = 1 << 20
)

// ErrCiphertext is the one error of Decrypt. It is the same for bad base64, a
// broken block, wrong padding, a length that does not fit and a foreign appid,
// so that nobody can learn from it which of them it was (S11).
var ErrCiphertext = errors.New("ciphertext refused: check that EncodingAESKey and AppID are those of the account")

// DecodeAESKey turns the 43 characters of an EncodingAESKey into the 32-byte
// AES key. The unused bits of the last character may have any value: two of
// Tencent's own sample keys set them and a strict decoder would refuse those.
// The error never holds the key.
func DecodeAESKey(encodingAESKey string) ([]byte, error) {
	s := strings.TrimSpace(encodingAESKey)
	if len(s) != encodedKeyLength {
		return nil, fmt.Errorf("decode EncodingAESKey: it has %d characters and needs %d; copy it again from the account's settings page", len(s), encodedKeyLength)
	}
	key, err := base64.StdEncoding.DecodeString(s + "=")
	if err != nil || len(key) != keyLength {
		return nil, errors.New("decode EncodingAESKey: it holds a character outside A-Z, a-z, 0-9, + and /; copy it again from the account's settings page")
	}
	return key, nil
}

// Encrypt frames msg the way WeChat does (random, length, message, appid),
// pads to 32 bytes, encrypts with AES-256-CBC and returns standard base64.
// random16 is for reproducing known vectors; give nil and it is drawn from the
// system's source. A full block of padding is added when the frame already fits.
func Encrypt(key []byte, appID string, random16, msg []byte) (string, error) {
	if len(msg) > maxPlain {
		return "", fmt.Errorf("encrypt: message has %d bytes, the limit is %d", len(msg), maxPlain)
	}
	if len(random16) != 0 && len(random16) != randomLength {
		return "", fmt.Errorf("encrypt: random part has %d bytes and needs %d", len(random16), randomLength)
	}
	block, err := newBlock(key)
	if err != nil {
		return "", fmt.Errorf("encrypt: %w", err)
	}
	length := randomLength + lengthField + len(msg) + len(appID)
	pad := padBlock - length%padBlock
	frame := make([]byte, 0, length+pad)
	frame = append(frame, make([]byte, randomLength)...)
	if len(random16) == randomLength {
		copy(frame, random16)
	} else if _, err := rand.Read(frame[:randomLength]); err != nil {
		return "", fmt.Errorf("encrypt: draw random bytes: %w", err)
	}
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(msg)))
	frame = append(frame, msg...)
	frame = append(frame, appID...)
	for range pad {
		frame = append(frame, byte(pad))
	}
	cipher.NewCBCEncrypter(block, key[:aes.BlockSize]).CryptBlocks(frame, frame)
	return base64.StdEncoding.EncodeToString(frame), nil
}

// Decrypt reverses Encrypt and returns the message. The appid behind it must be
// appID: with a wrong key the padding looks right by chance once in 256 times,
// and an attacker with a key of his own account must not get in. Every failure
// is ErrCiphertext.
func Decrypt(key []byte, appID string, base64Text string) ([]byte, error) {
	block, err := newBlock(key)
	if err != nil {
		return nil, fmt.Errorf("decrypt: %w", err)
	}
	return decrypt(block, key, appID, []byte(base64Text))
}

// decrypt is Decrypt with a prepared block cipher, so that a Verifier expands
// each key once and not once per callback.
func decrypt(block cipher.Block, key []byte, appID string, base64Text []byte) ([]byte, error) {
	data, err := base64.StdEncoding.AppendDecode(nil, base64Text)
	if err != nil || len(data) < padBlock || len(data)%aes.BlockSize != 0 {
		return nil, ErrCiphertext
	}
	cipher.NewCBCDecrypter(block, key[:aes.BlockSize]).CryptBlocks(data, data)
	frame, ok := unpad(data)
	if !ok || len(frame) < randomLength+lengthField {
		return nil, ErrCiphertext
	}
	rest := frame[randomLength+lengthField:]
	length := binary.BigEndian.Uint32(frame[randomLength:])
	if uint64(length) > uint64(len(rest)) {
		return nil, ErrCiphertext
	}
	msg, trailer := rest[:length:length], rest[length:]
	if subtle.ConstantTimeCompare(trailer, []byte(appID)) != 1 {
		return nil, ErrCiphertext
	}
	return msg, nil
}

// unpad removes the padding, looking at the same number of bytes whatever the
// pad is. data holds at least padBlock bytes.
func unpad(data []byte) ([]byte, bool) {
	pad := int(data[len(data)-1])
	good := subtle.ConstantTimeLessOrEq(1, pad) & subtle.ConstantTimeLessOrEq(pad, padBlock)
	tail := data[len(data)-padBlock:]
	for i, b := range tail {
		inPad := subtle.ConstantTimeLessOrEq(padBlock-pad, i)
		good &= subtle.ConstantTimeSelect(inPad, subtle.ConstantTimeByteEq(b, byte(pad)), 1)
	}
	if good != 1 {
		return nil, false
	}
	return data[:len(data)-pad], true
}

func newBlock(key []byte) (cipher.Block, error) {
	if len(key) != keyLength {
		return nil, fmt.Errorf("AES key has %d bytes and needs %d", len(key), keyLength)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("prepare AES key: %w", err)
	}
	return block, nil
}
