package credit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/credit"
)

// Acts that wait together keep their order, whatever way each takes to Redis, and
// a message that nobody asked about in between takes nothing from the next.
func TestActsOfOneBatch(t *testing.T) {
	cfg := credit.DefaultConfig()
	cfg.Menu = credit.Window{Count: 9, Valid: 100 * time.Hour}
	for name, acts := range map[string][]credit.Act{
		"a message last": {says, clicks, says, says},
		"a menu last":    {says, says, clicks, says, clicks},
	} {
		b := newBook(t, cfg)
		first := b.does(clicks)
		require.Equal(t, credit.Granted, b.take(9, first).Verdict, name)
		var at time.Time
		for i, a := range acts {
			b.now = b.now.Add(time.Second)
			at = b.now
			a.Account, a.OpenID, a.ID, a.ReceivedAt = "shop", "u1", fmt.Sprint("batch", i), at.UnixMilli()
			b.Note(a)
			a.OpenID = "u2" // somebody else's make the batch larger
			b.Note(a)
		}
		b.does(credit.Act{MsgType: "event", Event: "VIEW"}) // opens nothing; all of them are written
		require.Equal(t, credit.Granted, b.take(9, at).Verdict, "%s: the menu's nine, raised by no message", name)
		require.Equal(t, credit.UsedUp, b.take(1, at).Verdict, name)
	}
}

// More acts than one batch holds, of many followers: each one counts.
func TestManyActs(t *testing.T) {
	b := newBook(t, credit.DefaultConfig())
	const users = 120
	for i := range users {
		for _, a := range []credit.Act{says, clicks, says} {
			a.Account, a.OpenID, a.ID, a.ReceivedAt = "shop", fmt.Sprint("many", i), fmt.Sprint(i), b.now.UnixMilli()
			b.Note(a)
		}
	}
	at := b.does(says)
	for i := range users {
		w := credit.Want{Account: "shop", OpenID: fmt.Sprint("many", i), Message: "m", N: 5, Cause: at}
		require.Equal(t, credit.Granted, b.Take(t.Context(), w).Verdict)
		w.Message = "n"
		require.Equal(t, credit.UsedUp, b.Take(t.Context(), w).Verdict)
	}
	found, err := b.Erase(t.Context(), "shop", "many0")
	require.NoError(t, err)
	require.True(t, found)
	b.Note(credit.Act{Account: "shop", OpenID: "many0", ID: "z", MsgType: "text", ReceivedAt: at.UnixMilli()})
	b.does(says)
	found, err = b.Erase(t.Context(), "shop", "many0")
	require.NoError(t, err)
	require.True(t, found, "what nobody asked about yet is erased too")
	require.Equal(t, credit.Unknown, b.Take(t.Context(), credit.Want{Account: "shop", OpenID: "many0", Message: "m", N: 1, Cause: at}).Verdict)
}
