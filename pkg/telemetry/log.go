// Package telemetry is what every part uses to be seen: the zap logger, the
// Prometheus registry, the keyed hash that stands for an openid, and the
// operations listener.
//
// Nothing personal leaves through it. An openid appears only as a keyed hash:
// lines about one follower can be joined, and nobody without the key can tell
// who that is. Message bodies, tokens and secrets never appear.
package telemetry

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// LogConfig says how to log.
type LogConfig struct {
	// Level is debug, info, warn or error.
	Level string `koanf:"level"`
	// Format is json or console.
	Format string `koanf:"format"`
	// HashKey keys the hash of openids; empty takes a random one, so that
	// hashes then differ from one start to the next.
	HashKey string `koanf:"hash_key" secret:"true"`
}

// DefaultLogConfig is JSON at info.
func DefaultLogConfig() LogConfig { return LogConfig{Level: "info", Format: "json"} }

// Validate checks level and format.
func (c LogConfig) Validate() error {
	if _, err := zapcore.ParseLevel(c.Level); err != nil {
		return fmt.Errorf("log.level %q: use debug, info, warn or error", c.Level)
	}
	if c.Format != "json" && c.Format != "console" {
		return fmt.Errorf("log.format %q: use json or console", c.Format)
	}
	return nil
}

// NewLogger makes the process's logger. It samples, so that an outage cannot
// fill the disk that the spool needs (T61): per second and message the first
// 20 lines pass and then every 100th.
func NewLogger(c LogConfig) (*zap.Logger, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	level, _ := zapcore.ParseLevel(c.Level)
	z := zap.NewProductionConfig()
	if c.Format == "console" {
		z = zap.NewDevelopmentConfig()
		z.Development = false
	}
	z.Level = zap.NewAtomicLevelAt(level)
	z.Sampling = &zap.SamplingConfig{Initial: 20, Thereafter: 100}
	z.DisableStacktrace = true
	z.OutputPaths = []string{"stderr"}
	z.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	return z.Build()
}

// Hasher turns an openid into something that may be logged.
type Hasher struct{ key []byte }

// NewHasher makes a hasher with a key.
func NewHasher(key []byte) Hasher { return Hasher{key: key} }

// OpenID gives the first 12 hexadecimal digits of HMAC-SHA256(key, id).
func (h Hasher) OpenID(id string) string {
	m := hmac.New(sha256.New, h.key)
	m.Write([]byte(id))
	return hex.EncodeToString(m.Sum(nil))[:12]
}
