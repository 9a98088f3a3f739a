package store

import (
	"cmp"
	"context"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"tidegate/pkg/sqldb"
	"tidegate/pkg/wire"
)

// slots is over how many lines each count is spread, so that transactions that
// run at once seldom wait for each other's counts.
const slots = 4

const hourMillis = 60 * 60 * 1000

// countKey is one description of messages that are counted together. Everything
// in it is one of few: names from configurations, states, errcodes, and reasons
// without what makes each of them unique.
type countKey struct {
	hour     int64
	account  string
	kind     wire.Kind
	app      string
	template string
	lane     string
	state    wire.State
	errcode  int
	reason   string
}

func (m *Message) countKey() countKey {
	k := countKey{hour: m.At / hourMillis, account: m.Account, kind: m.Kind, app: m.App, template: m.Template, lane: m.Lane, state: m.State}
	if m.failed() {
		k.errcode, k.reason = m.ErrCode, reasonClass(m.Reason)
	}
	return k
}

// maxReason bounds the reasons that are counted apart.
const maxReason = 100

// unique is what differs from one reason to the next of the same sort: numbers,
// and WeChat's names of requests and hints.
var unique = regexp.MustCompile(`,?\s*(rid|hint):.*$|[0-9a-fA-F]*[0-9]{3,}[0-9a-fA-F]*|o[0-9A-Za-z_-]{27}`)

// reasonClass is the sort of a reason: rows keep reasons verbatim, counts and
// reports have few different ones, and no person in them.
func reasonClass(reason string) string {
	return cut(strings.TrimSpace(unique.ReplaceAllStringFunc(reason, func(s string) string {
		if strings.Contains(s, "rid:") || strings.Contains(s, "hint:") {
			return ""
		}
		return "#"
	})), maxReason)
}

// count is how a line of the counts changes.
type count struct {
	n           int
	first, last int64
}

func (c count) with(n int, at int64) count {
	c.n += n
	c.first, c.last = earlier(c.first, at), max(c.last, at)
	return c
}

// counts sums what the batch changes.
func (w *work) counts() map[countKey]count {
	out := map[countKey]count{}
	for _, rows := range w.rows {
		for _, r := range rows {
			if r.now.State == "" {
				continue
			}
			is := r.now.countKey()
			if !r.fresh() {
				was := r.was.countKey()
				if was == is {
					continue
				}
				out[was] = out[was].with(-1, r.was.At)
			}
			out[is] = out[is].with(1, r.now.At)
		}
	}
	return out
}

var countsTable = table{"counts", "hour, account, kind, app, template, lane, state, errcode, reason, slot",
	columnsOf("hour:i, account, kind, app, template, lane, state, errcode:i, reason, slot:i, n:i, first_at:i, last_at:i")}

// writeCounts adds the changes to the counts. It is the last thing in every
// transaction, since its lines are the ones that all of them want.
func (s *SQL) writeCounts(ctx context.Context, tx *sqldb.Tx, changes map[countKey]count) error {
	keys := make([]countKey, 0, len(changes))
	for k, c := range changes {
		if c.n != 0 {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, compareCounts)
	slot := rand.IntN(slots)
	least, most := "LEAST", "GREATEST"
	if s.db.Dialect() == sqldb.SQLite {
		least, most = "MIN", "MAX"
	}
	_, err := s.insert(ctx, tx, countsTable, len(keys), func(i int) []any {
		k, c := keys[i], changes[keys[i]]
		return []any{k.hour, k.account, string(k.kind), k.app, k.template, k.lane, string(k.state), k.errcode, k.reason, slot, c.n, c.first, c.last}
	}, " ON CONFLICT ("+countsTable.key+") DO UPDATE SET n = counts.n + excluded.n, first_at = "+
		least+"(counts.first_at, excluded.first_at), last_at = "+most+"(counts.last_at, excluded.last_at)")
	return err
}

func compareCounts(a, b countKey) int {
	return cmp.Or(cmp.Compare(a.hour, b.hour), cmp.Compare(a.account, b.account), cmp.Compare(a.kind, b.kind), cmp.Compare(a.app, b.app),
		cmp.Compare(a.template, b.template), cmp.Compare(a.lane, b.lane), cmp.Compare(a.state, b.state), cmp.Compare(a.errcode, b.errcode),
		cmp.Compare(a.reason, b.reason))
}
