package app

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// pushLog is the memory of the simulated business system: it writes down what
// it is about to push and what was accepted, so that after a crash it asks
// again – with the same idempotency key – for what it never got an answer to.
// That is what every caller of the push API should do.
type pushLog struct {
	mu sync.Mutex
	f  *os.File
}

type pushNote struct {
	Mark     string `json:"mark"`
	OpenID   string `json:"openid,omitempty"`
	Accepted bool   `json:"accepted,omitempty"`
}

// openPushLog reads what was begun and never answered, and how many pushes
// were accepted in earlier runs.
func openPushLog(path string) (l *pushLog, open []pushNote, accepted int64, err error) {
	open, accepted, err = readPushLog(path)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("pushes of the last run: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("pushes of this run: %w", err)
	}
	// A killed run may have left half a line; what follows must not be glued to
	// it.
	_, err = f.WriteString("\n")
	return &pushLog{f: f}, open, accepted, err
}

func readPushLog(path string) (open []pushNote, accepted int64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	var order []string
	notes := map[string]pushNote{}
	for s := bufio.NewScanner(f); s.Scan(); {
		var n pushNote
		if json.Unmarshal(s.Bytes(), &n) != nil {
			continue // the last line of a killed run may be half written
		}
		if n.Accepted {
			delete(notes, n.Mark)
			accepted++
			continue
		}
		notes[n.Mark] = n
		order = append(order, n.Mark)
	}
	for _, mark := range order {
		if n, ok := notes[mark]; ok {
			open = append(open, n)
		}
	}
	return open, accepted, nil
}

func (l *pushLog) note(n pushNote) error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.f.Write(append(b, '\n'))
	return err
}

func (l *pushLog) Close() error { return l.f.Close() }
