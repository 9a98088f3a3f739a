package spool

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

var errPower = errors.New("the power is off")

// memFS is a file system that keeps apart what programs see and what the disk
// has. A crash forgets what was not synced: each write since the last sync is
// kept, lost, torn or replaced by zeros, and each creation, renaming or removal
// in a directory that was not synced happens or does not, whatever came later.
type memFS struct {
	mu      sync.Mutex
	entries map[string]*inode
	durable map[string]*inode
	pending []dirOp
	boot    int
	off     bool
	locked  bool

	failSync, failWrite int  // the next so many fail
	cutSync             bool // the power goes in the middle of the next sync
	faults, syncs       int
}

type inode struct {
	data, synced []byte
	writes       []change
}

type change struct {
	off  int64
	data []byte // nil truncates at off
}

type dirOp struct {
	path string
	node *inode // nil removes
	from string // renaming removes this one as well
}

func newMemFS() *memFS { return &memFS{entries: map[string]*inode{}, durable: map[string]*inode{}} }

// cut stops everything, as a power cut does: no operation succeeds any more.
func (m *memFS) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.off = true
}

// restart brings the machine back with what the disk has. pick chooses among n.
func (m *memFS) restart(pick func(n int) int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, op := range m.pending {
		if pick(2) == 0 {
			op.apply(m.durable)
		}
	}
	m.pending = nil
	for _, n := range m.durable {
		n.crash(pick)
	}
	m.entries = map[string]*inode{}
	for p, n := range m.durable {
		m.entries[p] = n
	}
	m.boot++
	m.off, m.locked, m.cutSync, m.failSync, m.failWrite = false, false, false, 0, 0
}

func (o dirOp) apply(to map[string]*inode) {
	if o.from != "" {
		delete(to, o.from)
	}
	if o.node == nil {
		delete(to, o.path)
		return
	}
	to[o.path] = o.node
}

func (n *inode) crash(pick func(int) int) {
	for _, w := range n.writes {
		switch pick(6) {
		case 0: // lost
		case 1:
			if len(w.data) > 0 {
				n.synced = w.on(n.synced, w.data[:pick(len(w.data))])
			}
		case 2, 3: // the length is there, some or all of the bytes are not
			torn := slices.Clone(w.data)
			if len(torn) > 0 {
				from := pick(len(torn))
				clear(torn[from:][:1+pick(len(torn)-from)])
			}
			n.synced = w.on(n.synced, torn)
		default:
			n.synced = w.on(n.synced, w.data)
		}
	}
	n.writes = nil
	n.data = slices.Clone(n.synced)
}

func (w change) on(b, data []byte) []byte {
	if w.data == nil {
		return b[:min(int64(len(b)), w.off)]
	}
	if grow := w.off + int64(len(data)) - int64(len(b)); grow > 0 {
		b = append(b, make([]byte, grow)...)
	}
	copy(b[w.off:], data)
	return b
}

func (m *memFS) ok() error {
	if m.off {
		return errPower
	}
	return nil
}

func (m *memFS) Prepare(string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ok()
}

type memLock struct {
	m    *memFS
	boot int
}

func (l memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.boot == l.m.boot {
		l.m.locked = false
	}
	return nil
}

func (m *memFS) Lock(string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked {
		return nil, errors.New("another process uses the directory")
	}
	m.locked = true
	return memLock{m, m.boot}, m.ok()
}

func (m *memFS) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for p := range m.entries {
		if name, ok := strings.CutPrefix(p, dir+string(filepath.Separator)); ok {
			names = append(names, name)
		}
	}
	return names, m.ok()
}

func (m *memFS) do(op dirOp) {
	op.apply(m.entries)
	m.pending = append(m.pending, op)
}

func (m *memFS) Create(path string) (file, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries[path] != nil {
		return nil, os.ErrExist
	}
	n := &inode{}
	if err := m.ok(); err != nil {
		return nil, err
	}
	m.do(dirOp{path: path, node: n})
	return &memFile{m, n, m.boot}, nil
}

func (m *memFS) Open(path string) (file, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries[path] == nil {
		return nil, os.ErrNotExist
	}
	return &memFile{m, m.entries[path], m.boot}, m.ok()
}

func (m *memFS) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.ok(); err != nil {
		return err
	}
	if m.entries[from] == nil {
		return os.ErrNotExist
	}
	m.do(dirOp{path: to, node: m.entries[from], from: from})
	return nil
}

func (m *memFS) Remove(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.ok(); err != nil {
		return err
	}
	if m.entries[path] == nil {
		return os.ErrNotExist
	}
	m.do(dirOp{path: path})
	return nil
}

func (m *memFS) SyncDir(string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.ok(); err != nil {
		return err
	}
	for _, op := range m.pending {
		op.apply(m.durable)
	}
	m.pending = nil
	return nil
}

type memFile struct {
	m    *memFS
	n    *inode
	boot int
}

func (f *memFile) ok() error {
	if f.boot != f.m.boot {
		return errPower
	}
	return f.m.ok()
}

func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.ok(); err != nil {
		return 0, err
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.n.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(b []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.ok(); err != nil {
		return 0, err
	}
	var err error
	if f.m.failWrite > 0 { // the disk is full in the middle of it
		f.m.failWrite--
		f.m.faults++
		b, err = b[:len(b)/2], syscall.ENOSPC
	}
	f.do(change{off, append([]byte{}, b...)})
	return len(b), err
}

func (f *memFile) do(c change) {
	f.n.data = c.on(f.n.data, c.data)
	f.n.writes = append(f.n.writes, c)
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.ok(); err != nil {
		return err
	}
	f.do(change{off: size})
	return nil
}

// Sync that fails leaves the pages clean and unwritten, as Linux does: a later
// one succeeds and has nothing to write.
func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.ok(); err != nil {
		return err
	}
	if f.m.cutSync {
		f.m.off = true
		return errPower
	}
	if f.m.failSync > 0 {
		f.m.failSync--
		f.m.faults++
		f.n.writes = nil
		return syscall.EIO
	}
	f.m.syncs++
	for _, w := range f.n.writes {
		f.n.synced = w.on(f.n.synced, w.data)
	}
	f.n.writes = nil
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return int64(len(f.n.data)), f.ok()
}

func (f *memFile) Close() error { return nil }
