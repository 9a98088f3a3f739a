package redis

import (
	"fmt"
	"strconv"
	"strings"
)

// Advice is one thing to change on the server. Fatal advice names a set-up with
// which a promise of the system does not hold.
type Advice struct {
	Fatal bool
	Text  string
}

// Advice judges a server: what must and what should be changed, in plain words.
func (i Info) Advice() []Advice {
	var out []Advice
	fatal := func(format string, a ...any) { out = append(out, Advice{Fatal: true, Text: fmt.Sprintf(format, a...)}) }
	hint := func(format string, a ...any) { out = append(out, Advice{Text: fmt.Sprintf(format, a...)}) }
	if i.Version != "" && major(i.Version) < 7 {
		fatal("Redis %s is too old: claims need SET with NX and GET together, which came with 7.0; upgrade the server", i.Version)
	}
	if i.Role == "slave" || i.Role == "replica" {
		fatal("this server is a replica and refuses writes; point redis.addrs at the master, or use mode sentinel")
	}
	if i.Policy != "" && i.Policy != "noeviction" && (i.MaxMemory > 0 || i.Embedded) {
		fatal("maxmemory-policy is %s: under memory pressure Redis would drop claims and leases; set it to noeviction (CONFIG SET maxmemory-policy noeviction)", i.Policy)
	} else if i.Policy != "" && i.Policy != "noeviction" {
		hint("maxmemory-policy is %s; it has no effect without maxmemory, but set it to noeviction before a limit is added", i.Policy)
	}
	if i.AOF == "0" && !i.Embedded {
		hint("append-only file is off: a restart forgets all claims and leases, and repeats are then caught only later; set appendonly yes with appendfsync everysec")
	}
	if len(i.Unknown) > 0 {
		hint("not allowed to ask for: %s; check them by hand or give the ACL user +info", strings.Join(i.Unknown, ", "))
	}
	return out
}

func major(version string) int {
	n, err := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	if err != nil {
		return 0
	}
	return n
}
