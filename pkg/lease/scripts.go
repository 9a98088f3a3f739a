package lease

import "tidegate/pkg/redis"

// The number scripts share three keys:
//
//	KEYS[1] sorted set: number -> server time in ms at which it is free
//	KEYS[2] hash: number -> token of the holder
//	KEYS[3] hash: number -> holder's clock in ms that its ids cannot have passed,
//	        and number:before -> the same of the holder before
//
// A number that was never used is in none of them.

// takeNumber: ARGV token, life in ms, count, where to begin among unused numbers
// (random, so that after a loss of all data two nodes hardly meet), the own
// clock's time beyond which the holder will not use the number.
// Result: {number, last use by the holder before, 0 if none} or {} if all are
// taken. The same token gets the same answer again, after a lost reply.
var takeNumber = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local count = tonumber(ARGV[3])
local pick, last = nil, '0'

local owners = redis.call('HGETALL', KEYS[2])
for i = 1, #owners, 2 do
  if owners[i + 1] == ARGV[1] then
    pick = owners[i]
    last = redis.call('HGET', KEYS[3], pick .. ':before') or '0'
  end
end
if not pick and redis.call('ZCARD', KEYS[1]) < count then
  for i = 0, count - 1 do
    local n = string.format('%d', (tonumber(ARGV[4]) + i) % count)
    if not redis.call('ZSCORE', KEYS[1], n) then pick = n break end
  end
end
if not pick then
  local free = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
  for _, n in ipairs(free) do
    if tonumber(n) < count then
      pick, last = n, redis.call('HGET', KEYS[3], n) or '0'
      break
    end
  end
end
if not pick then return {} end
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), pick)
redis.call('HSET', KEYS[2], pick, ARGV[1])
redis.call('HSET', KEYS[3], pick, ARGV[5], pick .. ':before', last)
return {tonumber(pick), last}`)

// renewNumber: ARGV number, token, life in ms, the own clock's bound as above.
// Result: 1 renewed, 0 not ours. A number that is in no key at all belongs to its
// holder still: the data were lost, and it is registered again.
var renewNumber = redis.NewScript(`
local owner = redis.call('HGET', KEYS[2], ARGV[1])
if owner ~= ARGV[2] and (owner or redis.call('ZSCORE', KEYS[1], ARGV[1])) then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[3]), ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[4])
return 1`)

// releaseNumber: ARGV number, token, the own clock's time of the last use.
// Result: 1 released, 0 not ours.
var releaseNumber = redis.NewScript(`
if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[3])
return 1`)
