package run

import (
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// told counts what the connection beneath is told.
type told struct {
	net.Conn
	read, write int
}

func (c *told) SetReadDeadline(t time.Time) error {
	c.read++
	return c.Conn.SetReadDeadline(t)
}

func (c *told) SetWriteDeadline(t time.Time) error {
	c.write++
	return c.Conn.SetWriteDeadline(t)
}

// Whatever is set and in whatever order: a read or write ends when it should, and
// a deadline that moves on is told once.
func TestDeadlinesEndWhenTheyShould(t *testing.T) {
	const never = time.Hour
	for name, c := range map[string]struct {
		after []time.Duration // deadlines from the beginning, in their order; 0 is none
		ends  time.Duration
		told  int
	}{
		"one":                   {[]time.Duration{2 * time.Second}, 2 * time.Second, 1},
		"it moves on":           {[]time.Duration{2 * time.Second, 4 * time.Second, 75 * time.Second}, 75 * time.Second, 2},
		"it comes nearer":       {[]time.Duration{75 * time.Second, 2 * time.Second}, 2 * time.Second, 2},
		"there and back":        {[]time.Duration{4 * time.Second, 75 * time.Second, 5 * time.Second, 6 * time.Second}, 6 * time.Second, 2},
		"taken back":            {[]time.Duration{2 * time.Second, 0}, never, 3},
		"taken back, set again": {[]time.Duration{2 * time.Second, 0, 3 * time.Second}, 3 * time.Second, 2},
		"over already":          {[]time.Duration{2 * time.Second, -time.Second}, 0, 2},
	} {
		for _, way := range []string{"read", "write"} {
			t.Run(name+"/"+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					here, there := net.Pipe()
					defer there.Close()
					count := &told{Conn: here}
					conn := &patientConn{Conn: count}
					defer conn.Close()
					begin := time.Now()
					set, work, tells := conn.SetReadDeadline, conn.Read, &count.read
					if way == "write" {
						set, work, tells = conn.SetWriteDeadline, conn.Write, &count.write
					}
					for _, d := range c.after {
						var at time.Time
						if d != 0 {
							at = begin.Add(d)
						}
						require.NoError(t, set(at))
					}
					stop := time.AfterFunc(never, func() { _ = set(time.Unix(1, 0)) }) // as net/http ends a read
					defer stop.Stop()
					_, err := work(make([]byte, 1))
					require.ErrorIs(t, err, os.ErrDeadlineExceeded)
					require.Equal(t, c.ends, time.Since(begin))
					require.Equal(t, c.told, *tells)
				})
			})
		}
	}
}

// A write that was begun before an old deadline goes on where it stood.
func TestWriteGoesOnAfterAnOldDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		conn := &patientConn{Conn: here}
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Second)))
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		got := make(chan string, 1)
		go func() {
			b := make([]byte, 6)
			n, _ := there.Read(b[:3])
			<-time.After(2 * time.Second)
			m, _ := there.Read(b[n:])
			got <- string(b[:n+m])
		}()
		n, err := conn.Write([]byte("letter"))
		require.NoError(t, err)
		require.Equal(t, 6, n)
		require.Equal(t, "letter", <-got)
	})
}
