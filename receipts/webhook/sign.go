package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"

	secretPrefix = "whsec_"
	// The specification's bounds of a key, in bytes.
	minKey, maxKey = 24, 64
)

// parseSecret reads whsec_ and a key in base64. Its errors quote nothing.
func parseSecret(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	if !ok {
		return nil, fmt.Errorf("it does not begin with %s: make one with `echo whsec_$(openssl rand -base64 32)`", secretPrefix)
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("what follows %s is not base64", secretPrefix)
	}
	if len(key) < minKey || len(key) > maxKey {
		return nil, fmt.Errorf("it holds %d bytes: use %d to %d", len(key), minKey, maxKey)
	}
	return key, nil
}

// sign gives the headers of one attempt. Every key signs, so that a receiver
// verifies with the old one or the new one while they are exchanged (S48).
func sign(keys [][]byte, id string, at time.Time, body []byte) http.Header {
	stamp := strconv.FormatInt(at.Unix(), 10)
	var sums []string
	for _, key := range keys {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(id + "." + stamp + "."))
		m.Write(body)
		sums = append(sums, "v1,"+base64.StdEncoding.EncodeToString(m.Sum(nil)))
	}
	return http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"Tidegate-Webhooks"},
		headerID: {id}, headerTimestamp: {stamp}, headerSignature: {strings.Join(sums, " ")},
	}
}
