package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Info is what a server says about itself. A field that could not be learnt
// (an ACL user may be refused INFO) is empty and named in Unknown.
type Info struct {
	Version   string // "7.0.15"
	Mode      string // standalone, sentinel, cluster
	Role      string // master or slave
	AOF       string // "1" on, "0" off
	Policy    string // maxmemory-policy
	MaxMemory int64  // bytes; 0 is no limit
	Embedded  bool   // the server is our in-process one
	Unknown   []string
}

// Info asks the server (one of a cluster) for its version, role, persistence
// and eviction policy. If INFO is forbidden it falls back to HELLO, which every
// user may send, and leaves the rest unknown.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var i Info
	v, err := c.read(ctx, "info")
	if text, ok := v.(string); ok && err == nil {
		i.fill(parseInfo(text))
	} else if err != nil && !isDenied(err) {
		return Info{}, c.fail("info", err)
	}
	if i.Version == "" {
		hello, err := c.read(ctx, "hello")
		if err != nil {
			return Info{}, c.fail("hello", err)
		}
		i.fill(parseHello(hello))
	}
	i.noteUnknown()
	return i, nil
}

func isDenied(err error) bool { return hasPrefix(err.Error(), deniedPrefixes) }

func (i *Info) fill(m map[string]string) {
	i.Version, i.Mode, i.Role = m["redis_version"], m["redis_mode"], m["role"]
	i.AOF, i.Policy = m["aof_enabled"], m["maxmemory_policy"]
	i.MaxMemory, _ = strconv.ParseInt(m["maxmemory"], 10, 64)
	i.Embedded = m["tidegate_embedded"] == "1"
}

func (i *Info) noteUnknown() {
	for _, f := range []struct{ name, value string }{
		{"version", i.Version}, {"role", i.Role}, {"persistence", i.AOF}, {"eviction policy", i.Policy},
	} {
		if f.value == "" {
			i.Unknown = append(i.Unknown, f.name)
		}
	}
}

// parseInfo reads the "name:value" lines of INFO.
func parseInfo(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}

// parseHello reads HELLO's map, which RESP2 flattens to a list.
func parseHello(v any) map[string]string {
	raw := map[string]string{}
	switch t := v.(type) {
	case map[any]any:
		for k, x := range t {
			raw[fmt.Sprint(k)] = fmt.Sprint(x)
		}
	case []any:
		for n := 0; n+1 < len(t); n += 2 {
			raw[fmt.Sprint(t[n])] = fmt.Sprint(t[n+1])
		}
	}
	return map[string]string{"redis_version": raw["version"], "redis_mode": raw["mode"], "role": raw["role"]}
}
