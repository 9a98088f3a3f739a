package wechatsim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// errJournalFull is reported by the verdict when the file reached its limit.
var errJournalFull = errors.New("the journal file reached its size limit: raise journal.file_bytes or start a new file")

// journalFile appends entries as NDJSON. Each entry is one write, so a killed
// process leaves at most one torn line, which the next start cuts off.
type journalFile struct {
	f     *os.File
	size  int64
	limit int64
	err   error
}

func openJournalFile(path string, limit int64) ([]Entry, *journalFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open journal file: %w", err)
	}
	entries, size, err := ReadJournal(f)
	if err == nil {
		err = f.Truncate(size)
	}
	if err == nil {
		_, err = f.Seek(size, io.SeekStart)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read journal file %s: %w", path, err), f.Close())
	}
	return entries, &journalFile{f: f, size: size, limit: limit}, nil
}

// ReadJournal reads NDJSON entries up to the first incomplete line and returns
// how many bytes were whole. A broken line in the middle is an error.
func ReadJournal(r io.Reader) ([]Entry, int64, error) {
	var out []Entry
	var size int64
	br := bufio.NewReaderSize(r, 1<<16)
	for line := 1; ; line++ {
		raw, err := br.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out, size, nil
		}
		if err != nil {
			return nil, 0, err
		}
		var e Entry
		if err := json.Unmarshal(raw, &e); err != nil {
			return nil, 0, fmt.Errorf("line %d is not a journal entry: %w", line, err)
		}
		out = append(out, e)
		size += int64(len(raw))
	}
}

func (jf *journalFile) write(e Entry) {
	if jf.err != nil {
		return
	}
	raw := encodeJSON(e)
	if jf.size+int64(len(raw)) > jf.limit {
		jf.err = errJournalFull
		return
	}
	n, err := jf.f.Write(raw)
	jf.size += int64(n)
	if err != nil {
		jf.err = fmt.Errorf("write journal file: %w", err)
	}
}

func (jf *journalFile) close() error { return jf.f.Close() }

// encodeJSON writes v as WeChat does: one line, HTML characters left alone.
// The types encoded here cannot fail; a failure is a bug and shows as text.
func encodeJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return []byte(fmt.Sprintf("{\"errcode\":-1,\"errmsg\":%q}\n", "encode answer: "+err.Error()))
	}
	return b.Bytes()
}
