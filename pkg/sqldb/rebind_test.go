package sqldb

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRebindLeavesQuotedTextAlone(t *testing.T) {
	for in, want := range map[string]string{
		"SELECT 1":                             "SELECT 1",
		"SELECT $2, $1":                        "SELECT ?2, ?1",
		"VALUES ($10,$11)":                     "VALUES (?10,?11)",
		"SELECT '$1', $1":                      "SELECT '$1', ?1",
		"SELECT 'it''s $1', $1":                "SELECT 'it''s $1', ?1",
		`SELECT "a$1" FROM t WHERE x=$1`:       `SELECT "a$1" FROM t WHERE x=?1`,
		"SELECT $1 -- not $2\n, $2":            "SELECT ?1 -- not $2\n, ?2",
		"SELECT /* $3 */ $1":                   "SELECT /* $3 */ ?1",
		"SELECT $1 /* open $2":                 "SELECT ?1 /* open $2",
		"SELECT $1 -- open $2":                 "SELECT ?1 -- open $2",
		"SELECT '$1":                           "SELECT '$1",
		"SELECT a$b, $":                        "SELECT a$b, $",
		"json LIKE '%/*%' AND a = $1 -- '\n$2": "json LIKE '%/*%' AND a = ?1 -- '\n?2",
	} {
		require.Equal(t, want, rebind(in), in)
	}
}

func FuzzRebindTouchesNothingButMarks(f *testing.F) {
	f.Add("SELECT '$1', $1 -- $2\n/* $3 */ \"$4\"")
	f.Fuzz(func(t *testing.T, q string) {
		got := rebind(q)
		require.Len(t, got, len(q))
		for i := range len(q) {
			if q[i] != got[i] {
				require.Equal(t, byte('$'), q[i])
				require.Equal(t, byte('?'), got[i])
			}
		}
	})
}
