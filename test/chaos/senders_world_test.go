//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/client"
	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
	"tidegate/test/chaos/drive"
	"tidegate/test/chaos/herd"
)

// noticeTemplate is the template of all pushes.
const noticeTemplate = "NOTICE"

// inFlight is F: the requests that one sender may have under way for one API
// (limits in the configuration).
const inFlight = 64

// outbound is what stands behind the queue: senders over the engines, and in
// front of them a simulated WeChat whose users are looked at.
type outbound struct {
	*world
	sim      *wechatsim.Sim
	users    []string
	key      string
	addr     string // of the first sender's API
	db       sqldb.Config
	database string
	producer *kafka.Producer
	sent     map[string]*sending // by mark
	hook     atomic.Pointer[func(wechatsim.Entry)]
}

// sending is one message that a user must see exactly once.
type sending struct {
	mark, openid, id string
	reply            bool
}

// newOutbound starts everything but senders.
func newOutbound(t *testing.T, e *engines, broker *herd.Engine, users int) *outbound {
	t.Helper()
	o := &outbound{sent: map[string]*sending{}}
	o.sim = newSimWith(t, o.arrived, users)
	var settings string
	o.db, settings = databaseOf(t)
	o.database = map[string]string{sqldb.Postgres: "PostgreSQL", sqldb.SQLite: "SQLite"}[o.db.Driver]
	o.world = newWorld(t, e, shape{broker: broker, extra: apis(o.sim, settings)})
	var err error
	o.users, err = o.sim.Followers(accounts[0].AppID, 0)
	require.NoError(t, err)
	openWindows(t, o.sim, o.users)
	lines := strings.Split(strings.TrimSpace(o.command("apps", "add", "chaos", "--account", accounts[0].Name, "--config", o.config)), "\n")
	o.key = lines[len(lines)-1]
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{o.broker.Addr}
	o.producer, err = kafka.NewProducer(cfg, kafka.ProducerOptions{MaxBlock: 20 * time.Second}, zap.NewNop(), nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = o.producer.Close(ctx)
	})
	return o
}

// databaseOf is a schema of our own in the PostgreSQL that TIDEGATE_TEST_POSTGRES
// names, or else a file.
func databaseOf(t *testing.T) (c sqldb.Config, settings string) {
	t.Helper()
	base := os.Getenv("TIDEGATE_TEST_POSTGRES")
	if base == "" {
		c = sqldb.Config{Driver: sqldb.SQLite, DSN: filepath.Join(t.TempDir(), "chaos.db")}
		return c, fmt.Sprintf("database: {driver: sqlite, dsn: %q}", c.DSN)
	}
	name := fmt.Sprintf("chaos%d", time.Now().UnixNano())
	db, err := sqldb.Open(t.Context(), sqldb.Config{Driver: sqldb.Postgres, DSN: base})
	require.NoError(t, err)
	_, err = db.Exec(t.Context(), "CREATE SCHEMA "+name)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, _ = db.Exec(context.Background(), "DROP SCHEMA "+name+" CASCADE")
		_ = db.Close()
	})
	u, err := url.Parse(base)
	require.NoError(t, err)
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	c = sqldb.Config{Driver: sqldb.Postgres, DSN: u.String()}
	return c, fmt.Sprintf("database: {driver: postgres, dsn: %q, max_conns: 8}", c.DSN)
}

// arrived is every request that WeChat has read and carried out, and not answered.
func (o *outbound) arrived(e wechatsim.Entry) {
	if f := o.hook.Load(); f != nil {
		(*f)(e)
	}
}

// sender starts one. crashAt names the pass at which it dies; "" is a release.
func (o *outbound) sender(i int, crashAt string) *herd.Process {
	o.t.Helper()
	name, addr := fmt.Sprintf("sender%d", i), herd.FreeAddr(o.t)
	if i == 0 {
		o.addr = addr
	}
	return o.armed("sender", name, crashAt, "sender.node="+name, "api.addr="+addr)
}

// armed starts a role that dies at a pass of a crash point; its next life is the
// same program unarmed.
func (o *outbound) armed(role, name, crashAt string, set ...string) *herd.Process {
	o.t.Helper()
	if crashAt == "" {
		return o.role(role, name, set...)
	}
	path, err := builds.Make(".", "crash")
	require.NoError(o.t, err)
	ops := herd.FreeAddr(o.t)
	args := []string{role, "--config", o.config, "--set", "ops.addr=" + ops}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	return o.h.Start(herd.Spec{Name: name, Path: path, Args: args, Ops: ops, Env: []string{"TIDEGATE_CRASH_AT=" + crashAt}})
}

// letter makes the next message to a user.
func (o *outbound) letter(reply bool) *sending {
	n := len(o.sent)
	s := &sending{mark: drive.Mark(o.run, n), openid: o.users[n%len(o.users)], reply: reply}
	o.sent[s.mark] = s
	return s
}

func (o *outbound) letters(n int, reply bool) []*sending {
	out := make([]*sending, n)
	for i := range out {
		out[i] = o.letter(reply)
	}
	return out
}

// post offers pushes to the first sender's API until each of them is accepted,
// also while it is away: their keys make that safe. Both lanes get some.
func (o *outbound) post(all []*sending) error {
	c, err := client.New("http://"+o.addr, o.key, client.Options{})
	if err != nil {
		return err
	}
	deadline := time.Now().Add(o.patience(2 * time.Minute))
	for len(all) > 0 {
		part := all[:min(len(all), client.MaxBatch)]
		pushes := make([]client.Push, len(part))
		for i, s := range part {
			pushes[i] = client.Push{Account: accounts[0].Name, OpenID: s.openid, TemplateID: noticeTemplate, Lane: []string{client.Realtime, client.Bulk}[i%2],
				Data: map[string]string{"thing1": s.mark}, IdempotencyKey: s.mark}
		}
		results, err := c.PushBatch(o.t.Context(), pushes)
		for i, r := range results {
			if err == nil && r.Err != nil {
				err = r.Err
			}
			part[i].id = r.ID
		}
		if err == nil {
			all = all[len(part):]
			continue
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("pushes are not accepted: %w", err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-o.t.Context().Done():
			return o.t.Context().Err()
		}
	}
	return nil
}

// answer queues replies as a robot does.
func (o *outbound) answer(all []*sending) error {
	records := make([]kafka.Record, len(all))
	names := wire.Topics{Prefix: o.run}
	for i, s := range all {
		h, user := idgen.HashOf("reply", s.mark), idgen.User(accounts[0].AppID, s.openid)
		now := time.Now().UnixMilli()
		r := &wire.Reply{
			ID: idgen.Derive(user, h), IdentityHash: h.String(), CallbackID: idgen.Derive(user, idgen.HashOf("callback", s.mark)),
			Account: accounts[0].Name, OpenID: s.openid, Content: wire.Content{Type: "text", Text: s.mark}, Class: wire.PreferDuplicate, ReceivedAt: now, CreatedAt: now,
		}
		s.id = r.ID
		key, value, headers, err := wire.Encode(r)
		if err != nil {
			return err
		}
		records[i] = kafka.Record{Topic: names.Replies(accounts[0].Name), Key: key, Value: value, Headers: headers}
	}
	return o.producer.PublishAll(o.t.Context(), records)
}

// worked waits until senders have committed everything.
func (o *outbound) worked() {
	o.t.Helper()
	names := wire.Topics{Prefix: o.run}
	a := accounts[0].Name
	for _, lane := range []string{wire.LaneReplies, wire.LaneRealtime, wire.LaneBulk} {
		o.haveRead(queue{names.SenderGroup(a, lane), names.Lane(a, lane)})
	}
}
