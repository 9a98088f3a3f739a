//go:build chaos

package chaos

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/sqldb"
	"tidegate/test/chaos/herd"
)

// sendPoint is an instant at which a sender, or the receipts room, dies.
type sendPoint struct {
	name, what string
	most       int  // the pass is drawn up to this
	receipts   bool // the receipts room dies, and not a sender
	again      bool // what was done is done again: at least one request comes twice
}

var sendPoints = []sendPoint{
	{name: "CP9", what: "intent stored", most: 60},
	{name: "CP10", what: "permit taken", most: 60},
	{name: "CP11", what: "request written", most: 60, again: true},
	{name: "CP12", what: "answer read, not stored", most: 60, again: true},
	{name: "CP13", what: "stored, offset not committed", most: 100},
	{name: "CP14", what: "committed", most: 2},
	{name: "CP13", what: "rows joined, offset not committed", most: 3, receipts: true},
	{name: "CP14", what: "receipts committed", most: 1, receipts: true},
}

// A pass is so many pushes and as many replies of 20 users.
const crashLetters = 120

// senderCrashes kills a sender, and the receipts room, at each point: each user
// sees each push once, doubled replies are flagged and no more than what was
// under way, and the rows are those of the messages (G7, G8, G20).
func senderCrashes(t *testing.T, e *engines, n senderNumbers) {
	_, err := builds.Make(".", "crash")
	require.NoError(t, err)
	for i, p := range sendPoints {
		t.Run(fmt.Sprintf("%s_%s", p.name, strings.ReplaceAll(p.what, " ", "_")), func(t *testing.T) {
			if !n.full {
				t.Parallel()
			}
			s := sendSum{}
			for pass := range n.passes {
				broker := e.kafka
				if (i+pass)%2 == 1 {
					broker = e.node
				}
				t.Run(fmt.Sprint(pass+1), func(t *testing.T) { s.pass(t, e, p, broker) })
				if t.Failed() {
					e.mend(t)
					return
				}
			}
			if len(s.kills) > 0 {
				row(t, p.name, p.what+": each push seen once, doubled replies <= K x F and flagged", "killed at pass %s; %s", strings.Join(s.kills, ", "), &s)
			}
		})
	}
}

// sendSum adds up the passes of one point.
type sendSum struct {
	kills                                    []string
	pushes, replies, raw, doubled, unflagged int
	rows                                     int
}

func (s *sendSum) String() string {
	return fmt.Sprintf("%d pushes each seen once, %d replies, %d requests; replies doubled %d (unflagged %d), lost 0%s", s.pushes, s.replies, s.raw, s.doubled, s.unflagged, map[bool]string{true: fmt.Sprintf("; rows right %d", s.rows)}[s.rows > 0])
}

func (s *sendSum) pass(t *testing.T, e *engines, p sendPoint, broker *herd.Engine) {
	o := newOutbound(t, e, broker, 20)
	n := 1 + o.dice.IntN(p.most)
	at := fmt.Sprintf("%s:%d", p.name, n)
	var victim *herd.Process
	if p.receipts {
		victim = o.receipts(at)
		o.sender(0, "")
	} else {
		victim = o.sender(0, at)
	}
	pushes, replies := o.letters(crashLetters, false), o.letters(crashLetters, true)
	sent := make(chan error, 2)
	go func() { sent <- o.post(pushes) }()
	go func() { sent <- o.answer(replies) }()
	signal := victim.Died(p.name, o.patience(time.Minute))
	require.Equal(t, syscall.SIGKILL, signal, "%s", victim.Tail())
	require.True(t, victim.Said("crash: killed at "+p.name+fmt.Sprintf(", pass %d", n)), "%s", victim.Tail())
	victim.Env = nil
	victim.Restart()
	require.NoError(t, <-sent)
	require.NoError(t, <-sent)
	v := o.tally()
	k := 1
	if p.receipts {
		k = 0
		s.rows += o.rowsAreRight()
	}
	v.demand(o, k)
	if p.again {
		require.Greater(t, v.raw, v.pushes+v.replies, "nothing was done again, so the kill has met no request")
	}
	where := "embedded broker"
	if broker.Real {
		where = "Kafka"
	}
	s.kills = append(s.kills, fmt.Sprintf("%d (%s, %s)", n, where, o.database))
	s.pushes, s.replies, s.raw = s.pushes+v.pushes, s.replies+v.replies, s.raw+v.raw
	s.doubled, s.unflagged = s.doubled+v.doubledReplies, s.unflagged+v.unflagged
}

// receipts starts the receipts room.
func (o *outbound) receipts(crashAt string) *herd.Process {
	o.t.Helper()
	return o.armed("receipts", "receipts0", crashAt, "api.addr="+herd.FreeAddr(o.t))
}

// rowsAreRight demands one row for each message with the state that senders have
// told, and gives their number.
func (o *outbound) rowsAreRight() int {
	o.t.Helper()
	db, err := sqldb.Open(o.t.Context(), o.db)
	require.NoError(o.t, err)
	defer db.Close()
	table := map[string]string{sqldb.Postgres: "all_messages", sqldb.SQLite: "messages"}[o.db.Driver]
	var n, rows, accepted, ids int
	herd.Wait(o.t, "a row of every message that says accepted", o.patience(time.Minute), func() bool {
		err := db.QueryRow(o.t.Context(), "SELECT COUNT(*), COUNT(DISTINCT id), COALESCE(SUM(CASE WHEN state = 'accepted' THEN 1 ELSE 0 END), 0) FROM "+table+" WHERE kind IN ('push', 'reply')").Scan(&rows, &ids, &accepted)
		require.NoError(o.t, err)
		n = len(o.sent)
		return accepted >= n
	})
	require.Equal(o.t, []int{n, n, n}, []int{rows, ids, accepted}, "rows, ids and accepted ones")
	return n
}
