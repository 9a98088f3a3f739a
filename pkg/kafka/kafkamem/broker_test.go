package kafkamem_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidegate/pkg/kafka"
	"tidegate/pkg/kafka/kafkamem"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("KAFKAMEM_HOLD"); dir != "" {
		hold(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// hold is another process that keeps the directory until its input ends.
func hold(dir string) {
	b, err := kafkamem.Start(kafkamem.Options{Dir: dir})
	if err != nil {
		os.Stdout.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	os.Stdout.WriteString("holding\n")
	_, _ = os.Stdin.Read(make([]byte, 1))
	_ = b.Close()
}

func start(t *testing.T, o kafkamem.Options) *kafkamem.Broker {
	t.Helper()
	b, err := kafkamem.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func config(b *kafkamem.Broker) kafka.Config {
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{b.Addr()}
	return cfg
}

// consume reads n records of a group and stops, which commits.
func consume(t *testing.T, cfg kafka.Config, topic string, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got := make(chan string, 100)
	g, err := kafka.NewGroup(cfg, kafka.GroupOptions{Group: "g", Topics: []string{topic}, Workers: 1,
		Handler: func(_ context.Context, r kafka.Record) error { got <- string(r.Value); return nil }}, nil, nil)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	var out []string
	for range n {
		select {
		case v := <-got:
			out = append(out, v)
		case <-ctx.Done():
			require.FailNow(t, "timed out", "got %v", out)
		}
	}
	cancel()
	require.NoError(t, <-done)
	require.Empty(t, got)
	return out
}

func fill(t *testing.T, cfg kafka.Config, topic string, from, to int) {
	t.Helper()
	p, err := kafka.NewProducer(cfg, kafka.ProducerOptions{}, nil, nil)
	require.NoError(t, err)
	for i := from; i < to; i++ {
		_, err := p.Publish(t.Context(), kafka.Record{Topic: topic, Key: []byte("k"), Value: []byte(strconv.Itoa(i))})
		require.NoError(t, err)
	}
	require.NoError(t, p.Close(t.Context()))
}

func ensure(t *testing.T, cfg kafka.Config, spec kafka.TopicSpec) kafka.TopicInfo {
	t.Helper()
	a, err := kafka.NewAdmin(cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	_, err = a.EnsureTopics(t.Context(), []kafka.TopicSpec{spec})
	require.NoError(t, err)
	info, err := a.DescribeTopics(t.Context(), []string{spec.Name})
	require.NoError(t, err)
	return info[0]
}

// A restart in the same directory keeps address, topics, records and offsets.
func TestRestartKeepsEverything(t *testing.T) {
	for _, durable := range []bool{false, true} {
		t.Run("durable="+strconv.FormatBool(durable), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new", "kafka")
			b, err := kafkamem.Start(kafkamem.Options{Dir: dir, Durable: durable})
			require.NoError(t, err)
			addr := b.Addr()
			info := ensure(t, config(b), kafka.TopicSpec{Name: "t"})
			require.Equal(t, int32(4), info.Partitions, "the default")
			fill(t, config(b), "t", 0, 5)
			require.Equal(t, []string{"0", "1", "2", "3", "4"}, consume(t, config(b), "t", 5))
			fill(t, config(b), "t", 5, 7)
			require.NoError(t, b.Close())
			require.NoError(t, b.Close())

			b = start(t, kafkamem.Options{Dir: dir, Durable: durable, Partitions: 9})
			require.Equal(t, addr, b.Addr())
			require.Equal(t, int32(4), ensure(t, config(b), kafka.TopicSpec{Name: "t"}).Partitions)
			require.Equal(t, []string{"5", "6"}, consume(t, config(b), "t", 2), "what was committed does not come again")
			require.Equal(t, int32(9), ensure(t, config(b), kafka.TopicSpec{Name: "new"}).Partitions)
		})
	}
}

func TestDirectoryHasOneOwner(t *testing.T) {
	dir := t.TempDir()
	b, err := kafkamem.Start(kafkamem.Options{Dir: dir})
	require.NoError(t, err)
	_, err = kafkamem.Start(kafkamem.Options{Dir: dir})
	require.ErrorContains(t, err, "another process holds the directory "+dir)
	require.NoError(t, b.Close())

	exe, err := os.Executable()
	require.NoError(t, err)
	other := exec.Command(exe)
	other.Env = append(os.Environ(), "KAFKAMEM_HOLD="+dir)
	in, err := other.StdinPipe()
	require.NoError(t, err)
	out, err := other.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	line := make([]byte, 64)
	n, err := out.Read(line)
	require.NoError(t, err)
	require.Equal(t, "holding\n", string(line[:n]))
	_, err = kafkamem.Start(kafkamem.Options{Dir: dir})
	require.ErrorContains(t, err, "another process holds the directory "+dir)
	require.NoError(t, other.Process.Kill())
	_ = in.Close()
	_ = other.Wait()
	start(t, kafkamem.Options{Dir: dir}) // a killed owner leaves no lock behind
}

func TestAddressIsTakenOrGiven(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	_, err = kafkamem.Start(kafkamem.Options{Addr: ln.Addr().String()})
	require.ErrorContains(t, err, "cannot listen on "+ln.Addr().String())

	dir := t.TempDir()
	b, err := kafkamem.Start(kafkamem.Options{Dir: dir})
	require.NoError(t, err)
	addr := b.Addr()
	require.NoError(t, b.Close())
	squatter, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	_, err = kafkamem.Start(kafkamem.Options{Dir: dir})
	require.ErrorContains(t, err, "remove "+filepath.Join(dir, "address"))
	require.NoError(t, squatter.Close())
	given := start(t, kafkamem.Options{Dir: dir, Addr: addr}) // the failure let the lock go
	require.Equal(t, addr, given.Addr())
}

// Old segments go away by the topic's own bound, at the next look.
func TestRetentionDeletes(t *testing.T) {
	b := start(t, kafkamem.Options{Dir: t.TempDir()})
	cfg := config(b)
	ensure(t, cfg, kafka.TopicSpec{Name: "t", Partitions: 1, Config: map[string]string{"retention.bytes": "1000", "segment.bytes": "2000"}})
	fill(t, cfg, "t", 0, 100)
	a, err := kafka.NewAdmin(cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	startOf := func() int64 {
		lag, err := a.Lag(t.Context(), "g", []string{"t"})
		require.NoError(t, err)
		require.EqualValues(t, 100, lag[0].End)
		return lag[0].Start
	}
	require.Zero(t, startOf())
	b.ApplyRetention()
	require.Greater(t, startOf(), int64(50))
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := kafkamem.Start(kafkamem.Options{Partitions: -1})
	require.ErrorContains(t, err, "must be positive")
	_, err = kafkamem.Start(kafkamem.Options{Dir: filepath.Join(os.DevNull, "x")})
	require.Error(t, err)
}
