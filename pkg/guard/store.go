package guard

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
)

// store is what the nodes share: single calls to Redis, each within the budget.
type store struct {
	redis   *redis.Client
	scripts scripts
	backend string
	secret  []byte
	cfg     Config
	// clock replaces the server's clock in tests; nothing outside them sets it.
	clock func() time.Time
}

// place is where a value lies: its resource, and the variant within it. Both are
// digests, so that keys are short, hold nothing personal and choose no slot.
type place struct {
	resource string
	variant  string
	personal bool
	person   string // the digest of whom the value concerns; "" if the key names nobody
}

func (p place) id() string { return p.resource + "/" + p.variant }

// placeOf finds the place of a key. With a deployment key the digest is keyed,
// so that nobody finds an openid by trying all of them.
func (s *store) placeOf(key string, personal bool) place {
	resource, variant, _ := strings.Cut(key, "\x00")
	kind, person := "shared\x00", ""
	if personal {
		kind, person = "personal\x00", s.personOf(resource)
	}
	return place{s.digest(kind + resource), s.digest(kind + resource + "\x00" + variant), personal, person}
}

func (s *store) digest(text string) string {
	var sum []byte
	if s.secret != nil {
		h := hmac.New(sha256.New, s.secret)
		h.Write([]byte(s.backend + "\x00" + text))
		sum = h.Sum(nil)
	} else {
		h := sha256.Sum256([]byte(s.backend + "\x00" + text))
		sum = h[:]
	}
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// The keys, with the deployment's prefix in front: {guard/<backend>/<resource>}:…
// for a value and its lease, {guard/<backend>}:… for what all resources share.
func (s *store) keys(p place) []string {
	tag := "guard/" + s.backend + "/" + p.resource
	return []string{redis.Tag(tag, "value", p.variant), redis.Tag(tag, "lease", p.variant), redis.Tag(tag, "resource")}
}

func (s *store) tag() string { return "guard/" + s.backend }

func (s *store) channel() string { return redis.Key("guard", s.backend, "changes") }

func (s *store) now() string {
	if s.clock == nil {
		return ""
	}
	return strconv.FormatInt(s.clock().UnixMicro(), 10)
}

// answer is what look found.
type answer struct {
	what  string
	body  []byte
	has   bool // there is a body
	age   time.Duration
	fence int64
	left  time.Duration
}

// question is how look asks.
type question struct {
	owner string
	what  string // take, look or peek
	// started is when protection began, on the server's clock in µs; life is what
	// a value from before lives from then on.
	started int64
	life    time.Duration
	full    bool
	waits   int64 // the server's time until which the answer is waited for, or 0
}

func (s *store) look(ctx context.Context, p place, q question) (answer, error) {
	v, err := s.run(ctx, s.scripts.look, s.keys(p), s.now(), q.owner, s.cfg.TokenTimeout.Milliseconds(), q.what,
		s.cfg.StaleGrace.Microseconds(), q.started, q.life.Microseconds(), flag(q.full), s.cfg.keep().Milliseconds(), q.waits)
	if err != nil {
		return answer{}, fmt.Errorf("look at a resource of %s: %w", s.backend, err)
	}
	return parseAnswer(v)
}

func parseAnswer(v any) (answer, error) {
	list, _ := v.([]any)
	if len(list) == 0 {
		return answer{}, unexpected("look", v)
	}
	a := answer{what: str(list[0])}
	rest := list[1:]
	switch a.what {
	case "WAIT":
		a.left = time.Duration(num(rest, 0)) * time.Millisecond
	case "LEASE":
		a.fence = num(rest, 0)
	case "FAIL":
		a.left = time.Duration(num(rest, 0)) * time.Microsecond
		rest = rest[min(1, len(rest)):]
		fallthrough
	case "HIT", "STALE":
		if len(rest) >= 3 {
			a.body, a.has = []byte(str(rest[0])), true
			a.age, a.fence = time.Duration(num(rest, 1))*time.Microsecond, num(rest, 2)
		}
	}
	return a, nil
}

// publish writes a value. An empty owner means that it was fetched without a
// lease and that fence is a time before its fetch began. It reports false if the
// value must not be used any more: something newer is there, or an invalidation.
func (s *store) publish(ctx context.Context, p place, owner string, fence int64, body []byte, age time.Duration, full bool) (fresh bool, err error) {
	v, err := s.run(ctx, s.scripts.publish, s.keys(p), s.now(), owner, fence, body, s.cfg.TTL.Microseconds(), max(age, 0).Microseconds(),
		s.cfg.keep().Milliseconds(), s.channel(), p.id(), flag(full))
	if err != nil {
		return false, fmt.Errorf("publish a resource of %s: %w", s.backend, err)
	}
	return str(v) != "STALE", nil
}

// The marks that settle may leave.
const (
	noMark     = ""
	failedMark = "e"
	aloneMark  = "u"
)

// settle ends a lease without a value.
func (s *store) settle(ctx context.Context, p place, owner string, fence int64, mark string, life time.Duration) error {
	if life <= 0 {
		mark = noMark
	}
	_, err := s.run(ctx, s.scripts.settle, s.keys(p), s.now(), owner, fence, mark, life.Microseconds(),
		s.cfg.keep().Milliseconds(), s.channel(), p.id())
	if err != nil {
		return fmt.Errorf("give up a lease of %s: %w", s.backend, err)
	}
	return nil
}

// invalidate voids every value of the resource that is fetched or being fetched.
// fence, if it is not 0, must be that of the value.
func (s *store) invalidate(ctx context.Context, p place, fence int64) (done bool, err error) {
	only := ""
	if fence != 0 {
		only = strconv.FormatInt(fence, 10)
	}
	v, err := s.run(ctx, s.scripts.invalidate, s.keys(p), s.now(), s.cfg.keep().Milliseconds(), s.channel(), p.resource, only)
	if err != nil {
		return false, fmt.Errorf("invalidate a resource of %s: %w", s.backend, err)
	}
	n, _ := v.(int64)
	return n == 1, nil
}

// nodeLife is how long a node counts after its last beat.
const nodeLife = 3 * time.Second

// pulse is the cluster as a beat found it.
type pulse struct {
	at        int64 // the server's time in µs, not later than the answer
	started   int64 // begin of protection, 0 without
	left      time.Duration
	nodes     int
	resources int
}

func (s *store) beat(ctx context.Context, node string, raise, renew bool, used []string) (pulse, error) {
	keys := []string{redis.Tag(s.tag(), "mode"), redis.Tag(s.tag(), "nodes"), redis.Tag(s.tag(), "resources")}
	args := []any{s.now(), node, flag(raise), flag(renew), s.cfg.ExitHold.Milliseconds(), nodeLife.Microseconds(), s.cfg.keep().Milliseconds()}
	for _, id := range used {
		args = append(args, id)
	}
	v, err := s.run(ctx, s.scripts.beat, keys, args...)
	if err != nil {
		return pulse{}, fmt.Errorf("beat of %s: %w", s.backend, err)
	}
	list, _ := v.([]any)
	if len(list) != 5 {
		return pulse{}, unexpected("beat", v)
	}
	return pulse{
		at: num(list, 0), started: num(list, 1), left: time.Duration(num(list, 2)) * time.Millisecond,
		nodes: int(num(list, 3)), resources: int(num(list, 4)),
	}, nil
}

func (s *store) run(ctx context.Context, script *redis.Script, keys []string, args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Budget)
	defer cancel()
	return script.Run(ctx, s.redis, keys, args...)
}

func unexpected(op string, v any) error {
	return fault.New(fault.Internal, "guard "+op, "unexpected reply of %T", v)
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

func str(v any) string { s, _ := v.(string); return s }

// num reads the numbers of a script's reply: small ones are integers, fences and
// times are text.
func num(list []any, i int) int64 {
	if i >= len(list) {
		return 0
	}
	switch n := list[i].(type) {
	case int64:
		return n
	case string:
		v, _ := strconv.ParseInt(n, 10, 64) // '' is 0: none
		return v
	}
	return 0
}
