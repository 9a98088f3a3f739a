package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

// repeat is the n-th repeat, by a user, k seconds into the test's day.
func (b *bench) repeat(n, user, k int, account, action string) store.News {
	b.t.Helper()
	i, h := id(10_000 + n)
	news, err := store.FromRepeat(&wire.Repeat{ID: i, IdentityHash: h, Account: account, OpenID: openID(user), Action: action,
		Reason: "same action within 10s, by proxy.repeats.rules[0]", Rule: "proxy.repeats.rules[0]", WindowMS: 10_000, At: b.at(k)}, b.clock.Now())
	require.NoError(b.t, err)
	return news
}

func userRepeats(t *testing.T, b *bench) {
	ctx := context.Background()
	from := func(k int) store.RepeatQuery { return store.RepeatQuery{From: time.UnixMilli(b.at(k)), Limit: 10} }
	got, err := b.Repeats(ctx, from(0))
	require.NoError(t, err)
	require.Equal(t, &store.Repeats{}, got)

	var news []store.News
	for n := range 6 {
		news = append(news, b.repeat(n, 1, n, "bank", "CLICK:balance"))
	}
	for n := 6; n < 9; n++ {
		news = append(news, b.repeat(n, n, n, "bank", "CLICK:bill"))
	}
	news = append(news, b.repeat(9, 1, 20, "shop", "CLICK:balance"), b.repeat(10, 2, -100, "bank", "CLICK:bill"))
	b.apply(append(news, b.queued(1), b.outcome(2, wire.Dead, 3))...) // other messages are none
	b.apply(news...)                                                  // the queue may bring them again

	got, err = b.Repeats(ctx, from(0))
	require.NoError(t, err)
	require.EqualValues(t, 10, got.Total)
	require.EqualValues(t, 5, got.Users, "a user is one of an account")
	require.Equal(t, b.at(0), got.First)
	require.False(t, got.Cut)
	require.Len(t, got.ByUser, 5)
	require.Equal(t, store.UserRepeats{Account: "bank", OpenID: openID(1), Count: 6, First: b.at(0), Last: b.at(5)}, got.ByUser[0])
	require.Equal(t, "shop", got.ByUser[1].Account, "of equal ones the newest is first")
	require.Equal(t, []store.ActionRepeats{
		{Account: "bank", Action: "CLICK:balance", Count: 6, Users: 1, Last: b.at(5)},
		{Account: "bank", Action: "CLICK:bill", Count: 3, Users: 3, Last: b.at(8)},
		{Account: "shop", Action: "CLICK:balance", Count: 1, Users: 1, Last: b.at(20)},
	}, got.ByAction)
	require.Len(t, got.Newest, 10)
	newest, _ := id(10_009)
	require.Equal(t, store.Repeat{ID: newest, Account: "shop", OpenID: openID(1), Action: "CLICK:balance",
		Reason: "same action within 10s, by proxy.repeats.rules[0]", At: b.at(20)}, got.Newest[0])

	q := from(-200)
	q.Account, q.Limit = "bank", 2
	got, err = b.Repeats(ctx, q)
	require.NoError(t, err)
	require.EqualValues(t, 10, got.Total, "the old one is in, the other account's is not")
	require.Len(t, got.ByUser, 2)
	require.Len(t, got.ByAction, 2)
	require.Equal(t, b.at(8), got.Newest[0].At)
	require.Len(t, got.Newest, 2)
}
