package alarm

import (
	"context"
	"time"

	"tidegate/pkg/redis"
)

// The cluster's memory of one alarm: two keys whose tag is made of its name and
// subject, so that alarms spread over a cluster's slots.
//
//	{alarm:NAME:SUBJECT}:seen  hash: process -> when its word lapses (ms)
//	{alarm:NAME:SUBJECT}:said  when somebody was told last (ms)
//
// Both live for wordLife unless a process gives its word again.
const (
	assertEvery = 30 * time.Second
	wordLife    = 3 * assertEvery
	// askBudget bounds one question: alarms are told late rather than never.
	askBudget = 500 * time.Millisecond
)

// KEYS: seen, said. ARGV: process, life (ms), pause between reminders (ms), how
// long ago this process told by itself (ms; -1 never). Result: 1 if this process
// has to tell. Times are the server's.
var assertScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local life, pause, ago = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now + life))
redis.call('PEXPIRE', KEYS[1], life)
local said = tonumber(redis.call('GET', KEYS[2]) or '')
local tell = 0
if not said and ago >= 0 then
  said = now - ago
end
if not said or now - said >= pause then
  said, tell = now, 1
end
redis.call('SET', KEYS[2], string.format('%.0f', said), 'PX', life)
return tell`)

// KEYS: seen, said. ARGV: process, 1 if this process knows that somebody was
// told. Result: 1 if nobody sees the condition any more and that has to be told.
// A word that has lapsed is nobody's.
var leaveScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('HDEL', KEYS[1], ARGV[1])
local seen = redis.call('HGETALL', KEYS[1])
for i = 2, #seen, 2 do
  if tonumber(seen[i]) > now then
    return 0
  end
end
local said = redis.call('GET', KEYS[2])
redis.call('DEL', KEYS[1], KEYS[2])
if said or ARGV[2] == '1' then
  return 1
end
return 0`)

// once asks the cluster whether this process is the one to tell.
type once struct {
	redis *redis.Client
	token string // this process, also among those of the same node
}

func (o *once) assert(ctx context.Context, key id, repeatEvery, ago time.Duration) (tell bool, err error) {
	millis := int64(-1)
	if ago >= 0 {
		millis = ago.Milliseconds()
	}
	return o.run(ctx, assertScript, key, o.token, wordLife.Milliseconds(), repeatEvery.Milliseconds(), millis)
}

func (o *once) leave(ctx context.Context, key id, known bool) (tell bool, err error) {
	flag := 0
	if known {
		flag = 1
	}
	return o.run(ctx, leaveScript, key, o.token, flag)
}

func (o *once) run(ctx context.Context, s *redis.Script, key id, args ...any) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askBudget)
	defer cancel()
	seen, said := keys(key)
	v, err := s.Run(ctx, o.redis, []string{seen, said}, args...)
	n, _ := v.(int64)
	return n == 1, err
}

func keys(key id) (seen, said string) {
	tag := redis.Key("alarm", key.name, key.subject)
	return redis.Tag(tag, "seen"), redis.Tag(tag, "said")
}
