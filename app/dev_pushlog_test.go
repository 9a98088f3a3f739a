package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnansweredPushesAreRemembered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pushes.ndjson")
	l, open, accepted, err := openPushLog(path)
	require.NoError(t, err)
	require.Empty(t, open)
	require.Zero(t, accepted)
	for _, n := range []pushNote{{Mark: "a", OpenID: "o1"}, {Mark: "b", OpenID: "o2"}, {Mark: "a", Accepted: true}, {Mark: "c", OpenID: "o3"}} {
		require.NoError(t, l.note(n))
	}
	_, err = l.f.WriteString(`{"mark":"d","ope`) // the process was killed here
	require.NoError(t, err)
	require.NoError(t, l.Close())
	l, open, accepted, err = openPushLog(path)
	require.NoError(t, err)
	require.Equal(t, []pushNote{{Mark: "b", OpenID: "o2"}, {Mark: "c", OpenID: "o3"}}, open)
	require.Equal(t, int64(1), accepted)
	require.NoError(t, l.note(pushNote{Mark: "b", Accepted: true}))
	require.NoError(t, l.Close())
	_, open, _, err = openPushLog(path)
	require.NoError(t, err)
	require.Equal(t, []pushNote{{Mark: "c", OpenID: "o3"}}, open, "what follows half a line is read")
	_, _, _, err = openPushLog(filepath.Join(path, "below-a-file"))
	require.Error(t, err)
	require.NoError(t, os.Remove(path))
}
