package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// fileSystem is what the spool asks of the operating system. The tests have a
// second one that forgets what was not synced.
type fileSystem interface {
	// Prepare makes the directory for this user alone and syncs its parent.
	Prepare(dir string) error
	// Lock takes the directory for this process.
	Lock(path string) (io.Closer, error)
	List(dir string) ([]string, error)
	// Create makes a file that must not exist; Open opens one for reading and writing.
	Create(path string) (file, error)
	Open(path string) (file, error)
	Rename(from, to string) error
	Remove(path string) error
	// SyncDir makes creations, renames and removals in it durable.
	SyncDir(dir string) error
}

type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	Sync() error
}

// disk is the real one.
type disk struct{}

type diskFile struct{ *os.File }

func (f diskFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// Prepare refuses a directory that others can look into: it holds what users
// wrote (S58).
func (d disk) Prepare(dir string) error {
	_, err := os.Stat(dir)
	fresh := errors.Is(err, os.ErrNotExist)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if fresh {
		return d.SyncDir(filepath.Dir(dir))
	}
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if runtime.GOOS == "windows" || st.Mode().Perm()&0o077 == 0 { // there, the mode says nothing
		return nil
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory needs its x bit
		return fmt.Errorf("others may read it (mode %04o) and that cannot be changed: use a directory inside it: %w", st.Mode().Perm(), err)
	}
	return nil
}

func (disk) Lock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := tryLock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("another process uses the directory: stop it, or give this one a directory of its own: %w", err), f.Close())
	}
	return f, nil
}

func (disk) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (disk) Create(path string) (file, error) { return openFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR) }

func (disk) Open(path string) (file, error) { return openFile(path, os.O_RDWR) }

func openFile(path string, flags int) (file, error) {
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	return diskFile{f}, nil
}

func (disk) Rename(from, to string) error { return os.Rename(from, to) }

func (disk) Remove(path string) error { return os.Remove(path) }

func (disk) SyncDir(dir string) error {
	if runtime.GOOS == "windows" { // directories cannot be synced there; NTFS journals their entries
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// writeWhole makes a file with content durable under its name, replacing one
// of that name: either the old content or the new one is there after a crash.
func writeWhole(fs fileSystem, path string, content []byte) error {
	tmp := path + ".tmp"
	if err := fs.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := fs.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = fs.Remove(tmp)
		return err
	}
	if err := fs.Rename(tmp, path); err != nil {
		return err
	}
	return fs.SyncDir(filepath.Dir(path))
}
