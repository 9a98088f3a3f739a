package store

import (
	"context"
	"time"

	"tidegate/pkg/sqldb"
	"tidegate/pkg/wire"
)

// HourCount is how many pushes of an hour ended in one way.
type HourCount struct {
	Hour    time.Time // its beginning
	Account string
	State   wire.State
	ErrCode int
	Reason  string // one of the sorts of reason
	N       int64
}

// maxHourCounts bounds what one look at the hours holds; beyond it the oldest are
// left out.
const maxHourCounts = 200_000

// HourCounts reads how the pushes of the hours in [from, to) ended, from the counts.
func (s *SQL) HourCounts(ctx context.Context, from, to time.Time) ([]HourCount, error) {
	var out []HourCount
	err := s.eachRow(ctx, statement{"SELECT hour, account, state, errcode, MIN(reason), CAST(SUM(n) AS BIGINT) FROM counts" +
		" WHERE kind = 'push' AND hour >= $1 AND hour < $2 GROUP BY hour, account, state, errcode HAVING SUM(n) > 0 ORDER BY hour DESC LIMIT $3",
		[]any{from.UnixMilli() / hourMillis, to.UnixMilli() / hourMillis, maxHourCounts}}, func(rows *sqldb.Rows) error {
		var c HourCount
		var hour int64
		err := rows.Scan(&hour, &c.Account, &c.State, &c.ErrCode, &c.Reason, &c.N)
		c.Hour = time.UnixMilli(hour * hourMillis).UTC()
		out = append(out, c)
		return err
	})
	return out, err
}
