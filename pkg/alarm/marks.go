package alarm

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"tidegate/pkg/redis"
)

// The cluster's memory of everything that fires: one hash, so that a process
// which has just started can ask for what it cannot know the names of.
//
//	{alarms}:marks  hash: alarm -> when it was asserted last (ms), blank, mark
//
// What nobody has asserted for markKeep is forgotten.
const markKeep = 7 * 24 * time.Hour

// mark is what is needed to tell the end of an alarm that another process saw.
type mark struct {
	Name     string    `json:"name"`
	Subject  string    `json:"subject"`
	Severity Severity  `json:"severity"`
	Text     string    `json:"text"`
	TextZH   string    `json:"text_zh,omitempty"`
	Local    bool      `json:"local,omitempty"`
	Since    time.Time `json:"since"`
	Role     string    `json:"role,omitempty"` // who has asserted it last
	Host     string    `json:"host,omitempty"`
	Node     string    `json:"node,omitempty"`
}

// found is a mark as it stands in the hash.
type found struct {
	field, value string
	mark         mark
}

// KEYS: marks. ARGV: field, mark, life (ms).
var markScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now) .. ' ' .. ARGV[2])
return redis.call('PEXPIRE', KEYS[1], ARGV[3])`)

// KEYS: marks. ARGV: field, the value that is expected there or nothing. Result:
// 1 if this removed it.
var takeScript = redis.NewScript(`
if ARGV[2] ~= '' and redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return 0
end
return redis.call('HDEL', KEYS[1], ARGV[1])`)

// KEYS: marks. ARGV: life of a word (ms), how long marks are kept (ms). Result:
// fields and values of the marks that nobody asserts any more. Those that are
// too old are removed.
var lapsedScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local all, out = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do
  local age = now - (tonumber(string.match(all[i + 1], '^%d+') or '') or 0)
  if age >= tonumber(ARGV[2]) then
    redis.call('HDEL', KEYS[1], all[i])
  elseif age >= tonumber(ARGV[1]) then
    out[#out + 1] = all[i]
    out[#out + 1] = all[i + 1]
  end
end
return out`)

func marksKey() string { return redis.Tag("alarms", "marks") }

// field is the identity of an alarm in the hash. One that is a process's own is
// that of its role on its host, which a restart does not change.
func (m mark) field() string {
	if m.Local {
		return redis.Key(m.Name, m.Subject, m.Host, m.Role)
	}
	return redis.Key(m.Name, m.Subject)
}

func (o *once) ask(ctx context.Context, s *redis.Script, args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, askBudget)
	defer cancel()
	return s.Run(ctx, o.redis, []string{marksKey()}, args...)
}

// mark says that the alarm fires, now.
func (o *once) mark(ctx context.Context, m mark) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = o.ask(ctx, markScript, m.field(), string(text), markKeep.Milliseconds())
	return err
}

// take removes a mark; with a value only if it still is that one. won is true
// for one caller.
func (o *once) take(ctx context.Context, field, value string) (won bool, err error) {
	v, err := o.ask(ctx, takeScript, field, value)
	n, _ := v.(int64)
	return n == 1, err
}

// lapsed lists the marks that nobody asserts any more. What cannot be read is
// another release's, and left to it.
func (o *once) lapsed(ctx context.Context) ([]found, error) {
	v, err := o.ask(ctx, lapsedScript, wordLife.Milliseconds(), markKeep.Milliseconds())
	if err != nil {
		return nil, err
	}
	flat, _ := v.([]any)
	var out []found
	for i := 0; i+1 < len(flat); i += 2 {
		var f found
		f.field, _ = flat[i].(string)
		f.value, _ = flat[i+1].(string)
		_, text, _ := strings.Cut(f.value, " ")
		if json.Unmarshal([]byte(text), &f.mark) == nil && f.mark.Name != "" {
			out = append(out, f)
		}
	}
	return out, nil
}
