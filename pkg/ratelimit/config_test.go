package ratelimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConfigNamesTheKey(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	for key, c := range map[string]func(*Config){
		"permits.max_nodes":  func(c *Config) { c.MaxNodes = 0 },
		"permits.timeout":    func(c *Config) { c.Timeout = time.Second },
		"permits.place_life": func(c *Config) { c.PlaceLife = time.Millisecond },
	} {
		cfg := DefaultConfig()
		c(&cfg)
		require.ErrorContains(t, cfg.Validate(), key)
		_, err := NewCluster(cfg, nil, nil, nil)
		require.ErrorContains(t, err, key)
	}
}

// What the promise rests on (config.go, shared_script.go).
func TestTimesFitTogether(t *testing.T) {
	const mostTimeout, mostLife = 150 * time.Millisecond, 50 * time.Millisecond
	require.Greater(t, gap, 2*beat)
	require.Greater(t, patience, gap+mostTimeout)
	require.Greater(t, patience, horizon+mostLife)
	require.Greater(t, proof, mostTimeout+retry)
	require.Greater(t, settle, proof)
	require.Greater(t, settle, horizon+mostLife)
	c := DefaultConfig()
	c.Timeout = mostTimeout + 1
	require.Error(t, c.Validate())
}

// A period is exact to 10⁻¹⁵ s and never too short.
func TestPeriod(t *testing.T) {
	for _, rate := range []float64{1e6, 200, 1019.0 / 60, 1.0 / 3, 7919.0 / 3600, 1e-6, 3.14159} {
		us, part := period(rate)
		require.Less(t, part, int64(frac))
		num, den := fraction(rate)
		// us + part/frac >= den/num × 10⁶, by less than one part.
		const parts = float64(frac)
		got := float64(us) + float64(part)/parts
		require.InEpsilon(t, 1e6*float64(den)/float64(num), got, 1e-9)
	}
	us, part := period(0)
	require.Zero(t, us+part)
	us, part = period(3) // 333,333 and a third
	require.Equal(t, int64(333333), us)
	require.Equal(t, int64(frac/3+1), part)
}
