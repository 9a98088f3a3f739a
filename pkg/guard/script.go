package guard

import (
	"strings"

	"tidegate/pkg/redis"
)

// The scripts of a resource share three keys, all with the resource's tag:
//
//	KEYS[1] hash, the value of one variant: b body, x end of its life, t when it
//	        was read, f its fence, e end of a failure mark, u end of "not shared"
//	KEYS[2] string, its lease: <owner>:<fence>, with the life of the lease
//	KEYS[3] hash, the resource: n the last fence given, f the fence of the last
//	        invalidation
//
// Times are the server's, in microseconds. ARGV[1] is the time, or ” for now.
// A fence is at least the server's time, so that fences also rise when the data
// were lost, and the time before a fetch began is a fence for its value.
const begin = `
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local function text(n) return string.format('%.0f', n) end
local function field(key, name) return tonumber(redis.call('HGET', key, name) or '0') end
`

// look: ARGV 2 owner, 3 life of a lease in ms, 4 what: 'take' the lease if it is
// free, 'look' only, 'peek' for a stale value, 5 grace in µs, 6 begin of
// protection or 0, 7 life from there in µs, 8 '1' if no resource may be added,
// 9 life of the hashes in ms, 10 the time after which nobody waits for a lease any
// more, or 0: a question that was held up on its way must not leave a lease that
// nobody has.
// Result: {HIT, body, age, fence} | {FAIL, µs left[, body, age, fence]} |
// {STALE, body, age, fence} | {NONE} | {ALONE} | {FULL} | {WAIT, ms left} |
// {FREE} | {LEASE, fence}. The same owner gets its lease again, after a lost reply.
const lookText = begin + `
local v = redis.call('HMGET', KEYS[1], 'b', 'x', 't', 'f', 'e', 'u')
local last, gone = field(KEYS[3], 'n'), field(KEYS[3], 'f')
local x, read, fence = tonumber(v[2] or '0'), tonumber(v[3] or '0'), tonumber(v[4] or '0')
local good = v[1] and fence > gone
local started = tonumber(ARGV[6])
if good and started > 0 and read < started then x = math.max(x, started + tonumber(ARGV[7])) end
if good and x > now then return {'HIT', v[1], now - read, text(fence)} end
local stale = good and x + tonumber(ARGV[5]) > now
if ARGV[4] == 'peek' then
  if stale then return {'STALE', v[1], now - read, text(fence)} end
  return {'NONE'}
end
local failed = tonumber(v[5] or '0')
if failed > now then
  if stale then return {'FAIL', failed - now, v[1], now - read, text(fence)} end
  return {'FAIL', failed - now}
end
if tonumber(v[6] or '0') > now then return {'ALONE'} end
local lease = redis.call('GET', KEYS[2])
if lease then
  local owner, held = string.match(lease, '^(.*):(%d+)$')
  if owner == ARGV[2] then return {'LEASE', held} end
  return {'WAIT', redis.call('PTTL', KEYS[2])}
end
if ARGV[4] ~= 'take' then return {'FREE'} end
if ARGV[8] == '1' and redis.call('EXISTS', KEYS[1]) == 0 then return {'FULL'} end
local waits = tonumber(ARGV[10])
if waits > 0 and now > waits then return {'WAIT', 50} end
local mine = text(math.max(last + 1, gone + 1, fence + 1, now))
redis.call('SET', KEYS[2], ARGV[2] .. ':' .. mine, 'PX', ARGV[3])
redis.call('HSET', KEYS[3], 'n', mine)
redis.call('PEXPIRE', KEYS[3], ARGV[9])
return {'LEASE', mine}`

// announce tells all nodes that something about the resource changed. The
// channel has the deployment's prefix, as the keys have.
const announce = `
local function announce(channel, what)
  redis.call('PUBLISH', string.match(KEYS[1], '^[^{]*') .. channel, what)
end
local function drop(owner, fence, channel, what)
  if owner == '' or redis.call('GET', KEYS[2]) ~= owner .. ':' .. fence then return false end
  redis.call('DEL', KEYS[2])
  announce(channel, what)
  return true
end
local function prolong(life)
  redis.call('PEXPIRE', KEYS[1], life)
  redis.call('PEXPIRE', KEYS[3], life)
end
`

// publish: ARGV 2 owner, or ” for a value that was fetched without a lease,
// 3 fence, 4 body, 5 life in µs, 6 µs since it was read, 7 life of the hashes in
// ms, 8 channel, 9 what to announce, 10 '1' if no resource may be added.
// Result: 'OK', 'STALE' (then the lease is given up as well: nobody need wait
// for its end) or 'FULL'.
const publishText = begin + announce + `
local fence = tonumber(ARGV[3])
local stale = fence <= math.max(field(KEYS[1], 'f'), field(KEYS[3], 'f')) --fence
if ARGV[2] == '' and fence > now then stale = true end -- the clock stepped back since
if stale then
  drop(ARGV[2], ARGV[3], ARGV[8], ARGV[9])
  return 'STALE'
end
if ARGV[2] == '' and ARGV[10] == '1' and redis.call('EXISTS', KEYS[1]) == 0 then return 'FULL' end
local read = now - tonumber(ARGV[6])
redis.call('HSET', KEYS[1], 'b', ARGV[4], 'x', text(read + tonumber(ARGV[5])), 't', text(read), 'f', ARGV[3])
redis.call('HDEL', KEYS[1], 'e', 'u')
prolong(ARGV[7])
if not drop(ARGV[2], ARGV[3], ARGV[8], ARGV[9]) then announce(ARGV[8], ARGV[9]) end
return 'OK'`

// settle ends a lease without a value: ARGV 2 owner, 3 fence, 4 the mark to
// leave ('e', 'u' or ”), 5 its life in µs, 6 life of the hashes in ms,
// 7 channel, 8 what to announce. Result: 1, or 0 if the lease is not ours.
const settleText = begin + announce + `
if not drop(ARGV[2], ARGV[3], ARGV[7], ARGV[8]) then return 0 end
if ARGV[4] ~= '' then
  redis.call('HSET', KEYS[1], ARGV[4], text(now + tonumber(ARGV[5])))
  prolong(ARGV[6])
end
return 1`

// invalidate: ARGV 2 life of the hashes in ms, 3 channel, 4 what to announce,
// 5 ” or the fence that the value must have. Result: 1, or 0 if it has another.
// A lease that is out stays, so that the back end is not asked twice at once; its
// value will be refused and it is given up then.
const invalidateText = begin + announce + `
if ARGV[5] ~= '' and redis.call('HGET', KEYS[1], 'f') ~= ARGV[5] then return 0 end
local gone = text(math.max(field(KEYS[3], 'n'), field(KEYS[3], 'f'), field(KEYS[1], 'f'), now))
redis.call('HSET', KEYS[3], 'f', gone, 'n', gone)
redis.call('HDEL', KEYS[1], 'b', 'x', 't', 'u')
redis.call('PEXPIRE', KEYS[3], ARGV[2])
announce(ARGV[3], ARGV[4])
return 1`

// beat: KEYS[1] the mode (when protection began), KEYS[2] sorted set of nodes by
// their last beat, KEYS[3] sorted set of resources by the end of their hashes.
// ARGV 2 node, 3 '1' to begin protection, 4 '1' to go on with it, 5 ms that it
// lasts without that, 6 life of a node in µs, 7 life of the hashes in ms, then
// resources that were used. Result: {time, begin or ”, ms left, nodes, resources}.
const beatText = begin + `
local mode = redis.call('GET', KEYS[1])
if ARGV[3] == '1' and not mode then
  mode = text(now)
  redis.call('SET', KEYS[1], mode, 'PX', ARGV[5])
elseif mode and (ARGV[3] == '1' or ARGV[4] == '1') then
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
end
local left = 0
if mode then left = redis.call('PTTL', KEYS[1]) end
redis.call('ZADD', KEYS[2], text(now), ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', text(now - ARGV[6]))
redis.call('PEXPIRE', KEYS[2], text(math.ceil(ARGV[6] / 1000)))
for i = 8, #ARGV do redis.call('ZADD', KEYS[3], text(now + ARGV[7] * 1000), ARGV[i]) end
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', text(now))
redis.call('PEXPIRE', KEYS[3], ARGV[7])
return {text(now), mode or '', left, redis.call('ZCARD', KEYS[2]), redis.call('ZCARD', KEYS[3])}`

// scripts are the texts made ready.
type scripts struct{ look, publish, settle, invalidate, beat, keep, erase *redis.Script }

// newScripts makes them; fenced is false only in the test that shows that it can
// tell a guard without fences from one with them.
func newScripts(fenced bool) scripts {
	publish := publishText
	if !fenced {
		publish = strings.Replace(publish, "local stale = fence <= math.max(field(KEYS[1], 'f'), field(KEYS[3], 'f')) --fence", "local stale = false", 1)
	}
	return scripts{
		look: redis.NewScript(lookText), publish: redis.NewScript(publish), settle: redis.NewScript(settleText),
		invalidate: redis.NewScript(invalidateText), beat: redis.NewScript(beatText),
		keep: redis.NewScript(keepText), erase: redis.NewScript(eraseText),
	}
}
