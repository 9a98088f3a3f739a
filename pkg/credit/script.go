package credit

import "tidegate/pkg/redis"

// All scripts have one key, the follower's hash:
//
//	at, id  when the newest act that counts was received (ms), and its callback
//	left    messages that are left; -1 is no limit
//	till    when the window ends (ms)
//	debt    messages taken for an act that was not noted yet
//
// Times come from the callers: windows are WeChat's, seconds do not matter.

// note opens a window. ARGV: received, callback, count, until, time to live (ms).
// Result: 1, or 0 for an act that is known or late.
var note = redis.NewScript(`
local h = redis.call('HMGET', KEYS[1], 'at', 'id', 'left', 'till', 'debt')
local at, left, till, debt = tonumber(h[1] or '-1'), tonumber(h[3] or '0'), tonumber(h[4] or '0'), tonumber(h[5] or '0')
local received, count, ends = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
if received < at or received == at and h[2] == ARGV[2] then return 0 end
if count == 0 then
  if at >= 0 then redis.call('HSET', KEYS[1], 'at', ARGV[1], 'id', ARGV[2]) end
  return 1
end
if till <= received then left = 0 end
if count < 0 or left < 0 then
  left = -1
else
  left = math.max(0, math.max(left, count) - debt)
end
till = math.max(till, ends)
redis.call('HSET', KEYS[1], 'at', ARGV[1], 'id', ARGV[2], 'left', left, 'till', string.format('%.0f', till), 'debt', 0)
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', till - received + tonumber(ARGV[5])))
return 1`)

// take takes messages. ARGV: now, how many, when the act that they answer was
// received (ms). Result: {verdict, at, till}; till is 0 where no end is known.
var take = redis.NewScript(`
local h = redis.call('HMGET', KEYS[1], 'at', 'left', 'till')
if not h[1] then return {'unknown', '-1', '0'} end
local now, n, cause = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if cause > tonumber(h[1]) then
  redis.call('HINCRBY', KEYS[1], 'debt', n)
  return {'unknown', h[1], '0'}
end
if now >= tonumber(h[3] or '0') then return {'closed', h[1], h[3] or '0'} end
local left = tonumber(h[2] or '0')
if left < 0 then return {'granted', h[1], h[3]} end
if left < n then return {'used_up', h[1], h[3]} end
redis.call('HINCRBY', KEYS[1], 'left', -n)
return {'granted', h[1], h[3]}`)

// back gives back what was not used. ARGV: at of the ticket, how many, verdict.
var back = redis.NewScript(`
local h = redis.call('HMGET', KEYS[1], 'at', 'left', 'debt')
if h[1] ~= ARGV[1] then return 0 end
local n = tonumber(ARGV[2])
if ARGV[3] == 'unknown' then
  redis.call('HSET', KEYS[1], 'debt', math.max(0, tonumber(h[3] or '0') - n))
elseif tonumber(h[2] or '0') >= 0 then
  redis.call('HINCRBY', KEYS[1], 'left', n)
end
return 1`)

// learn takes over what WeChat said. ARGV: at of the ticket, 'closed' or
// 'used_up', now, when the act was received, time to live (ms). It changes nothing
// once the follower has done something else.
var learn = redis.NewScript(`
local at = redis.call('HGET', KEYS[1], 'at')
if at and at ~= ARGV[1] then return 0 end
if not at then
  redis.call('HSET', KEYS[1], 'at', ARGV[4], 'id', '', 'debt', 0)
end
redis.call('HSET', KEYS[1], 'left', 0)
if ARGV[2] == 'closed' or not at then redis.call('HSET', KEYS[1], 'till', ARGV[3]) end
if not at then redis.call('PEXPIRE', KEYS[1], ARGV[5]) end
return 1`)
