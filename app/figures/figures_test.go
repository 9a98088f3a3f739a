package figures_test

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidegate/app/figures"
	"tidegate/pkg/kafka"
	"tidegate/pkg/redis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The figures of the guard on a clock of their own: every claim must hold on any
// machine. With Redis and on the clock of the wall they are made by
// `tidegate figures --short`, which CI runs when nothing else runs.
func TestShapesOfTheGuard(t *testing.T) {
	if underRace {
		t.Skip("ThreadSanitizer of go1.26 gives up on so many goroutines in one bubble (tsan_rtl.cpp:346); the plain run has it")
	}
	for _, name := range []string{"000/6", "000/7", "000/8"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				claims, err := figures.Run(t.Context(), figures.Options{Only: []string{name}, Short: true, Alone: true, Dir: dir})
				require.NoError(t, err)
				require.NotEmpty(t, claims)
				for _, c := range claims {
					require.True(t, c.Holds, "%s: %s: measured %s", c.Figure, c.Promised, c.Measured)
				}
			})
			requireFiles(t, dir, name)
		})
	}
}

// The figures of the robot need a queue, so their clock is the wall's. What is
// claimed of durations holds on a machine that is free, and is not asked here.
func TestShapesOfTheRobot(t *testing.T) {
	o := figures.Options{Only: []string{"003/7"}, Short: true, Dir: t.TempDir(), Err: t.Output()}
	if addr := os.Getenv("TIDEGATE_TEST_KAFKA"); addr != "" {
		c := kafka.DefaultConfig()
		c.Brokers = []string{addr}
		o.Kafka = &c
	}
	claims, err := figures.Run(t.Context(), o)
	require.NoError(t, err)
	asked := 0
	for _, c := range claims {
		t.Logf("%s: %s: %s", c.Figure, c.Promised, c.Measured)
		if !c.Timed {
			asked++
			require.True(t, c.Holds, "%s: %s: measured %s", c.Figure, c.Promised, c.Measured)
		}
	}
	require.Equal(t, 2, asked)
	requireFiles(t, o.Dir, "003/7")
}

// A business system sends while WeChat is slow: without the gate its call is as slow,
// with it no call waits, and nothing is lost either way.
func TestShapesOfTheSender(t *testing.T) {
	for _, name := range []string{"003/12", "003/13"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			claims, err := figures.Run(t.Context(), figures.Options{Only: []string{name}, Short: true, Dir: dir})
			require.NoError(t, err)
			asked := 0
			for _, c := range claims {
				t.Logf("%s: %s: %s", c.Figure, c.Promised, c.Measured)
				if !c.Timed {
					asked++
					require.True(t, c.Holds, "%s: %s: measured %s", c.Figure, c.Promised, c.Measured)
				}
			}
			require.Equal(t, 2, asked)
			requireFiles(t, dir, name)
		})
	}
}

// requireFiles reads both files as their readers do.
func requireFiles(t *testing.T, dir, name string) {
	t.Helper()
	base := filepath.Join(dir, strings.Replace(name, "/", "-figure-", 1))
	svg, err := os.ReadFile(base + ".svg")
	require.NoError(t, err)
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	for _, what := range []string{"made by tidegate figures --only " + name, "cores", "commit "} {
		require.Contains(t, string(svg), what)
	}
	table, err := os.ReadFile(base + ".csv")
	require.NoError(t, err)
	r := csv.NewReader(bytes.NewReader(table))
	r.Comment = '#'
	rows, err := r.ReadAll()
	require.NoError(t, err)
	require.Greater(t, len(rows), 2)
	host, err := os.Hostname()
	require.NoError(t, err)
	if len(host) > 3 {
		require.NotContains(t, string(svg)+string(table), host)
	}
}

func TestWrongOptionsAreRefused(t *testing.T) {
	for _, o := range []figures.Options{{Only: []string{"000/9"}}, {Seconds: 1}, {Seconds: 100}} {
		_, err := figures.Run(t.Context(), o)
		require.Error(t, err)
	}
}

func TestAnEngineThatIsAwayIsSaid(t *testing.T) {
	c := redis.DefaultConfig()
	c.Addrs = []string{"127.0.0.1:1"}
	_, err := figures.Run(t.Context(), figures.Options{Only: []string{"000/6"}, Short: true, Redis: &c})
	require.ErrorContains(t, err, "make figure 000/6")
}
