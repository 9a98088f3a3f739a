package credit

import (
	"strconv"

	"tidegate/pkg/redis"
)

// All scripts have two keys. KEYS[1] is the follower's hash:
//
//	at, id       when the newest act was received (ms), and its callback
//	left         messages that are left; -1 is no limit
//	cap          the most that left may be given back to
//	till         when the window ends (ms)
//	debt, cause  messages taken for an act that was not noted yet, and which
//	who, took    the message that took last, and how many it took
//
// KEYS[2] is the last message of the follower that no script has seen yet:
// received, count, until and callback, with blanks in between. Nearly all acts are
// messages, and a plain SET costs Redis a quarter of a script; an earlier message
// that nobody asked about says nothing that the later one does not say.
//
// Acts are noted by the time at which a door received them, and several doors have
// several clocks: a late one counts if it shows a window that is not known.

// hear begins every script whose answer depends on what was said last. It defines
// open, which opens a window and gives 1, or 0 for an act that is known or changes
// nothing, and opens that of a waiting message.
var hear = `
local function open(received, id, count, ends)
  local h = redis.call('HMGET', KEYS[1], 'at', 'id', 'left', 'till', 'debt', 'cause')
  local at, left, till = tonumber(h[1] or '-1'), tonumber(h[3] or '0'), tonumber(h[4] or '0')
  local now = tonumber(received)
  local late = now < at or now == at and h[2] == id
  if late and ends <= till then return 0 end
  if till <= now then left = 0 end
  if count < 0 or left < 0 then
    left = -1
  else
    left = math.max(left, count)
  end
  local most = left
  if left > 0 and h[6] == received then left = math.max(0, left - tonumber(h[5] or '0')) end
  till = math.max(till, ends)
  redis.call('HSET', KEYS[1], 'at', late and h[1] or received, 'id', late and h[2] or id, 'left', left, 'cap', most,
    'till', string.format('%.0f', till), 'debt', 0)
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(till - now, 0) + ` + strconv.FormatInt(after.Milliseconds(), 10) + `))
  return 1
end
local said = redis.call('GET', KEYS[2])
if said then
  redis.call('DEL', KEYS[2])
  local received, count, ends, id = string.match(said, '^(%-?%d+) (%-?%d+) (%-?%d+) (.*)$')
  if received then open(received, id, tonumber(count), tonumber(ends)) end
end
`

// note opens the window of an act that is no message. ARGV: received, callback,
// count, until (ms). Result: as open's.
var note = redis.NewScript(hear + `return open(ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]))`)

// take takes messages for one message of ours, which may ask again without taking
// twice. ARGV: now (” is the server's), how many, when the act that they answer
// was received (ms), our message. Result: {verdict, at, till}; till is 0 where no
// end is known.
var take = redis.NewScript(hear + `
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local h = redis.call('HMGET', KEYS[1], 'at', 'left', 'till', 'who', 'cause', 'debt')
if not h[1] then return {'unknown', '-1', '0'} end
local n, cause, again = tonumber(ARGV[2]), tonumber(ARGV[3]), h[4] == ARGV[4]
if cause > tonumber(h[1]) then
  if not again then
    local debt = h[5] == ARGV[3] and tonumber(h[6] or '0') or 0
    redis.call('HSET', KEYS[1], 'cause', ARGV[3], 'debt', debt + n, 'who', ARGV[4], 'took', 0)
  end
  return {'unknown', h[1], '0'}
end
if now >= tonumber(h[3] or '0') then return {'closed', h[1], h[3] or '0'} end
local left = tonumber(h[2] or '0')
if not again and left >= 0 then
  if left < n then return {'used_up', h[1], h[3]} end
  redis.call('HINCRBY', KEYS[1], 'left', -n)
end
if not again then redis.call('HSET', KEYS[1], 'who', ARGV[4], 'took', left < 0 and 0 or n) end
return {'granted', h[1], h[3]}`)

// back gives back what a message did not use, as long as it was the last to take.
// A message of the follower that waits will raise what is left in any case.
// ARGV: our message, how many.
var back = redis.NewScript(`
local h = redis.call('HMGET', KEYS[1], 'who', 'took', 'left', 'cap')
if h[1] ~= ARGV[1] then return 0 end
local n, left = math.min(tonumber(ARGV[2]), tonumber(h[2] or '0')), tonumber(h[3] or '0')
if n > 0 and left >= 0 then
  redis.call('HSET', KEYS[1], 'left', math.min(left + n, tonumber(h[4] or '0')))
end
redis.call('HSET', KEYS[1], 'who', '', 'took', 0)
return 1`)

// learn takes over what WeChat said. ARGV: at of the ticket, 'closed' or
// 'used_up', the end to remember (ms), when the act was received, time to live
// (ms). It changes nothing once the follower has done something else.
var learn = redis.NewScript(hear + `
local at = redis.call('HGET', KEYS[1], 'at')
if at and at ~= ARGV[1] then return 0 end
if not at then
  redis.call('HSET', KEYS[1], 'at', ARGV[4], 'id', '', 'debt', 0)
end
redis.call('HSET', KEYS[1], 'left', 0, 'cap', 0, 'who', '', 'took', 0)
if ARGV[2] == 'closed' or not at then redis.call('HSET', KEYS[1], 'till', ARGV[3]) end
if not at then redis.call('PEXPIRE', KEYS[1], ARGV[5]) end
return 1`)
