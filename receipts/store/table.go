package store

import (
	"context"
	"strconv"
	"strings"

	"tidegate/pkg/sqldb"
)

// column is one column of a table that is written in bulk.
type column struct {
	name string
	kind columnKind
}

type columnKind int

const (
	textColumn columnKind = iota
	intColumn
	bytesColumn
)

func (k columnKind) array() string {
	return [...]string{"text[]", "bigint[]", "bytea[]"}[k]
}

// table is a table that is written in bulk: its key, which rows must not share,
// and its columns in the order in which values come.
type table struct {
	name    string
	key     string
	columns []column
}

// columnsOf reads "id, variant:i, letter:b": text unless it says otherwise.
func columnsOf(text string) []column {
	var out []column
	for c := range strings.SplitSeq(text, ", ") {
		name, kind, _ := strings.Cut(c, ":")
		out = append(out, column{name, map[string]columnKind{"": textColumn, "i": intColumn, "b": bytesColumn}[kind]})
	}
	return out
}

// names lists the columns as SQL does.
func (t table) names() string {
	out := make([]string, len(t.columns))
	for i, c := range t.columns {
		out[i] = c.name
	}
	return strings.Join(out, ", ")
}

// insert writes n rows in one order of keys that the caller keeps, and tells how
// many were written; conflict is what follows VALUES. PostgreSQL takes a column
// as one array, so that a batch of any size is one statement of one text, planned
// once; SQLite takes several rows in a statement.
func (s *SQL) insert(ctx context.Context, tx *sqldb.Tx, t table, n int, row func(i int) []any, conflict string) (int64, error) {
	if n == 0 {
		return 0, nil
	}
	if s.db.Dialect() == sqldb.Postgres {
		return tx.Exec(ctx, "INSERT INTO "+t.name+" ("+t.names()+") SELECT * FROM "+t.unnest(1)+conflict, t.arrays(n, row)...)
	}
	var total int64
	at := 0
	for _, size := range sizes(n) {
		args := make([]any, 0, size*len(t.columns))
		for i := at; i < at+size; i++ {
			args = append(args, row(i)...)
		}
		at += size
		got, err := tx.Exec(ctx, "INSERT INTO "+t.name+" ("+t.names()+") VALUES "+values(size, len(t.columns))+conflict, args...)
		if total += got; err != nil {
			return total, err
		}
	}
	return total, nil
}

// unnest names the arrays as a table, parameters beginning with number from.
func (t table) unnest(from int) string {
	out := make([]string, len(t.columns))
	for i, c := range t.columns {
		out[i] = "$" + strconv.Itoa(from+i) + "::" + c.kind.array()
	}
	return "unnest(" + strings.Join(out, ", ") + ") AS rows (" + t.names() + ")"
}

// arrays turns rows into one array for each column.
func (t table) arrays(n int, row func(i int) []any) []any {
	texts, ints, blobs := make([][]string, len(t.columns)), make([][]int64, len(t.columns)), make([][][]byte, len(t.columns))
	for i := range n {
		for k, v := range row(i) {
			switch t.columns[k].kind {
			case intColumn:
				ints[k] = append(ints[k], whole(v))
			case bytesColumn:
				blobs[k] = append(blobs[k], v.([]byte))
			default:
				texts[k] = append(texts[k], v.(string))
			}
		}
	}
	out := make([]any, len(t.columns))
	for k, c := range t.columns {
		switch c.kind {
		case intColumn:
			out[k] = ints[k]
		case bytesColumn:
			out[k] = blobs[k]
		default:
			out[k] = texts[k]
		}
	}
	return out
}

func whole(v any) int64 {
	if n, ok := v.(int); ok {
		return int64(n)
	}
	return v.(int64)
}

// among is the condition that a column of text is one of some values, and its
// arguments: one array on PostgreSQL. Number from is the first parameter's.
func (s *SQL) among(name string, from int, vs []string) (string, []any) {
	if s.db.Dialect() == sqldb.Postgres {
		return name + " = ANY($" + strconv.Itoa(from) + "::text[])", []any{vs}
	}
	return name + " IN " + in(from, len(vs)), anys(vs)
}

// pieces cuts what one statement names: PostgreSQL takes it whole.
func (s *SQL) pieces(vs []string) [][]string {
	if len(vs) > 0 && s.db.Dialect() == sqldb.Postgres {
		return [][]string{vs}
	}
	return chunks(vs)
}
