package kafkamem

import (
	"fmt"
	"os"
	"path/filepath"
)

// dirLock is held on a directory by one process. The operating system lets it go
// when the process dies, however it dies.
type dirLock struct{ f *os.File }

func lockDir(dir string) (*dirLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("start embedded kafka: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start embedded kafka: %w", err)
	}
	if err := tryLock(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("start embedded kafka: another process holds the directory %s, stop it or choose another directory: %w", dir, err)
	}
	return &dirLock{f}, nil
}

func (l *dirLock) release() error {
	if l == nil {
		return nil
	}
	return l.f.Close() // closing lets the lock go; the file stays, removing it would race with the next owner
}
