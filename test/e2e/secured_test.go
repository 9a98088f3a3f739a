//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama" //nolint:depguard // users are made with the means of whoever runs Kafka; the product makes none
	"github.com/stretchr/testify/require"

	"tidegate/pkg/sqldb"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/test/chaos/herd"
)

// The names and the password by which the engines let the roles in.
const (
	securedPassword = "secured" // as deployments/dev gives it to Redis' user tidegate
	kafkaUsers      = "tidegate-"
)

// S82 to S84: the whole road by TLS, each role with a user of its own that may
// do what `tidegate acls` and deployments/redis/tidegate.conf say and no more.
func TestS82ToS84MainRoadSecured(t *testing.T) {
	w := newSecuredWorld(t, shape{partitions: 4, proxies: 1, robots: 1, senders: 1, receiptsWorkers: 1, followers: 50})
	b := w.business()
	pushed := make(chan error, 1)
	go func() { pushed <- b.offer(t.Context(), 1, 50, 25) }()
	_, err := w.sim.Load(t.Context(), wechatsim.LoadSpec{
		Count: 300, Rate: 100, Loop: wechatsim.LoopClosed, Mix: wechatsim.Mix{Text: 8, Menu: 2}, RepeatShare: 0.05, MenuKey: "BILL:",
	})
	require.NoError(t, err)
	require.NoError(t, <-pushed)
	v := w.settle(60 * time.Second)
	requireRight(t, v)
	require.Equal(t, int64(50), v.Pushes.Visible)
	w.requireJoined(b, 50)
	require.Zero(t, w.parts["proxy0"].MetricWith("tidegate_proxy_callbacks_total", `result="unchecked"`), "claims were refused")
	door := w.parts["proxy0"]
	herd.Wait(t, "the door to measure the queues", 30*time.Second, func() bool { return door.Metric("tidegate_queue_verdict") >= 16 })
	require.Zero(t, door.Metric("tidegate_queue_polls_failed_total"), "the door's user may not measure the queues")
	denied := w.redisDenials()
	require.Empty(t, denied, "Redis refused a command of ours: add it to deployments/redis/tidegate.conf")
	ci(t, "secured: Kafka SASL_SSL with a user per role and %d permits, Redis TLS with its ACL user (0 commands refused), PostgreSQL TLS verify-full: %d callbacks acked, %d replies, %d pushes joined; lost 0, doubled 0, out of order 0",
		strings.Count(w.command("acls", "--config", w.plain), "\n"), v.Callbacks.Acked, v.Replies.Answered, v.Pushes.Visible)
	w.requireRefused()
}

// newSecuredWorld makes topics, keys and permits by the plain ports, as the
// operator of the engines would, and runs the roles by the secured ones.
func newSecuredWorld(t *testing.T, s shape) *world {
	t.Helper()
	w := newBareWorld(t, s)
	w.command("topics", "--config", w.file)
	w.key = w.makeKey()
	w.command("acls", "--apply", "--config", w.file)
	for _, role := range []string{"proxy", "robot", "sender", "receipts"} {
		w.kafkaUser(kafkaUsers + role)
	}
	w.redisCLI("acl", "log", "reset")
	w.plain = w.file
	text, err := os.ReadFile(w.file)
	require.NoError(t, err)
	dir := filepath.Dir(w.file)
	dsn := filepath.Join(dir, "dsn-secured")
	require.NoError(t, os.WriteFile(dsn, []byte(w.databaseUser()), 0o600))
	secured := strings.NewReplacer(
		fmt.Sprintf("kafka: {brokers: [%q]}", engine(t, "KAFKA")),
		fmt.Sprintf("kafka: {brokers: [%q], tls: {enabled: true, ca_file: %q}, sasl: {mechanism: SCRAM-SHA-512, password: %q, username: set-by-role}}", engine(t, "KAFKA_TLS"), engine(t, "CA"), securedPassword),
		fmt.Sprintf("redis: {addrs: [%q], prefix: %s}", engine(t, "REDIS"), w.prefix),
		fmt.Sprintf("redis: {addrs: [%q], prefix: \"tg:%s\", username: tidegate, password: %q, tls: {enabled: true, ca_file: %q}}", engine(t, "REDIS_TLS"), w.prefix, securedPassword, engine(t, "CA")),
		filepath.Join(dir, "dsn"), dsn,
	).Replace(string(text))
	require.NotContains(t, secured, engine(t, "KAFKA")+`"`)
	require.NotContains(t, secured, engine(t, "REDIS")+`"`)
	w.file = filepath.Join(dir, "secured.yaml")
	require.NoError(t, os.WriteFile(w.file, []byte(secured), 0o600))
	w.extra = func(role string) []string { return []string{"--set", "kafka.sasl.username=" + kafkaUsers + role} }
	w.startAll(s)
	return w
}

// kafkaUser makes a user with a SCRAM password.
func (w *world) kafkaUser(name string) {
	w.t.Helper()
	conf := sarama.NewConfig()
	conf.Version = sarama.V3_6_0_0
	admin, err := sarama.NewClusterAdmin([]string{engine(w.t, "KAFKA")}, conf)
	require.NoError(w.t, err)
	defer admin.Close()
	res, err := admin.UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{{
		Name: name, Mechanism: sarama.SCRAM_MECHANISM_SHA_512, Iterations: 4096, Salt: []byte(w.prefix + name), Password: []byte(securedPassword),
	}})
	require.NoError(w.t, err)
	require.Equal(w.t, sarama.ErrNoError, res[0].ErrorCode)
}

// databaseUser makes the user that owns the run's schema and nothing else, and
// gives the DSN that reaches it.
func (w *world) databaseUser() string {
	w.t.Helper()
	ctx := w.t.Context()
	db, err := sqldb.Open(ctx, sqldb.Config{Driver: sqldb.Postgres, DSN: engine(w.t, "POSTGRES")})
	require.NoError(w.t, err)
	defer db.Close()
	for _, q := range []string{
		"DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tidegate') THEN CREATE ROLE tidegate LOGIN; END IF; END $$",
		"ALTER ROLE tidegate PASSWORD '" + securedPassword + "'",
		"GRANT USAGE, CREATE ON SCHEMA " + w.prefix + " TO tidegate",
	} {
		_, err := db.Exec(ctx, q)
		require.NoError(w.t, err)
	}
	w.giveTables(ctx, db)
	q := url.Values{"sslmode": {"verify-full"}, "sslrootcert": {engine(w.t, "CA")}, "search_path": {w.prefix}}
	return "postgres://tidegate:" + securedPassword + "@" + engine(w.t, "POSTGRES_TLS") + "/postgres?" + q.Encode()
}

// giveTables hands over what `apps add` has made as the superuser.
func (w *world) giveTables(ctx context.Context, db *sqldb.DB) {
	w.t.Helper()
	_, err := db.Exec(ctx, `DO $$ DECLARE t record; BEGIN
		FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = '`+w.prefix+`' LOOP
			EXECUTE format('ALTER TABLE `+w.prefix+`.%I OWNER TO tidegate', t.tablename);
		END LOOP; END $$`)
	require.NoError(w.t, err)
}

func (w *world) redisCLI(args ...string) string {
	w.t.Helper()
	host, port, _ := strings.Cut(engine(w.t, "REDIS"), ":")
	out, err := exec.Command("redis-cli", append([]string{"-h", host, "-p", port}, args...)...).CombinedOutput()
	require.NoError(w.t, err, string(out))
	return strings.TrimSpace(string(out))
}

// redisDenials lists what Redis refused our user.
func (w *world) redisDenials() string { return w.redisCLI("acl", "log") }

// requireRefused tries what must not work: a foreign authority, a wrong
// password, and what a role's user has no business with.
func (w *world) requireRefused() {
	w.t.Helper()
	foreign := filepath.Join(filepath.Dir(w.file), "foreign.pem")
	out, err := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc",
		"-keyout", os.DevNull, "-out", foreign, "-days", "1", "-subj", "/CN=somebody else").CombinedOutput()
	require.NoError(w.t, err, string(out))
	asProxy := "kafka.sasl.username=" + kafkaUsers + "proxy"
	for what, c := range map[string]struct {
		set  []string
		want string
	}{
		"Kafka's certificate by another authority": {[]string{asProxy, "kafka.tls.ca_file=" + foreign}, "certificate"},
		"Redis' certificate by another authority":  {[]string{asProxy, "redis.tls.ca_file=" + foreign}, "certificate"},
		"a wrong password at Kafka":                {[]string{asProxy, "kafka.sasl.password=wrong"}, "SASL"},
		"a wrong password at Redis":                {[]string{asProxy, "redis.password=wrong"}, "WRONGPASS"},
		"topics made by the proxy's user":          {nil, "not authorized"},
	} {
		args := []string{"doctor", "--role", "proxy", "--config", w.file}
		if c.set == nil {
			args = []string{"topics", "--config", w.file, "--set", asProxy, "--set", "topics.prefix=other" + w.prefix}
		}
		for _, s := range c.set {
			args = append(args, "--set", s)
		}
		path, err := builds.Tidegate()
		require.NoError(w.t, err)
		out, err := exec.Command(path, args...).CombinedOutput()
		require.Error(w.t, err, "%s was accepted:\n%s", what, out)
		require.Contains(w.t, strings.ToLower(string(out)), strings.ToLower(c.want), what)
		require.NotContains(w.t, string(out), securedPassword+"\"", what)
	}
}
