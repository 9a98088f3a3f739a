// Package export writes messages as a table for spreadsheets, one row at a time:
// what is in memory does not grow with the number of rows.
//
// Cells are text that others wrote. One that a spreadsheet would run as a formula
// begins with an apostrophe (S55); ids stay text and keep all their digits (T52).
package export

import (
	"encoding/csv"
	"io"
	"strconv"
	"time"

	"tidegate/receipts/store"
)

// columns heads the table; programs read it too, so the names are those of the
// API's JSON.
var columns = []string{"id", "kind", "account", "openid", "app", "lane", "template_id", "reference", "callback_id", "resend_of", "resent_as",
	"state", "terminal", "reason", "errcode", "msg_id", "attempts", "possible_duplicate", "contradiction", "detail",
	"first_at", "queued_at", "accepted_at", "settled_at", "updated_at"}

// CSV writes messages as comma-separated values in UTF-8 with a byte order mark,
// without which spreadsheets misread Chinese.
type CSV struct {
	out   io.Writer
	w     *csv.Writer
	cells []string
}

// NewCSV makes a writer; Begin, Write as often as there are messages, End.
func NewCSV(out io.Writer) *CSV {
	w := csv.NewWriter(out)
	w.UseCRLF = true
	return &CSV{out: out, w: w, cells: make([]string, 0, len(columns))}
}

// Begin writes the head.
func (c *CSV) Begin() error {
	if _, err := io.WriteString(c.out, "\uFEFF"); err != nil {
		return err
	}
	return c.w.Write(columns)
}

// Write writes a message.
func (c *CSV) Write(m *store.Message) error {
	row := c.cells[:0]
	for _, s := range []string{m.ID, string(m.Kind), m.Account, m.OpenID, m.App, m.Lane, m.Template, m.Reference, m.CallbackID, m.ResendOf, m.ResentAs, string(m.State)} {
		row = append(row, Cell(s))
	}
	row = append(row, yes(m.State.Terminal()), Cell(m.Reason), number(m.ErrCode), Cell(m.MsgID), number(m.Attempts), yes(m.PossibleDuplicate),
		Cell(m.Contradiction), Cell(m.Detail), clock(m.At), clock(m.QueuedAt), clock(m.AcceptedAt), clock(m.SettledAt), clock(m.UpdatedAt))
	return c.w.Write(row)
}

// End writes what is buffered.
func (c *CSV) End() error {
	c.w.Flush()
	return c.w.Error()
}

func yes(b bool) string {
	if b {
		return "true"
	}
	return ""
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func clock(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
