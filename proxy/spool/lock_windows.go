package spool

import (
	"os"

	"golang.org/x/sys/windows"
)

// tryLock takes the exclusive lock or fails at once. The system gives it up
// when the process ends, however it ends.
func tryLock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, new(windows.Overlapped))
}
