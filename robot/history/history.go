// Package history remembers what each follower did last, and what he was told:
// a list in Redis of the newest few callbacks that were worked, for templates
// (.Last) and for whoever helps a follower (M8).
//
//	callback settled ─ Add ─▶ {account.openid}:history ─ Last ─▶ rules, operations
//
// It is a convenience and never a reason: a callback that was worked twice is
// there once, one that Redis did not take is missing, and nothing waits for it for
// longer than a moment. Lists are short (keep), end by themselves (ttl) and are
// sealed with the deployment's key, tied to their follower (D16).
package history

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
	"tidegate/robot/engine"
)

// Config is the section robot.history.
type Config struct {
	// Keep is how many of a follower's actions are remembered; 0 remembers none.
	Keep int `koanf:"keep"`
	// TTL is how long after the last one the list ends.
	TTL time.Duration `koanf:"ttl"`
	// Key seals the lists: 32 random bytes in base64, the same on all robots.
	Key string `koanf:"key" secret:"true"`
}

// DefaultConfig remembers nothing.
func DefaultConfig() Config { return Config{TTL: 7 * 24 * time.Hour} }

const (
	maxKeep = 100
	// budget bounds one question to Redis: the follower waits behind it.
	budget = 100 * time.Millisecond
	// Bytes of an action's texts.
	maxWhat = 64
	maxSaid = 200
)

// Validate reports the first setting that cannot work.
func (c Config) Validate() error {
	switch {
	case c.Keep < 0 || c.Keep > maxKeep:
		return fmt.Errorf("robot.history.keep %d: use 0 (remember none) to %d", c.Keep, maxKeep)
	case c.Keep == 0:
		return nil
	case c.TTL < time.Minute || c.TTL > 90*24*time.Hour:
		return fmt.Errorf("robot.history.ttl %s: use 1m to 2160h", c.TTL)
	}
	_, err := c.aead()
	return err
}

func (c Config) aead() (cipher.AEAD, error) {
	key, err := base64.StdEncoding.DecodeString(c.Key)
	if err != nil || len(key) != 32 {
		return nil, errors.New("robot.history.key: it needs 32 random bytes in base64; make them with: openssl rand -base64 32")
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Book remembers. A nil Book remembers nothing. It is safe for concurrent use.
type Book struct {
	cfg   Config
	redis *redis.Client
	aead  cipher.AEAD
	asked *prometheus.CounterVec
	bytes prometheus.Histogram
}

// New makes a book; it is nil if nothing is to be remembered.
func New(cfg Config, c *redis.Client, reg prometheus.Registerer) (*Book, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fault.Wrap(fault.Invalid, "", err)
	}
	if cfg.Keep == 0 {
		return nil, nil
	}
	if c == nil {
		return nil, fault.New(fault.Invalid, "open history", "robot.history.keep needs Redis: add the section redis")
	}
	b := &Book{cfg: cfg, redis: c}
	b.aead, _ = cfg.aead() // Validate has made it
	b.asked = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidegate_robot_history_total", Help: "Followers' last actions by what was done: added, found, none, unreadable, away (Redis), erased.",
	}, []string{"result"})
	b.bytes = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "tidegate_robot_history_action_bytes", Help: "Size of one remembered action.", Buckets: []float64{64, 128, 192, 256, 384, 512, 1024},
	})
	if reg != nil {
		reg.MustRegister(b.asked, b.bytes)
	}
	return b, nil
}

// key is {account.openid}:history.
func key(account, openid string) string { return redis.Tag(account+"."+openid, "history") }

// add: KEYS[1] list, newest first. ARGV[1] sealed action, ARGV[2] how many stay,
// ARGV[3] milliseconds that the list lives. Result: its length.
var add = redis.NewScript(`
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, ARGV[2] - 1)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return redis.call('LLEN', KEYS[1])`)

// list: KEYS[1] list. Result: its elements.
var list = redis.NewScript(`return redis.call('LRANGE', KEYS[1], 0, -1)`)

// Add remembers an action. What cannot be remembered is counted and forgotten.
func (b *Book) Add(ctx context.Context, account, openid string, a engine.Action) {
	if b == nil || openid == "" {
		return
	}
	a.What, a.Said = cut(a.What, maxWhat), cut(a.Said, maxSaid)
	text, err := json.Marshal(a)
	if err != nil {
		return // it is made of texts and numbers
	}
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	name := key(account, openid)
	//nolint:gosec // this AEAD makes a random nonce for each value itself and takes none
	sealed := b.aead.Seal(nil, nil, text, []byte(name))
	if _, err := add.Run(ctx, b.redis, []string{name}, string(sealed), b.cfg.Keep, b.cfg.TTL.Milliseconds()); err != nil {
		b.asked.WithLabelValues("away").Inc()
		return
	}
	b.bytes.Observe(float64(len(sealed)))
	b.asked.WithLabelValues("added").Inc()
}

// Last gives what the follower did, the newest first, each callback once. Errors
// are of kind Unavailable.
func (b *Book) Last(ctx context.Context, account, openid string) ([]engine.Action, error) {
	if b == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	name := key(account, openid)
	answer, err := list.Run(ctx, b.redis, []string{name})
	if err != nil {
		b.asked.WithLabelValues("away").Inc()
		return nil, fault.New(fault.Unavailable, "read history", "%w", err)
	}
	all, _ := answer.([]any)
	out := make([]engine.Action, 0, len(all))
	seen := map[string]bool{}
	for _, e := range all {
		sealed, _ := e.(string)
		a, err := b.open(name, sealed)
		if err != nil {
			b.asked.WithLabelValues("unreadable").Inc()
			continue
		}
		if !seen[a.ID] {
			seen[a.ID] = true
			out = append(out, a)
		}
	}
	if len(out) == 0 {
		b.asked.WithLabelValues("none").Inc()
	} else {
		b.asked.WithLabelValues("found").Inc()
	}
	return out, nil
}

func (b *Book) open(name, sealed string) (a engine.Action, err error) {
	text, err := b.aead.Open(nil, nil, []byte(sealed), []byte(name))
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(text, &a)
}

// Erase forgets a follower; it reports whether there was anything.
func (b *Book) Erase(ctx context.Context, account, openid string) (bool, error) {
	if b == nil {
		return false, nil
	}
	there, err := Erase(ctx, b.redis, account, openid)
	if err == nil && there {
		b.asked.WithLabelValues("erased").Inc()
	}
	return there, err
}

// Erase forgets a follower also where nothing is remembered any more.
func Erase(ctx context.Context, c *redis.Client, account, openid string) (bool, error) {
	return c.Del(ctx, key(account, openid))
}

// cut shortens a text to n bytes without splitting a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
