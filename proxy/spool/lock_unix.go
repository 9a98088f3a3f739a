//go:build unix

package spool

import (
	"os"
	"syscall"
)

// tryLock takes the exclusive lock or fails at once. The system gives it up
// when the process ends, however it ends.
func tryLock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
