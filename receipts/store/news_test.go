package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/idgen"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

var seen = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

func receipt(change func(*wire.Receipt)) (store.News, error) {
	r := wire.Receipt{Source: wire.FromSender, MessageKind: wire.KindPush, Account: "bank", OpenID: "oA", State: wire.Accepted,
		ID: idgen.Derive(1, idgen.HashOf("x")), At: seen.UnixMilli()}
	change(&r)
	return store.FromReceipt(&r, seen)
}

func TestNewsThatCannotBeJoinedNamesItsField(t *testing.T) {
	for field, change := range map[string]func(*wire.Receipt){
		"id":            func(r *wire.Receipt) { r.ID = "123" },
		"state":         func(r *wire.Receipt) { r.State = "exploded" },
		"account":       func(r *wire.Receipt) { r.Account = "../x" },
		"openid":        func(r *wire.Receipt) { r.OpenID = "o A" },
		"message_kind":  func(r *wire.Receipt) { r.MessageKind = wire.KindDeadLetter },
		"reference":     func(r *wire.Receipt) { r.Reference = strings.Repeat("单", 200) },
		"template_id":   func(r *wire.Receipt) { r.TemplateID = "a\x00b" },
		"msg_id":        func(r *wire.Receipt) { r.MsgID = strings.Repeat("9", 200) },
		"identity_hash": func(r *wire.Receipt) { r.IdentityHash = "\xff" },
	} {
		_, err := receipt(change)
		require.Equal(t, fault.Invalid, fault.KindOf(err), field)
		require.Equal(t, field, fault.FieldOf(err), "%v", err)
	}
	_, err := receipt(func(r *wire.Receipt) { r.ID = "" })
	require.ErrorContains(t, err, "names no message", "only WeChat may leave out the id")
	_, err = receipt(func(r *wire.Receipt) { r.ID, r.Source, r.MsgID = "", wire.FromWeChat, "0" })
	require.ErrorContains(t, err, "names no message", "0 is no msg_id")
}

func TestNewsIsCleaned(t *testing.T) {
	n, err := receipt(func(r *wire.Receipt) {
		r.At, r.Attempt, r.MsgID = 0, -5, "0"
		r.Reference = strings.Repeat("单", 128)
		r.Reason = strings.Repeat("长", 1000)
	})
	require.NoError(t, err)
	require.Equal(t, seen.UnixMilli(), n.At, "without a time of its own: when it was written")
	require.Zero(t, n.Attempt)
	require.Empty(t, n.MsgID)
	require.LessOrEqual(t, len(n.Reason), 500)
	require.True(t, strings.HasPrefix(strings.Repeat("长", 1000), n.Reason), "cut between characters")
	n, err = receipt(func(r *wire.Receipt) { r.At = seen.Add(48 * time.Hour).UnixMilli() })
	require.NoError(t, err)
	require.Equal(t, seen.UnixMilli(), n.At, "a clock that is days ahead is not believed")
}
