package spool

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
)

func TestOnlyThisUserCanReadIt(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // modes say nothing there
	}
	dir := filepath.Join(t.TempDir(), "a", "spool")
	s := openAt(t, Options{Dir: dir})
	appendAll(t, s, rec("k", "v"))
	for path, want := range map[string]os.FileMode{dir: 0o700, files(t, dir, "*.seg")[0]: 0o600, filepath.Join(dir, "LOCK"): 0o600} {
		st, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, want, st.Mode().Perm(), path)
	}
	open := t.TempDir()
	require.NoError(t, os.Chmod(open, 0o755))
	openAt(t, Options{Dir: open})
	st, err := os.Stat(open)
	require.NoError(t, err)
	require.EqualValues(t, 0o700, st.Mode().Perm())
}

func TestADirectoryHasOneOwner(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	require.NoError(t, err)
	_, err = Open(Options{Dir: dir})
	require.ErrorContains(t, err, "another process uses the directory")
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "twice is fine")
	require.Error(t, s.Append(t.Context(), rec("k", "v")))
	require.Error(t, s.Replay(t.Context(), (&sink{}).publish))
	require.Error(t, s.Ready())
	openAt(t, Options{Dir: dir})
}

func TestADirectoryThatCannotBeWrittenIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err := Open(Options{Dir: path})
	require.ErrorContains(t, err, "open spool "+path)
	require.ErrorContains(t, err, "give a directory that this user can write")
	_, err = Open(Options{})
	require.Error(t, err)
	fs := newMemFS()
	fs.failWrite = 1 // the disk is full: the spool opens, since replaying makes room, and is not ready
	s, err := openOn(fs, Options{Dir: "/d"})
	require.NoError(t, err)
	require.NoError(t, s.Ready(), "it has looked again")
	require.NoError(t, s.Close())
	fs.failSync = 1
	_, err = openOn(fs, Options{Dir: "/d"})
	require.ErrorContains(t, err, "input/output error")
}

func TestReadyFollowsTheDisk(t *testing.T) {
	fs := newMemFS()
	s, err := openOn(fs, Options{Dir: "/d"})
	require.NoError(t, err)
	defer s.Close()
	fs.failWrite = 2
	err = s.Append(t.Context(), rec("k", "v"))
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.ErrorContains(t, err, "no space left")
	require.False(t, s.Holds("t", []byte("k")))
	require.ErrorContains(t, s.Ready(), "no space left")
	require.NoError(t, s.Ready())
	require.Equal(t, 2, fs.faults)
	appendAll(t, s, rec("k", "v2"))
	k := &sink{}
	require.NoError(t, s.Replay(t.Context(), k.publish))
	require.Equal(t, []string{"v2"}, k.values())
}
