package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

// Writer appends events to one file. It is safe for concurrent use and holds
// one buffer, however long the run is.
type Writer struct {
	start time.Time

	mu   sync.Mutex
	file *os.File
	buf  *bufio.Writer
	err  error // the first failure; Close tells it
}

// Create makes a new history file. All writers of a run are given the same
// start, taken from time.Now in the same process.
func Create(path string, start time.Time) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create history: %w", err)
	}
	return &Writer{start: start, file: f, buf: bufio.NewWriterSize(f, 64<<10)}, nil
}

// Add stamps the event with the time of now and writes it; it gives the stamped
// event back.
func (w *Writer) Add(e Event) Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	e.At, e.Wall = int64(now.Sub(w.start)), now.UnixMilli()
	if w.err == nil {
		w.err = w.write(e)
	}
	return e
}

func (w *Writer) write(e Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if len(line) > maxLine {
		return fmt.Errorf("event of %d bytes: at most %d", len(line), maxLine)
	}
	if _, err := w.buf.Write(line); err != nil {
		return err
	}
	return w.buf.WriteByte('\n')
}

// Close writes out what is buffered and tells the first error of all writes: a
// history with a hole proves nothing.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return nil
	}
	if w.err == nil {
		w.err = w.buf.Flush()
	}
	err := errors.Join(w.err, w.file.Close())
	w.file = nil
	if err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	return nil
}

const maxLine = 64 << 10

// Read joins several files into one history, ordered by time. A line that is
// not an event is an error: it names the file and the line.
func Read(paths ...string) ([]Event, error) {
	var all []Event
	for _, path := range paths {
		events, err := readFile(path)
		if err != nil {
			return nil, fmt.Errorf("read history %s: %w", path, err)
		}
		all = append(all, events...)
	}
	// Stable: events of one file with the same time keep their order.
	slices.SortStableFunc(all, func(a, b Event) int { return int(min(max(a.At-b.At, -1), 1)) })
	return all, nil
}

func readFile(path string) ([]Event, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []Event
	in := bufio.NewReaderSize(f, maxLine+1)
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: longer than %d bytes, or cut off: %w", n, maxLine, err)
		}
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		var e Event
		if err := dec.Decode(&e); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		out = append(out, e)
	}
}
