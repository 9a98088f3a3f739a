package wechat

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// S10, S11: whatever is wrong with a ciphertext, the refusal is the same.
func TestBadCiphertexts(t *testing.T) {
	c := sampleCredentials(ModeSafe)
	v, err := NewVerifier(c)
	require.NoError(t, err)
	key, err := DecodeAESKey(c.EncodingAESKey)
	require.NoError(t, err)
	body := []byte("<xml></xml>")
	frame := func(length uint32, msg []byte, appID string, pad func(n int) []byte) string {
		f := append(make([]byte, 16), binary.BigEndian.AppendUint32(nil, length)...)
		f = append(append(f, msg...), appID...)
		f = append(f, pad(padBlock-len(f)%padBlock)...)
		block, err := aes.NewCipher(key)
		require.NoError(t, err)
		cipher.NewCBCEncrypter(block, key[:16]).CryptBlocks(f, f)
		return base64.StdEncoding.EncodeToString(f)
	}
	normal := func(n int) []byte { return bytes.Repeat([]byte{byte(n)}, n) }
	last := func(b byte) func(int) []byte {
		return func(n int) []byte { p := normal(n); p[n-1] = b; return p }
	}
	good := frame(11, body, ourAppID, normal)
	_, err = v.Open(signed(c.Token, good), envelope(good))
	require.NoError(t, err, "the frame maker makes good frames as well")

	bad := map[string]string{
		"other appid":     frame(11, body, "wx0000000000000001", normal),
		"no appid":        frame(11, body, "", normal),
		"longer appid":    frame(11, body, ourAppID+"x", normal),
		"length short":    frame(10, body, ourAppID, normal),
		"length past end": frame(1000, body, ourAppID, normal),
		"length negative": frame(0xffffffff, body, ourAppID, normal),
		"pad 0":           frame(11, body, ourAppID, last(0)),
		"pad 33":          frame(11, body, ourAppID, last(33)),
		"pad 255":         frame(11, body, ourAppID, last(255)),
		"pad uneven":      frame(11, body, ourAppID, func(n int) []byte { p := normal(n); p[0] ^= 1; return p }),
		"one block":       base64.StdEncoding.EncodeToString(make([]byte, 16)),
		"no block":        base64.StdEncoding.EncodeToString(make([]byte, 17)),
		"no base64":       "AAA",
		"padding only":    "====",
		"zeros":           base64.StdEncoding.EncodeToString(make([]byte, 45<<10)),
	}
	for name, text := range bad {
		_, err := v.Open(signed(c.Token, text), envelope(text))
		requireRefusal(t, err, ReasonCiphertext)
		_, err = Decrypt(key, ourAppID, text)
		require.Equal(t, ErrCiphertext, err, name)
		_, err = v.Open(signed("another's", text), envelope(text))
		requireRefusal(t, err, ReasonSignature)
		forged := signed(c.Token, text)
		forged.MsgSignature = strings.Repeat("0", 40)
		_, err = v.Open(forged, envelope(text))
		requireRefusal(t, err, ReasonSignature)
	}
	_, err = v.Open(signed(c.Token, ""), envelope(""))
	requireRefusal(t, err, ReasonMode)
}

// The whole range of paddings goes both ways, a full block included.
func TestEveryPadding(t *testing.T) {
	key, err := DecodeAESKey(strings.Repeat("A", 43))
	require.NoError(t, err)
	for n := range 70 {
		msg := bytes.Repeat([]byte("x"), n)
		text, err := Encrypt(key, "wx1", nil, msg)
		require.NoError(t, err)
		got, err := Decrypt(key, "wx1", text)
		require.NoError(t, err)
		require.Equal(t, msg, got)
		raw, err := base64.StdEncoding.DecodeString(text)
		require.NoError(t, err)
		require.Zero(t, len(raw)%padBlock)
	}
	for _, random := range [][]byte{make([]byte, 15), make([]byte, 17)} {
		_, err = Encrypt(key, "wx1", random, nil)
		require.Error(t, err)
	}
	_, err = Encrypt(key[:31], "wx1", nil, nil)
	require.Error(t, err)
	_, err = Encrypt(key, "wx1", nil, make([]byte, maxPlain+1))
	require.Error(t, err)
	_, err = Decrypt(nil, "wx1", "")
	require.Error(t, err)
}

func TestDecodeAESKeyIsLenientAboutUnusedBits(t *testing.T) {
	strict := strings.Repeat("A", 42)
	want, err := DecodeAESKey(strict + "A")
	require.NoError(t, err)
	require.Len(t, want, 32)
	for _, c := range "BCD" {
		got, err := DecodeAESKey(strict + string(c))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	got, err := DecodeAESKey(" " + strict + "A\n")
	require.NoError(t, err)
	require.Equal(t, want, got)
	for _, bad := range []string{"", strict, strict + "AA", strict + "-", strict + "=", strings.Repeat("A", 41) + "\nA"} {
		_, err := DecodeAESKey(bad)
		require.Error(t, err)
		require.NotContains(t, err.Error(), strict)
	}
}
