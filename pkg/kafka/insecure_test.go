package kafka_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
)

// S82: brokers on other machines want encryption and a login.
func TestS82PlainBrokersElsewhereAreRefused(t *testing.T) {
	_, ca := certificate(t)
	safe := func() kafka.Config {
		c := kafka.DefaultConfig()
		c.Brokers = []string{"127.0.0.1:9092", "kafka-1.internal:9093"}
		c.TLS = kafka.TLS{Enabled: true, CAFile: ca}
		c.SASL = kafka.SASL{Mechanism: "SCRAM-SHA-512", Username: "tidegate", Password: "pw"}
		return c
	}
	require.NoError(t, safe().Validate())
	for name, spoil := range map[string]func(*kafka.Config){
		"without encryption": func(c *kafka.Config) { c.TLS = kafka.TLS{} },
		"without a login":    func(c *kafka.Config) { c.SASL = kafka.SASL{} },
	} {
		t.Run(name, func(t *testing.T) {
			c := safe()
			spoil(&c)
			err := c.Validate()
			require.ErrorContains(t, err, name)
			require.ErrorContains(t, err, "kafka.allow_insecure")
			require.Equal(t, fault.Invalid, fault.KindOf(err))
			c.AllowInsecure = true
			require.NoError(t, c.Validate())
		})
	}
	local := kafka.DefaultConfig()
	local.Brokers = []string{"127.0.0.1:9092", "localhost:9092", "[::1]:9092"}
	require.NoError(t, local.Validate())
}
