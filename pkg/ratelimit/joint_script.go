package ratelimit

import "tidegate/pkg/redis"

// joint is the one script of all joint caps of a tag.
//
//	KEYS[1] hash, the mark of the tag:
//	  run     the server's run id: another one may have lost the last writes
//	  since   before this time (µs) nothing is known of rates
//	  wsince  before this time nothing is known of windows; 0 if nothing was sent
//	KEYS[2…] one for each cap. A rate: hash
//	  tu, tf  theoretical time of the next permit, µs and 2^-30 of them
//	  pu, pf  what it was before the last take, and by whom that was
//	A window: sorted set, who -> when (µs), of the takes in the last period
//
//	ARGV 1 time or '' for the server's, 2 what is to be done: take, back or mark,
//	  3 who, 4 the take, 5 for mark: '1' if nothing was ever sent, for back: the
//	  time of the take, 6 rest before a
//	  new beginning (µs), 7 life of the mark (ms), then for each cap:
//	  'r', period (µs), part of one (2^-30), burst, '1' to begin anew; or
//	  'w', most, period (µs), 0, ''
//
// Result of take: {number of the cap that refused or 0, µs to wait, time}; the
// number is -1 where the mark is missing: data were lost, or nothing ever was. Of
// the others: {0, 0, time}. The time is empty where a window knew who already.
//
// A take is counted by every cap or by none. A rate follows the generic cell rate
// algorithm, and begins without burst at since. A window counts one who once: what
// goes again is not another one, and its being given back does not undo the first. A rate gets a take back only where nobody has taken
// since, because only then it is known what it would be without.
const jointText = `
local UNIT = 1073741824
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local what, who, take, rest = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[6])
local function text(n) return string.format('%.0f', n) end

if what == 'back' then
  for i = 2, #KEYS do
    local a = 5 * i - 2
    if ARGV[a] == 'w' then
      if redis.call('ZSCORE', KEYS[i], who) == ARGV[5] then redis.call('ZREM', KEYS[i], who) end
    else
      local h = redis.call('HMGET', KEYS[i], 'by', 'pu', 'pf')
      if h[1] == take then redis.call('HSET', KEYS[i], 'tu', h[2], 'tf', h[3], 'by', '') end
    end
  end
  return {0, 0, text(now)}
end

local info = redis.pcall('INFO', 'server')
local run = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or 'none'
local m = redis.call('HMGET', KEYS[1], 'run', 'since', 'wsince')
if what == 'mark' then
  if not m[1] then
    redis.call('HSET', KEYS[1], 'run', run, 'since', text(now), 'wsince', ARGV[5] == '1' and '0' or text(now))
    redis.call('PEXPIRE', KEYS[1], ARGV[7])
  end
  return {0, 0, text(now)}
end
if not m[1] then return {-1, 0, text(now)} end
local since, wsince = tonumber(m[2]), tonumber(m[3])
if m[1] ~= run then
  since = now
  redis.call('HSET', KEYS[1], 'run', run, 'since', text(now))
end
redis.call('PEXPIRE', KEYS[1], ARGV[7])

local refused, wait, again = 0, 0, false
local function refuse(i, d)
  d = math.max(1, math.ceil(d))
  if d > wait then refused, wait = i - 1, d end
end
local plan = {}
for i = 2, #KEYS do
  local a = 5 * i - 2
  if ARGV[a] == 'w' then
    local most, period = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
    if wsince > 0 and wsince + period > now then
      refuse(i, wsince + period - now)
    else
      redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', text(now - period))
      local known = redis.call('ZSCORE', KEYS[i], who)
      local n = redis.call('ZCARD', KEYS[i])
      if not known and n >= most then
        local e = redis.call('ZRANGE', KEYS[i], n - most, n - most, 'WITHSCORES')
        refuse(i, tonumber(e[2]) + period - now)
      end
      again = again or known
      plan[i] = {window = true, known = known, life = math.ceil(period / 1000) + 1000}
    end
  else
    local eu, ef, burst = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
    local eff = eu + ef / UNIT
    local slack = math.floor((burst - 1) * eff)
    local h = redis.call('HMGET', KEYS[i], 'tu', 'tf')
    local tu, tf = tonumber(h[1] or '0'), tonumber(h[2] or '0')
    local from = since
    if ARGV[a + 4] == '1' then from = now end
    local begin = from + rest + slack + eu + 1
    if begin > tu then tu, tf = begin, 0 end
    if tu > now + slack or (tu == now + slack and tf > 0) then
      local d = tu - slack - now
      if tf > 0 then d = d + 1 end
      if ARGV[a + 4] == '1' then redis.call('HSET', KEYS[i], 'tu', text(tu), 'tf', text(tf), 'by', '') end
      refuse(i, d)
    end
    plan[i] = {tu = tu, tf = tf, eu = eu, ef = ef, life = math.ceil((slack + eff) / 500) + 600000}
  end
end
if wait > 0 then return {refused, wait, text(now)} end
for i, p in pairs(plan) do
  if p.window then
    if not p.known then redis.call('ZADD', KEYS[i], text(now), who) end
  else
    local bu, bf = p.tu, p.tf
    if now > bu then bu, bf = now, 0 end
    local parts = bf + p.ef
    redis.call('HSET', KEYS[i], 'tu', text(bu + p.eu + math.floor(parts / UNIT)), 'tf', text(parts % UNIT),
      'pu', text(p.tu), 'pf', text(p.tf), 'by', take)
  end
  redis.call('PEXPIRE', KEYS[i], text(p.life))
end
return {0, 0, again and '' or text(now)}`

var jointScript = redis.NewScript(jointText)
