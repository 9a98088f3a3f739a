package slice

import "tidegate/pkg/redis"

// take: KEYS one hash per level, "<width>:<number of the slice>" -> count.
// ARGV the time in microseconds (empty: the server's), the cost, then for each
// level: limit (0 none), width in microseconds, slices, mode.
// Result: {level that refused or 0, microseconds until the cost fits or -1 if it
// never does, the time, sum of each level…}. The sums are rounded up, with the
// cost if it was counted.
//
// A field of another width is left from another rule; it counts in full until
// all of it is a period old. A field far ahead was written under a clock that
// has jumped back since: it counts, unless it is more than two periods ahead.
var take = redis.NewScript(`
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local cost = tonumber(ARGV[2])

-- Reads one level: its sum, the fields that are over, and what leaves when.
local function read(key, w, n, mode)
  local p, cur, sum, over, parts = w * n, math.floor(now / w), 0, {}, {}
  local all = redis.call('HGETALL', key)
  for j = 1, #all, 2 do
    local fw, fk = string.match(all[j], '^(%d+):(%d+)$')
    fw, fk = tonumber(fw), tonumber(fk)
    local count, share, from = tonumber(all[j + 1]), 0, nil
    local ends = (fk + 1) * fw
    local gone = ends + p
    if fw ~= w then
      if gone > now then share = 1 end
    elseif mode == 'paper' then
      gone = (fk + n) * w
      if fk > cur - n then share = 1 end
    elseif fk > cur - n or (mode == 'strict' and fk == cur - n) then
      share = 1
    elseif fk == cur - n then
      share = 1 - (now - cur * w) / w
    end
    if fw == w and mode == 'weighted' then from = math.max((fk + n) * w, now) end
    if ends + 2 * p <= now or fk * fw > now + 2 * p then
      over[#over + 1] = all[j]
    elseif share > 0 then
      sum = sum + count * share
      parts[#parts + 1] = {gone = gone, from = from, left = count * share, rate = count / w}
    end
  end
  return sum, over, parts
end

-- The time until need has left the sum.
local function untilFree(parts, need)
  table.sort(parts, function(a, b) return a.gone < b.gone end)
  for _, part in ipairs(parts) do
    if part.left >= need then
      if part.from then return math.ceil(part.from + need / part.rate - now) end
      return math.max(part.gone - now, 1)
    end
    need = need - part.left
  end
  return 1
end

local result = {0, 0, string.format('%.0f', now)}
local sums = {}
for i, key in ipairs(KEYS) do
  local a = 4 * i - 1
  local limit, w, n = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  local sum, over, parts = read(key, w, n, ARGV[a + 3])
  if #over > 0 then redis.call('HDEL', key, unpack(over)) end
  if limit > 0 and sum + cost > limit then
    if result[1] == 0 then result[1] = i end
    if cost > limit then
      result[2] = -1
    elseif result[2] >= 0 then
      result[2] = math.max(result[2], untilFree(parts, sum + cost - limit))
    end
  end
  sums[i] = sum
end
local counted = 0
if result[1] == 0 then counted = cost end
for i, key in ipairs(KEYS) do
  local w, n = tonumber(ARGV[4 * i]), tonumber(ARGV[4 * i + 1])
  if counted > 0 then
    redis.call('HINCRBY', key, string.format('%.0f:%.0f', w, math.floor(now / w)), ARGV[2])
    local life = math.ceil(2 * w * n / 1000)
    if redis.call('PTTL', key) < life then redis.call('PEXPIRE', key, string.format('%.0f', life)) end
  end
  result[3 + i] = math.ceil(sums[i] + counted)
end
return result`)
