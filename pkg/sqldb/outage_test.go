package sqldb_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
)

// cable is a TCP proxy in front of a server that can be cut.
type cable struct {
	t      *testing.T
	target string
	ln     net.Listener
	wg     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	down  bool
	word  []byte // cut once the client has said it and the server has it
	cuts  int
}

func newCable(t *testing.T, target string) *cable {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cable{t: t, target: target, ln: ln, conns: map[net.Conn]bool{}}
	c.wg.Go(c.accept)
	t.Cleanup(func() { _ = ln.Close(); c.cut(); c.wg.Wait() })
	return c
}

func (c *cable) accept() {
	for {
		in, err := c.ln.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", c.target)
		if err != nil || !c.add(in, out) {
			_ = in.Close()
			continue
		}
		c.wg.Go(func() { _, _ = io.Copy(in, out); c.drop(in, out) })
		c.wg.Go(func() { c.listen(in, out); c.drop(in, out) })
	}
}

// listen carries what the client says and cuts behind the word.
func (c *cable) listen(in, out net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		if err != nil {
			return
		}
		c.mu.Lock()
		said := len(c.word) > 0 && bytes.Contains(buf[:n], c.word)
		if said {
			c.word = nil
			c.cuts++
			_ = in.Close() // the answer will find nobody
		}
		c.mu.Unlock()
		if _, err := out.Write(buf[:n]); err != nil {
			return
		}
		if said {
			_, _ = io.Copy(io.Discard, out) // the server carries it out
			return
		}
	}
}

func (c *cable) add(in, out net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		_ = out.Close()
		return false
	}
	c.conns[in], c.conns[out] = true, true
	return true
}

func (c *cable) drop(conns ...net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range conns {
		_ = x.Close()
		delete(c.conns, x)
	}
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = true
	for x := range c.conns {
		_ = x.Close()
	}
}

func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = false
}

func (c *cable) cutAfter(word string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.word = []byte(word)
}

func (c *cable) happened() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts
}

// overCable opens the PostgreSQL server through a cable, and directly.
func overCable(t *testing.T) (db, direct *sqldb.DB, c *cable) {
	conf := sqldbtest.PostgresConfig(t)
	direct, err := sqldb.Open(t.Context(), conf)
	require.NoError(t, err)
	t.Cleanup(func() { _ = direct.Close() })
	u, err := url.Parse(conf.DSN)
	require.NoError(t, err)
	c = newCable(t, u.Host)
	u.Host = c.ln.Addr().String()
	conf.DSN, conf.Timeout = u.String(), 2*time.Second
	db, err = sqldb.Open(t.Context(), conf)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	table(t, direct)
	return db, direct, c
}

func TestPostgresAwayIsUnavailableAndComesBack(t *testing.T) {
	db, _, c := overCable(t)
	ctx := t.Context()
	err := db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO item (id, n) VALUES ('a', 1)")
		require.NoError(t, err)
		c.cut()
		_, err = tx.Exec(ctx, "INSERT INTO item (id, n) VALUES ('b', 1)")
		return err
	})
	require.Equal(t, fault.Unavailable, fault.KindOf(err), "lost before the commit: %v", err)
	require.Equal(t, fault.Unavailable, fault.KindOf(db.Ping(ctx)))
	_, err = db.Exec(ctx, "INSERT INTO item (id, n) VALUES ('c', 1)")
	require.Equal(t, fault.Unavailable, fault.KindOf(err), "never sent: %v", err)
	c.mend()
	require.NoError(t, db.Ping(ctx))
	require.Zero(t, count(t, db), "nothing was done")
}

// The answer of a commit is lost: the caller must learn that it does not know.
func TestLostCommitIsAmbiguous(t *testing.T) {
	db, direct, c := overCable(t)
	c.cutAfter("commit")
	err := db.Tx(t.Context(), func(ctx context.Context, tx *sqldb.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO item (id, n) VALUES ('a', 1)")
		return err
	})
	require.Equal(t, fault.Ambiguous, fault.KindOf(err), "%v", err)
	require.Equal(t, 1, c.happened())
	require.Eventually(t, func() bool { return count(t, direct) == 1 }, 5*time.Second, 10*time.Millisecond, "it was done after all")

	c.cutAfter("UPDATE item")
	_, err = db.Exec(t.Context(), "UPDATE item SET n = 2")
	require.Equal(t, fault.Ambiguous, fault.KindOf(err), "%v", err)
	require.Equal(t, 2, c.happened())
}
