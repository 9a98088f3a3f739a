package hold

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What was due all at once goes with a rate that rises in a straight line, and a
// pause of the releaser does not end in a wave.
func TestRampRisesAndMakesNoWave(t *testing.T) {
	c := Config{ReleaseFrom: 50, ReleaseTo: 500, ReleaseOver: time.Minute}
	var r ramp
	at := time.Unix(1_800_000_000, 0)
	second := func() (n int) {
		for range 5 {
			at = at.Add(tick)
			k := r.grant(c, at)
			r.took(k, at)
			n += k
		}
		return n
	}
	require.Equal(t, 1, r.grant(c, at), "a lone letter does not wait")
	got := []int{second()}
	for range 70 {
		got = append(got, second())
	}
	require.InDelta(t, 55, got[0], 4)
	require.InDelta(t, 50+450*30/60, got[30], 12)
	for i := 61; i < len(got); i++ {
		require.InDelta(t, 500, got[i], 1)
	}
	at = at.Add(time.Hour)
	require.LessOrEqual(t, r.grant(c, at), 500)
	r.took(0, at)
	require.Equal(t, ramp{}, r, "after a calm the next wave begins slowly again")
	require.Equal(t, 1, r.grant(c, at))
}

func TestConfigIsChecked(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	for name, change := range map[string]func(*Config){
		"after": func(c *Config) { c.After = 0 }, "max_rows": func(c *Config) { c.MaxRows = -1 },
		"release_from": func(c *Config) { c.ReleaseFrom = 0 }, "release_to": func(c *Config) { c.ReleaseTo = 1 },
		"release_over": func(c *Config) { c.ReleaseOver = -1 },
	} {
		c := DefaultConfig()
		change(&c)
		require.ErrorContains(t, c.Validate(), name)
	}
}
