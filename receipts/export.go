package receipts

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/receipts/export"
	"tidegate/receipts/store"
)

const (
	// maxExports is how many run at once on a node; each holds a connection of the
	// database most of its time.
	maxExports = 4
	// exportEvery is after how many rows the client gets what there is and the time
	// for writing begins anew.
	exportEvery = 500
	// exportStall is how long a client may take no bytes at all.
	exportStall = 30 * time.Second
	// trailerRows tells a client of HTTP how many rows were sent; without it the
	// export was broken off.
	trailerRows = "Tidegate-Rows"
)

// rowWriter writes messages in one format.
type rowWriter interface {
	Begin() error
	Write(m *store.Message) error
	End() error
}

// export answers GET /v1/messages?format=csv or ndjson with every message of the
// selection, newest first, as it is read. Memory is that of a page, whatever the
// number of rows. An export that cannot be finished ends the connection, so that
// no client takes a part for the whole.
func (r *Room) export(w http.ResponseWriter, req *http.Request, p api.Params, f store.Filter, format string) error {
	for _, name := range []string{"limit", "cursor"} {
		if p.Get(name) != "" {
			return fault.New(fault.Invalid, readOp, "%s belongs to pages: an export has no pages, bound it by from and to", name).WithField(name)
		}
	}
	if format != "csv" && format != "ndjson" {
		return fault.New(fault.Invalid, readOp, "format is %q: use json, csv or ndjson", format).WithField("format")
	}
	select {
	case r.exports <- struct{}{}:
		defer func() { <-r.exports }()
	default:
		return fault.New(fault.Unavailable, "export messages", "%d exports run at this node already: try again when one has ended", cap(r.exports))
	}
	if err := r.store.Ping(req.Context()); err != nil {
		return err // while an error can still be the answer
	}
	rows, err := r.stream(req.Context(), w, f, format)
	if err == nil {
		return nil
	}
	if req.Context().Err() == nil {
		r.d.Log.Warn("an export was broken off", zap.Int("rows", rows), zap.Error(err))
	}
	panic(http.ErrAbortHandler)
}

func (r *Room) stream(ctx context.Context, w http.ResponseWriter, f store.Filter, format string) (rows int, err error) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Trailer", trailerRows)
	h.Set("Content-Disposition", `attachment; filename="messages-`+r.d.Now().UTC().Format("20060102-150405")+`.`+format+`"`)
	out := bufio.NewWriterSize(w, 32<<10)
	var to rowWriter
	if format == "csv" {
		h.Set("Content-Type", "text/csv; charset=utf-8")
		to = export.NewCSV(out)
	} else {
		h.Set("Content-Type", "application/x-ndjson")
		to = ndjson{json.NewEncoder(out)}
	}
	control := http.NewResponseController(w)
	push := func() error {
		if err := control.SetWriteDeadline(time.Now().Add(exportStall)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
		if err := control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		return nil
	}
	if err := to.Begin(); err != nil {
		return 0, err
	}
	err = r.store.Each(ctx, f, func(m *store.Message) error {
		if err := to.Write(m); err != nil {
			return err
		}
		if rows++; rows%exportEvery == 0 {
			return push()
		}
		return nil
	})
	if err == nil {
		err = to.End()
	}
	if err == nil {
		h.Set(trailerRows, strconv.Itoa(rows))
		err = push()
	}
	return rows, err
}

// ndjson writes the JSON of the API, one message a line.
type ndjson struct{ enc *json.Encoder }

func (n ndjson) Begin() error                 { return nil }
func (n ndjson) Write(m *store.Message) error { return n.enc.Encode(viewOf(m)) }
func (n ndjson) End() error                   { return nil }
