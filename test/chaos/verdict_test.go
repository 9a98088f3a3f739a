//go:build chaos

package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/test/chaos/check"
	"tidegate/test/chaos/history"
)

// verdict is what the checker finds in the history, in few numbers.
type verdict struct {
	*check.Report
	acked, lost, inversions, repeated, invented, logged int

	// sameDoor counts inversions between callbacks that one door has acknowledged.
	sameDoor int
}

// judge reads the log of Kafka and checks the whole history.
func (w *world) judge(o check.Options) verdict {
	w.t.Helper()
	events := w.events()
	r := check.Check(events, o)
	return verdict{
		Report: r, acked: r.Acked, lost: r.Found["lost"], inversions: r.Found["inversion"],
		repeated: r.Doubled, invented: r.Found["invented"], logged: r.Records - r.Doubled,
		sameDoor: inversionsOfOneDoor(events),
	}
}

// verify demands that nothing is found, and shows the first findings with the
// history that proves them.
func (w *world) verify(o check.Options) verdict {
	w.t.Helper()
	v := w.judge(o)
	v.demand(w.t)
	return v
}

func (v verdict) demand(t *testing.T) {
	t.Helper()
	for i, f := range v.Findings {
		if i == 5 {
			break
		}
		t.Logf("%s %s: %s %s", f.Clause, f.Kind, f.Token, f.Text)
		for _, e := range f.Slice {
			t.Log("    " + e.String())
		}
	}
	require.Empty(t, v.Found, "broken promises by kind")
	require.Positive(t, v.acked)
}

// taken is what became of a callback.
type taken struct {
	user          string
	sent, acked   int64
	door          string // the one that all its deliveries went to, or moved
	acks, counted bool
}

// moved stands for a callback whose deliveries went to several doors.
const moved = "several"

// inversionsOfOneDoor counts callbacks that were acknowledged before another one
// of their user was sent, and are in the log after it, where both went to the
// same door alone.
func inversionsOfOneDoor(events []history.Event) (n int) {
	of := map[string]*taken{}
	newest := map[string]*taken{} // by user and door: the one that was sent last, of those in the log so far
	for _, e := range events {
		c := of[e.Token]
		switch {
		case e.Kind == history.Invoke && c == nil:
			of[e.Token] = &taken{user: e.Account + " " + e.OpenID, sent: e.At}
		case e.Kind == history.OK || e.Kind == history.Fail || e.Kind == history.Unknown:
			if c.door != "" && c.door != e.Node {
				c.door = moved
			} else {
				c.door = e.Node
			}
			if e.Kind == history.OK && !c.acks {
				c.acks, c.acked = true, e.At
			}
		case e.Kind == history.Logged && c != nil && c.acks && !c.counted && c.door != moved:
			c.counted = true // the log is read when everything was sent, each partition in its order
			key := c.user + " " + c.door
			before := newest[key]
			if before != nil && c.acked < before.sent {
				n++
			}
			if before == nil || c.sent > before.sent {
				newest[key] = c
			}
		}
	}
	return n
}

// The count itself sees an inversion, and only of one door.
func TestInversionsOfOneDoor(t *testing.T) {
	event := func(at int64, k history.Kind, token, node string) history.Event {
		return history.Event{At: at, Kind: k, Token: token, Account: "a", OpenID: "o", Node: node}
	}
	story := func(second string, log ...string) []history.Event {
		out := []history.Event{
			event(1, history.Invoke, "1", "x"), event(2, history.OK, "1", "x"),
			event(3, history.Invoke, "2", second), event(4, history.OK, "2", second),
		}
		for i, token := range log {
			out = append(out, event(int64(5+i), history.Logged, token, "kafka"))
		}
		return out
	}
	require.Zero(t, inversionsOfOneDoor(story("x", "1", "2", "1")))
	require.Equal(t, 1, inversionsOfOneDoor(story("x", "2", "1", "2")))
	require.Zero(t, inversionsOfOneDoor(story("y", "2", "1")))
	repeated := append([]history.Event{event(0, history.Invoke, "1", "z"), event(0, history.Unknown, "1", "z")}, story("x", "2", "1")...)
	require.Zero(t, inversionsOfOneDoor(repeated), "the door that died may have published it")
}
