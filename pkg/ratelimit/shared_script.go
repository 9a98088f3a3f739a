package ratelimit

import "tidegate/pkg/redis"

// ask is the one script of a cap over the cluster. Everything that decides about
// the cap happens here, by the server's clock.
//
//	KEYS[1] hash, the cap:
//	  at          last time of the server that a script saw
//	  run         the server's run id: another one may have lost the last writes
//	  tu, tf      theoretical time of the next permit, µs and 2^-30 of them
//	  last        the latest time from which a permit that was given out may be used
//	  turn, tend  who was given permits last, and until when that node may go on
//	              (only where a change of nodes costs time, see pen)
//	  pcold       no new places before
//	  ep          the number of beginnings: one more whenever the cap begins empty
//	  ver rate us f burst conc   the limit that holds, and
//	  vat         when a node last went by its version
//	  rfrom rat rms              the rate (permits a µs) that it rises from, since
//	                             when, over how many ms; rms 0 if it does not rise
//	  bt          time up to which bulk has used its part, while others waited
//	KEYS[2] hash, node -> seen:held:places:want:granted:ver:us:f:burst:conc:rate:firsts
//	  when it asked last, places registered for it, places it can use, permits it
//	  waits for, when it was given some, the limit it goes by, and how many of the
//	  permits it waits for are for callers that go first
//
//	ARGV 1 time or '' for the server's, 2 node, 3 permits wanted, 4 permits it has,
//	  5 calls in flight, 6 places that it may use until it has the answer,
//	  7 places it can use, 8 version, 9 rate, 10 us, 11 f, 12 burst, 13 places (0
//	  no cap), 14 ramp in ms, then in µs: 15 horizon, 16 settle, 17 gap, 18 life;
//	  19 life of the keys in ms, 20 the most permits at once, 21 the number of
//	  beginnings that it knows, 22 the time that it cannot be later than by its
//	  clock, 23 '1' to leave, 24 '1' if it is sure that the clock was put forward,
//	  25 how many of the permits wanted are for callers that go first, 26 the part
//	  of the rate for the rest while such callers wait anywhere; 0 is all
//
// Result: {1 if it began empty, time, number of permits, theoretical time of the
// first (µs, part), period (µs, part), slack, life of a permit, µs until asking
// again is of use, places that the node may use, version, rate, burst, places of
// all, number of beginnings, µs of rest before anything can be given out}; {} for a
// node that leaves; {time} for a question that comes too late, or is the first after
// the clock was put forward: only the node can tell which. Permit i may be used from
// max(time, theoretical time + i periods - slack).
//
// Why every window holds: a permit of slot s leaves in [s, s+J]. Slots follow the
// generic cell rate algorithm with a burst that is smaller by rate×J, so a window
// of length w, which has slots of w+J, sees no more than burst + rate×w. Where the
// burst is too small to pay for J, slots have no burst at all and a change of nodes
// costs the rest (pen); departures of one node are held by its own clock.
// Whatever may have been forgotten, or counted by a clock that was put forward or
// back, or given out under another limit or by local shares, has left before the
// first slot of a new beginning, which has no burst.
const askText = `
local UNIT, JMIN, JMAX = 1073741824, 20000, 50000
local me = ARGV[2]
if ARGV[23] == '1' then
  redis.call('HDEL', KEYS[2], me)
  return {}
end
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local want, have, flight, pledge, places = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local ramp, horizon, settle, gap, life = tonumber(ARGV[14]), tonumber(ARGV[15]), tonumber(ARGV[16]), tonumber(ARGV[17]), tonumber(ARGV[18])
local firsts, bulk = tonumber(ARGV[25]), tonumber(ARGV[26])
local function text(n) return string.format('%.0f', n) end

local info = redis.pcall('INFO', 'server')
local run = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or 'none'
local h = redis.call('HMGET', KEYS[1], 'at', 'run', 'tu', 'tf', 'last', 'turn', 'tend', 'pcold', 'ver', 'rate', 'us', 'f', 'burst', 'conc', 'rfrom', 'rat', 'rms', 'ep', 'vat', 'bt')
local function n(i) return tonumber(h[i] or '0') end
local at = n(1)
local lost = not h[1] or h[2] ~= run or now < at - 1000
local ep = n(18)
local stepped = ARGV[21] == h[18] and now > tonumber(ARGV[22])
if stepped and not lost and ARGV[24] ~= '1' then return {now} end
local cold = lost or stepped or now - at > gap
if cold then ep = ep + 1 end
if not lost and now < at then now = at end

-- The limit: the newest version; of those who hold it the lowest. One that nobody
-- has held for 10 s is forgotten: numbers may have begun anew.
local stored = {v = h[9] and n(9) or -1, rate = h[10], us = n(11), f = n(12), burst = n(13), conc = n(14)}
local mine = {v = tonumber(ARGV[8]), rate = ARGV[9], us = tonumber(ARGV[10]), f = tonumber(ARGV[11]), burst = tonumber(ARGV[12]), conc = tonumber(ARGV[13])}
local ver, vat, lim = mine.v, n(19), nil
local function consider(l)
  if l.v ~= ver then return end
  if not lim then
    lim = {rate = l.rate, us = l.us, f = l.f, burst = l.burst, conc = l.conc}
    return
  end
  if l.us > lim.us or l.us == lim.us and l.f > lim.f then lim.rate, lim.us, lim.f = l.rate, l.us, l.f end
  lim.burst = math.min(lim.burst, l.burst)
  if lim.conc == 0 or l.conc > 0 and l.conc < lim.conc then lim.conc = l.conc end
end
if lost then redis.call('DEL', KEYS[2]) end
local nodes = redis.call('HGETALL', KEYS[2])
local others, granted, turnWants = {}, 0, false
local firstWaits, turnFirst = firsts > 0, false
local taken, active = 0, 1
for i = 1, #nodes, 2 do
  local e = {}
  for x in string.gmatch(nodes[i + 1], '[^:]+') do e[#e + 1] = x end
  local seen = tonumber(e[1])
  if nodes[i] == me then
    granted = tonumber(e[5])
  elseif seen + life <= now then
    redis.call('HDEL', KEYS[2], nodes[i])
  else
    local o = {id = nodes[i], places = tonumber(e[3]), granted = tonumber(e[5])}
    taken = taken + tonumber(e[2])
    if tonumber(e[4]) > 0 and seen + gap > now then
      active = active + 1
      o.wants = true
      o.firsts = tonumber(e[12] or '0')
      -- What waits asks again within half a second.
      if o.firsts > 0 and seen + 600000 > now then firstWaits = true end
      if o.id == h[6] and seen + 300000 > now then turnWants, turnFirst = true, o.firsts > 0 end
    end
    o.limit = {v = tonumber(e[6]), us = tonumber(e[7]), f = tonumber(e[8]), burst = tonumber(e[9]), conc = tonumber(e[10]), rate = e[11]}
    ver = math.max(ver, o.limit.v)
    others[#others + 1] = o
  end
end
if stored.v > ver and now - vat < 10000000 then ver = stored.v end
consider(mine)
for _, o in ipairs(others) do consider(o.limit) end
if lim then vat = now else lim = stored end

-- The pace. While a rate rises, slots follow it; burst and life are the target's.
local target = lim.us + lim.f / UNIT
local differs = h[1] and (lim.us ~= stored.us or lim.f ~= stored.f or lim.burst ~= stored.burst)
local rfrom, rat, rms = n(15), n(16), n(17)
local function rising(to)
  local part = (now - rat) / (rms * 1000)
  if rms == 0 or part >= 1 or part < 0 then return to end
  return rfrom + (to - rfrom) * part
end
if differs then
  local old = stored.us + stored.f / UNIT
  local was = old > 0 and rising(1 / old) or 0
  rms = 0
  if ramp > 0 and was > 0 and target > 0 and 1 / target > was then rfrom, rat, rms = was, now, ramp end
end
local pu, pf = lim.us, lim.f
if rms > 0 and target > 0 then
  local rate = rising(1 / target)
  if rate < 1 / target then
    -- The time in which the rising rate makes one permit: 1/rate of this moment
    -- would be hours after a rate that let nearly nothing through.
    local a = (1 / target - rfrom) / (rms * 1000)
    local d = math.max(target, (math.sqrt(rate * rate + 2 * a) - rate) / a)
    pu = math.floor(d)
    pf = math.ceil((d - pu) * UNIT)
    if pf >= UNIT then pu, pf = pu + 1, 0 end
  else
    rms = 0
  end
end
local spread = (lim.burst - 1) * target
local J = math.floor(math.min(JMAX, math.max(JMIN, spread)))
local slack = math.floor(math.max(spread - J, 0))
local pen = math.ceil(math.max(J - spread, 0))

local tu, tf, last, turn, tend = n(3), n(4), n(5), h[6] or '', n(7)
local fresh
if cold then fresh = now + settle elseif differs and stored.us == 0 and stored.f == 0 then fresh = now + gap elseif differs then fresh = math.max(now, last) + JMAX end
local rest = 0
if fresh then
  -- What was given out before has gone by then, also if the limit changes again.
  tu, tf, last, turn, tend = fresh + slack + pu, pf, fresh - JMAX, '', 0
  rest = fresh - now
end

-- Places: what nodes can use, and where that is too much the same for all. One
-- that does not divide goes round.
local pcold = n(8)
if lost then pcold = now + life elseif cold then pcold = math.max(pcold, now + settle) end
local allow = 0
if lim.conc > 0 then
  local all = {{id = me, places = places}}
  for _, o in ipairs(others) do all[#all + 1] = o end
  table.sort(all, function(a, b) if a.places ~= b.places then return a.places < b.places end return a.id < b.id end)
  local left, share = lim.conc, places
  for i, o in ipairs(all) do
    local rest = #all - i + 1
    local level = math.floor(left / rest)
    if o.places > level then
      for k = i, #all do
        local rank = (k - i + math.floor(now / 250000)) % rest
        if all[k].id == me then share = level + (rank < left % rest and 1 or 0) end
      end
      break
    end
    left = left - o.places
  end
  allow = math.max(0, math.min(places, share, lim.conc - taken))
  if now < pcold then
    allow = math.min(allow, pledge)
    rest = math.max(rest, pcold - now)
  end
end

-- Permits.
local count, bu, bf, wait, bt = 0, 0, 0, 0, n(20)
if target > 0 and want > 0 then
  local eff = pu + pf / UNIT
  bu, bf = tu, tf
  if pen > 0 and turn ~= '' and turn ~= me then bu = bu + pen end
  if now > bu then bu, bf = now, 0 end
  local ahead = (now + horizon + slack - bu) - bf / UNIT
  local room = 0
  if ahead >= 0 then room = math.floor(ahead / eff) + 1 end
  wait = math.max(0, math.ceil(-ahead))
  count = math.min(want, room, tonumber(ARGV[20]), math.max(1, math.ceil((horizon + slack) / eff / active)) - have)
  if lim.conc > 0 then count = math.min(count, allow - flight - have) end
  if count > 0 and active > 1 then
    if pen > 0 then
      if turn == me and now >= tend and now < tend + 100000 then
        count, wait = 0, 20000
      elseif turn ~= me and turnWants and now < tend and (turnFirst or firsts == 0) then
        count, wait = 0, math.min(tend - now, 50000)
      end
    elseif room < active and ahead < 40000 then
      -- A slot that has just come within reach belongs to who waited longest.
      for _, o in ipairs(others) do
        if o.wants and o.granted < granted and (firsts == 0 or o.firsts > 0) then count, wait = 0, 10000 end
      end
    end
  end
  -- The reserve: what is not for callers that go first is a part of the rate while
  -- such callers wait on any node. What bulk used before they came gives it no less.
  if bulk > 0 then
    local rest = count - math.min(count, firsts)
    if not firstWaits then
      bt = 0
    elseif rest > 0 then
      bt = math.max(bt, now)
      local may = 0
      if bt <= now + horizon then may = math.floor((now + horizon - bt) * bulk / eff) + 1 end
      if rest > may then
        count, rest = count - rest + may, may
        wait = math.max(wait, math.min(50000, math.ceil(eff / bulk)))
      end
      bt = bt + rest * eff / bulk
    end
  end
  if count > 0 then
    if pen > 0 and (turn ~= me or now >= tend) then tend = math.max(now, bu) + 30 * pen end
    local parts = bf + count * pf
    tu, tf = bu + count * pu + math.floor(parts / UNIT), parts % UNIT
    last = math.max(now, tu - pu - slack + 1)
    turn, granted = me, now
    wait = math.max(0, tu - slack - now - horizon)
  end
  if count >= want then wait = 0 else wait = math.max(wait, math.min(50000, eff * (have + count) / 2)) end
  count = math.max(count, 0)
end

redis.call('HSET', KEYS[1], 'at', text(now), 'run', run, 'tu', text(tu), 'tf', text(tf), 'last', text(last), 'turn', turn, 'tend', text(tend),
  'pcold', text(pcold), 'ver', text(ver), 'rate', lim.rate, 'us', text(lim.us), 'f', text(lim.f), 'burst', text(lim.burst), 'conc', text(lim.conc),
  'rfrom', string.format('%.17g', rfrom), 'rat', text(rat), 'rms', text(rms), 'ep', text(ep), 'vat', text(vat), 'bt', string.format('%.3f', bt))
local held = lim.conc > 0 and math.max(pledge, allow) or 0
redis.call('HSET', KEYS[2], me, table.concat({text(now), text(held), text(places), text(want), text(granted), text(mine.v),
  text(mine.us), text(mine.f), text(mine.burst), text(mine.conc), mine.rate, text(firsts)}, ':'))
redis.call('PEXPIRE', KEYS[1], ARGV[19])
redis.call('PEXPIRE', KEYS[2], ARGV[19])
return {cold and 1 or 0, now, count, bu, bf, pu, pf, slack, J, math.floor(wait), allow, ver, lim.rate, lim.burst, lim.conc, ep, rest}`

var askScript = redis.NewScript(askText)
