package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wire"
)

func oddTexts(t *testing.T, b *bench) {
	r := b.receipt(wire.Receipt{Source: wire.FromSender, MessageKind: wire.KindPush, ID: mustID(1), Account: "bank", State: wire.Dead,
		Reason: "nul \x00 bad \xff tail" + string(make([]byte, 5000)), Detail: "'; DROP TABLE messages; --", ErrCode: 1 << 40, At: b.at(1)})
	b.apply(r)
	m := b.row(1)
	require.Contains(t, m.Reason, "nul \uFFFD bad \uFFFD tail")
	require.LessOrEqual(t, len(m.Reason), 500)
	require.Equal(t, "'; DROP TABLE messages; --", m.Detail)
	require.Zero(t, m.ErrCode)
}
