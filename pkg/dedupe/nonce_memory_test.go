package dedupe

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNonceMemoryIsBoundedAndForgetsInTime(t *testing.T) {
	m := nonceMemory{limit: 100}
	now := time.Unix(1893456000, 0)
	n := func(i int, body string) Nonce {
		return Nonce{Key: fmt.Sprint(i), Body: sha256.Sum256([]byte(body)), TTL: time.Minute}
	}
	for i := range 1000 {
		require.Equal(t, NonceFirst, m.note(n(i, "a"), now))
		require.LessOrEqual(t, len(m.young)+len(m.old), 200)
	}
	require.Equal(t, NonceReused, m.note(n(950, "b"), now))
	require.Equal(t, NonceRepeated, m.note(n(950, "a"), now))
	require.Equal(t, NonceFirst, m.note(n(950, "b"), now.Add(time.Minute)), "its age refuses it by then")
	require.Equal(t, NonceFirst, m.note(n(1, "b"), now), "forgotten: bounded memory")
}
