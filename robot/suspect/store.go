package suspect

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"tidegate/pkg/redis"
)

// keep is how long Redis remembers a partition in which nothing happens: as
// long as Kafka keeps records.
const keep = 7 * 24 * time.Hour

// takeScript gives a partition a new owner and tells what the last one left.
//
//	KEYS[1] hash of the partition
//	ARGV[1] the new assignment   ARGV[2] its first offset   ARGV[3] how far ahead of it a process may have begun
//	ARGV[4] life in ms
//	result  {until, begun, field, value, …}: the entries of suspects from the first offset on
var takeScript = redis.NewScript(`
local h, low = KEYS[1], tonumber(ARGV[2])
local all = redis.call('HGETALL', h)
local owner, ends, begun, out = false, 0, 0, {0, 0}
for i = 1, #all, 2 do
  local f, v = all[i], all[i+1]
  if f == 'owner' then owner = v
  elseif f == 'until' then ends = tonumber(v)
  elseif f == 'begun' then begun = tonumber(v)
  elseif tonumber(f) and tonumber(f) < low then redis.call('HDEL', h, f)
  elseif tonumber(f) then out[#out+1] = f; out[#out+1] = v end
end
if owner ~= '' then
  ends = math.max(ends, low + tonumber(ARGV[3]))
  begun = owner and 1 or 0
end
redis.call('HSET', h, 'owner', ARGV[1], 'until', string.format('%.0f', ends), 'begun', begun)
redis.call('PEXPIRE', h, ARGV[4])
out[1], out[2] = string.format('%.0f', ends), begun
return out`)

// beginScript writes down that records are in hand, unless the partition has
// another owner by now. A hash that was lost has none and is taken again.
//
//	KEYS[1] hash of the partition
//	ARGV[1] the assignment   ARGV[2] until   ARGV[3] begun   ARGV[4] life in ms
//	ARGV[5] … offset and kills of each record
//	result  1, or 0 if somebody else owns the partition
var beginScript = redis.NewScript(`
local owner = redis.call('HGET', KEYS[1], 'owner')
if not owner then
  redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'until', ARGV[2], 'begun', ARGV[3])
elseif owner ~= ARGV[1] then
  return 0
end
for i = 5, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i+1] .. ' ' .. ARGV[1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1`)

// clearScript takes records' entries away, those that this assignment wrote.
//
//	KEYS[1] hash of the partition
//	ARGV[1] the assignment   ARGV[2] … offsets
//	result  number of entries
var clearScript = redis.NewScript(`
local n = 0
for i = 2, #ARGV do
  local v = redis.call('HGET', KEYS[1], ARGV[i])
  if v and string.match(v, ' (.*)$') == ARGV[1] then n = n + redis.call('HDEL', KEYS[1], ARGV[i]) end
end
return n`)

// letGoScript says that the owner has left in order.
//
//	KEYS[1] hash of the partition
//	ARGV[1] the assignment
//	result  1, or 0 if somebody else owns the partition
var letGoScript = redis.NewScript(`
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'owner', '')
return 1`)

// past is what the last owners of a partition left.
type past struct {
	until int64         // first offset that nobody can have begun
	begun int           // deaths that any record before it may have been in
	kills map[int64]int // deaths that these records were in
}

// entry is one record in hand.
type entry struct {
	offset int64
	kills  int // this one included
}

// store is one partition's hash.
type store struct {
	redis *redis.Client
	key   string
	token string // of the assignment
}

func (s store) take(ctx context.Context, low, ahead int64) (past, error) {
	v, err := takeScript.Run(ctx, s.redis, []string{s.key}, s.token, low, ahead, keep.Milliseconds())
	if err != nil {
		return past{}, err
	}
	return read(v)
}

// begin writes down records of one past.
func (s store) begin(ctx context.Context, p past, records ...entry) (mine bool, err error) {
	args := make([]any, 0, 4+2*len(records))
	args = append(args, s.token, p.until, p.begun, keep.Milliseconds())
	for _, r := range records {
		args = append(args, r.offset, r.kills)
	}
	v, err := beginScript.Run(ctx, s.redis, []string{s.key}, args...)
	n, _ := v.(int64)
	return n == 1, err
}

func (s store) clear(ctx context.Context, records ...entry) error {
	args := make([]any, 0, 1+len(records))
	args = append(args, s.token)
	for _, r := range records {
		args = append(args, r.offset)
	}
	_, err := clearScript.Run(ctx, s.redis, []string{s.key}, args...)
	return err
}

func (s store) letGo(ctx context.Context) error {
	_, err := letGoScript.Run(ctx, s.redis, []string{s.key}, s.token)
	return err
}

var errStrange = errors.New("the hash of suspects holds what no release of ours wrote: delete it")

// read takes the answer of takeScript apart.
func read(v any) (past, error) {
	list, ok := v.([]any)
	if !ok || len(list) < 2 || len(list)%2 != 0 {
		return past{}, errStrange
	}
	p := past{kills: make(map[int64]int, len(list)/2-1)}
	text, _ := list[0].(string)
	until, err := strconv.ParseInt(text, 10, 64)
	begun, ok := list[1].(int64)
	if err != nil || !ok {
		return past{}, errStrange
	}
	p.until, p.begun = until, int(begun)
	for i := 2; i < len(list); i += 2 {
		field, _ := list[i].(string)
		value, _ := list[i+1].(string)
		count, _, _ := strings.Cut(value, " ")
		offset, err := strconv.ParseInt(field, 10, 64)
		kills, err2 := strconv.Atoi(count)
		if err != nil || err2 != nil || kills < 1 {
			return past{}, errStrange
		}
		p.kills[offset] = kills
	}
	return p, nil
}
