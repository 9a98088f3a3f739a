package control

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"tidegate/pkg/redis"
)

const (
	// reportEvery is how often a node says what it applies; reportLife is how
	// long it is believed: a node that is gone is no longer waited for then.
	reportEvery = time.Second
	reportLife  = 4 * time.Second
	// sweepEvery is how many reports a node makes between two sweeps.
	sweepEvery = 60
	// maxReport bounds what one node may say.
	maxReport = 1 << 20
)

// channel carries announcements; their payload is the version.
const channel = "control"

// nodesKey is a hash: node name ─▶ "<milliseconds of Redis>|<report>".
func nodesKey() string { return redis.Tag("control", "nodes") }

var (
	// KEYS[1]: the hash; ARGV[1]: node; ARGV[2]: report; ARGV[3]: life in
	// milliseconds; ARGV[4]: 1 to take out the nodes whose report is older than
	// that, which reads all of them. Result: 1.
	saveReport = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if ARGV[4] == '1' then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local at = tonumber(string.match(all[i + 1], '^(%d+)|'))
    if not at or now - at > tonumber(ARGV[3]) then
      redis.call('HDEL', KEYS[1], all[i])
    end
  end
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now) .. '|' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1`)

	// KEYS[1]: the hash; ARGV[1]: life in milliseconds. Result: a list of
	// report, its age in milliseconds, report, …
	readReports = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local all = redis.call('HGETALL', KEYS[1])
local out = {}
for i = 1, #all, 2 do
  local at, text = string.match(all[i + 1], '^(%d+)|(.*)$')
  if at and now - tonumber(at) <= tonumber(ARGV[1]) then
    out[#out + 1] = text
    out[#out + 1] = string.format('%.0f', now - tonumber(at))
  end
end
return out`)

	// KEYS[1]: the hash; ARGV[1]: node. Result: how many were taken out.
	dropReport = redis.NewScript(`return redis.call('HDEL', KEYS[1], ARGV[1])`)
)

// report is what a node says of itself.
type report struct {
	Node    string      `json:"node"`
	Version int64       `json:"version"`
	Newest  int64       `json:"newest,omitempty"` // that it ever applied
	AgeMS   int64       `json:"age_ms"`           // of its view; -1: never
	Off     bool        `json:"off,omitempty"`    // it takes no live settings
	Limits  []KnobState `json:"limits"`
	seen    time.Duration
}

// nodes is who applies what, by way of Redis.
type nodes struct{ redis *redis.Client }

func (n nodes) save(ctx context.Context, r report, sweep bool) error {
	text, err := json.Marshal(r)
	if err == nil && len(text) > maxReport {
		r.Limits = nil
		text, err = json.Marshal(r)
	}
	if err != nil {
		return fmt.Errorf("report of %s: %w", r.Node, err)
	}
	_, err = saveReport.Run(ctx, n.redis, []string{nodesKey()}, r.Node, string(text), reportLife.Milliseconds(), flag(sweep))
	return err
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (n nodes) drop(ctx context.Context, node string) error {
	_, err := dropReport.Run(ctx, n.redis, []string{nodesKey()}, node)
	return err
}

// all gives the reports of the nodes that are alive. What cannot be read, from
// a release that says it otherwise, is left out.
func (n nodes) all(ctx context.Context) ([]report, error) {
	v, err := readReports.Run(ctx, n.redis, []string{nodesKey()}, reportLife.Milliseconds())
	if err != nil {
		return nil, err
	}
	list, _ := v.([]any)
	var out []report
	for i := 0; i+1 < len(list); i += 2 {
		text, _ := list[i].(string)
		age, _ := list[i+1].(string)
		ms, err := strconv.ParseInt(age, 10, 64)
		var r report
		if err != nil || json.Unmarshal([]byte(text), &r) != nil || r.Node == "" {
			continue
		}
		r.seen = time.Duration(ms) * time.Millisecond
		out = append(out, r)
	}
	return out, nil
}
