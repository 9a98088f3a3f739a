//go:build unix

package kafkamem

import (
	"os"
	"syscall"
)

// tryLock takes the exclusive lock or fails at once.
func tryLock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
