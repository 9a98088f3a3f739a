package kafka_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
)

func TestConfigSaysWhatToDo(t *testing.T) {
	notPEM := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(notPEM, []byte("x"), 0o600))
	for name, c := range map[string]struct {
		change func(*kafka.Config)
		field  string
		says   string
	}{
		"no broker":      {func(c *kafka.Config) { c.Brokers = nil }, "brokers", "at least one host:port"},
		"no port":        {func(c *kafka.Config) { c.Brokers = []string{"kafka"} }, "brokers", "kafka-1:9092"},
		"version":        {func(c *kafka.Config) { c.Version = "latest" }, "version", "write for instance 3.6.0"},
		"old version":    {func(c *kafka.Config) { c.Version = "1.1.0" }, "version", "2.4.0 is the oldest"},
		"client id":      {func(c *kafka.Config) { c.ClientID = "a b" }, "client_id", "only letters"},
		"time-out":       {func(c *kafka.Config) { c.DialTimeout = -1 }, "dial_timeout", "must be positive"},
		"mechanism":      {func(c *kafka.Config) { c.SASL.Mechanism = "GSSAPI" }, "sasl.mechanism", "SCRAM-SHA-512"},
		"user alone":     {func(c *kafka.Config) { c.SASL.Username = "u" }, "sasl.mechanism", "without a mechanism"},
		"no password":    {func(c *kafka.Config) { c.SASL = kafka.SASL{Mechanism: "PLAIN", Username: "u"} }, "sasl.username", "must both be set"},
		"tls off":        {func(c *kafka.Config) { c.TLS.CAFile = "x" }, "tls.enabled", "set it to true"},
		"no ca":          {func(c *kafka.Config) { c.TLS = kafka.TLS{Enabled: true, CAFile: "/none"} }, "tls.ca_file", "cannot be read"},
		"ca not PEM":     {func(c *kafka.Config) { c.TLS = kafka.TLS{Enabled: true, CAFile: notPEM} }, "tls.ca_file", "no PEM certificate"},
		"cert alone":     {func(c *kafka.Config) { c.TLS = kafka.TLS{Enabled: true, CertFile: "x"} }, "tls.cert_file", "belong together"},
		"pair not there": {func(c *kafka.Config) { c.TLS = kafka.TLS{Enabled: true, CertFile: "x", KeyFile: "y"} }, "tls.cert_file", "cannot be used"},
	} {
		cfg := kafka.DefaultConfig()
		require.NoError(t, cfg.Validate())
		c.change(&cfg)
		err := cfg.Validate()
		require.Error(t, err, name)
		require.Equal(t, fault.Invalid, fault.KindOf(err), name)
		require.Equal(t, c.field, fault.FieldOf(err), name)
		require.ErrorContains(t, err, c.says, name)
		_, err = kafka.NewProducer(cfg, kafka.ProducerOptions{}, nil, nil)
		require.Error(t, err, name)
		_, err = kafka.NewAdmin(cfg)
		require.Error(t, err, name)
	}
	require.NoError(t, kafka.Config{Brokers: []string{"[::1]:9092"}}.Validate(), "everything but the brokers has a default")
}

func TestOptionsSayWhatToDo(t *testing.T) {
	good := kafka.GroupOptions{Group: "g", Handler: func(ctx context.Context, r kafka.Record) error { return nil }}
	require.NoError(t, good.Validate())
	for says, change := range map[string]func(*kafka.GroupOptions){
		"has no name":                  func(o *kafka.GroupOptions) { o.Group = "" },
		"exactly one of":               func(o *kafka.GroupOptions) { o.Handler = nil },
		"no option may be negative":    func(o *kafka.GroupOptions) { o.Workers = -1 },
		"below the high mark":          func(o *kafka.GroupOptions) { o.QueueHigh, o.QueueLow = 10, 10 },
		"not be shorter":               func(o *kafka.GroupOptions) { o.RetryMin, o.RetryMax = time.Second, time.Millisecond },
		"at least drain_timeout + 2s":  func(o *kafka.GroupOptions) { o.DrainTimeout, o.RebalanceTimeout = 5*time.Second, 6*time.Second },
		"too short":                    func(o *kafka.GroupOptions) { o.SessionTimeout = time.Second },
		"exactly one of Handler":       func(o *kafka.GroupOptions) { o.Batch = func(context.Context, []kafka.Record) error { return nil } },
		"leave it out for its default": func(o *kafka.GroupOptions) { o.MaxAhead = -1 },
	} {
		o := good
		change(&o)
		_, err := kafka.NewGroup(kafka.DefaultConfig(), o, nil, nil)
		require.ErrorContains(t, err, says)
	}
	_, err := kafka.NewProducer(kafka.DefaultConfig(), kafka.ProducerOptions{MaxInFlight: -1}, nil, nil)
	require.ErrorContains(t, err, "negative")
}

// A password must not come out of an error.
func TestPasswordStaysInside(t *testing.T) {
	cfg := kafka.DefaultConfig()
	cfg.SASL = kafka.SASL{Mechanism: "NONE", Username: "u", Password: "hunter2"}
	require.NotContains(t, cfg.Validate().Error(), "hunter2")
}
