//go:build chaos

package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/test/chaos/check"
)

// verdict is what the checker finds in the history, in few numbers.
type verdict struct {
	*check.Report
	acked, lost, inversions, repeated, invented, logged int
}

// judge reads the log of Kafka and checks the whole history.
func (w *world) judge(o check.Options) verdict {
	w.t.Helper()
	r := check.Check(w.events(), o)
	return verdict{
		Report: r, acked: r.Acked, lost: r.Found["lost"], inversions: r.Found["inversion"],
		repeated: r.Doubled, invented: r.Found["invented"], logged: r.Records - r.Doubled,
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
