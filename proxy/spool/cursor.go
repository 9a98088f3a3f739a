package spool

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.uber.org/zap"
)

// The cursor file is one line: the next sequence to replay, and the CRC32C of
// its digits in hex.

func cursorLine(seq uint64) string {
	digits := strconv.FormatUint(seq, 10)
	return fmt.Sprintf("%s %08x\n", digits, crc32.Checksum([]byte(digits), castagnoli))
}

func parseCursor(line string) (uint64, bool) {
	digits, _, _ := strings.Cut(line, " ")
	seq, err := strconv.ParseUint(digits, 10, 64)
	return seq, err == nil && line == cursorLine(seq)
}

// loadCursor gives 0 when there is no cursor. One that cannot be read counts
// as none: everything is replayed, since a duplicate is absorbed further on.
func (s *Spool) loadCursor() uint64 {
	line, err := readSmall(s.fs, filepath.Join(s.opt.Dir, "cursor"))
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	seq, ok := parseCursor(line)
	if err != nil || !ok {
		s.log.Error("the cursor of the spool cannot be read: everything in it is replayed, also what was before; duplicates are recognised by their id", zap.Error(err))
		return 0
	}
	return seq
}

// saveCursor is called after the queue has acknowledged everything below seq.
// A failure is no reason to stop: after a crash more is replayed again.
func (s *Spool) saveCursor(seq uint64) {
	if err := writeWhole(s.fs, filepath.Join(s.opt.Dir, "cursor"), []byte(cursorLine(seq))); err != nil {
		s.log.Warn("the cursor of the spool was not saved; after a crash some records would be replayed twice", zap.Error(err))
	}
}

// readSmall reads a file of at most 4 KiB.
func readSmall(fs fileSystem, path string) (string, error) {
	f, err := fs.Open(path)
	if err != nil {
		return "", err
	}
	b := make([]byte, 4096)
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return string(bytes.Clone(b[:n])), errors.Join(err, f.Close())
}
