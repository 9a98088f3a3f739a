package proxy_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
)

// frameOf lays out what WeChat encrypts (random, length, message, id, padding),
// with a length and a padding of the attacker's choice; -1 pads rightly.
func frameOf(length int32, message, id string, padding int) string {
	b := []byte("0123456789abcdef")
	b = binary.BigEndian.AppendUint32(b, uint32(length))
	b = append(b, message...)
	b = append(b, id...)
	n := 32 - len(b)%32
	pad := byte(n)
	if padding >= 0 {
		pad = byte(padding)
	}
	return string(append(b, bytes.Repeat([]byte{pad}, n)...))
}

// sealFrame encrypts a frame as it is; it must be whole blocks.
func sealFrame(key, frame []byte) string {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	out := make([]byte, len(frame)/aes.BlockSize*aes.BlockSize)
	cipher.NewCBCEncrypter(block, key[:aes.BlockSize]).CryptBlocks(out, frame[:len(out)])
	return base64.StdEncoding.EncodeToString(out)
}
