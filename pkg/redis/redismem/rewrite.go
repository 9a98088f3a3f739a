package redismem

import (
	"strconv"
	"strings"
)

// refused are commands of miniredis that differ from Redis 7.0 in the lives of
// keys or fields: fields have no lives there, and miniredis' COPY leaves the
// replaced key's life on the copy. We use none of them.
var refused = map[string]bool{
	"HEXPIRE": true, "HPEXPIRE": true, "HEXPIREAT": true, "HPEXPIREAT": true, "HPERSIST": true,
	"HTTL": true, "HPTTL": true, "HEXPIRETIME": true, "HPEXPIRETIME": true,
	"HGETEX": true, "HSETEX": true, "RESTORE": true, "COPY": true, "MOVE": true, "SWAPDB": true,
}

// century bounds a life, so that sums of milliseconds cannot overflow.
const century = 100 * 365 * 24 * 3600 * 1000

// rewritten is a command with its life as an end on the server's clock.
type rewritten struct {
	args []string
	key  string // the key to look at
	look int64  // when, on the server's clock
	err  string
}

// rewrite handles every command that gives or moves a life; ok is false
// for all others and for malformed ones, which miniredis then refuses itself.
// now is the server's clock and wall the Unix time, both in milliseconds.
func rewrite(cmd string, args []string, now, wall int64) (rw rewritten, ok bool) {
	switch cmd {
	case "SET", "GETEX":
		return rewriteOptions(cmd, args, now, wall)
	case "SETEX", "PSETEX":
		if len(args) != 3 {
			return rw, false
		}
		return life(cmd, []string{"PSETEX", args[0], args[1], args[2]}, 2, unitOf(cmd), now, 0)
	case "EXPIRE", "PEXPIRE":
		if len(args) < 2 {
			return rw, false
		}
		return life(cmd, append([]string{"PEXPIRE"}, args...), 2, unitOf(cmd), now, 0)
	case "EXPIREAT", "PEXPIREAT":
		if len(args) < 2 {
			return rw, false
		}
		return life(cmd, append([]string{"PEXPIRE"}, args...), 2, unitOf(cmd), now, wall)
	case "RENAME", "RENAMENX":
		if len(args) != 2 {
			return rw, false
		}
		return rewritten{args: []string{cmd, args[0], args[1]}, key: args[1], look: now}, true
	}
	return rw, false
}

// rewriteOptions finds EX, PX, EXAT or PXAT among the options of SET and GETEX.
func rewriteOptions(cmd string, args []string, now, wall int64) (rewritten, bool) {
	first := 2 // SET key value …
	if cmd == "GETEX" {
		first = 1
	}
	for i := first; i+1 < len(args); i++ {
		opt := strings.ToUpper(args[i])
		if opt != "EX" && opt != "PX" && opt != "EXAT" && opt != "PXAT" {
			continue
		}
		out := append([]string{cmd}, args...)
		out[i+1] = "PX"
		base := int64(0)
		if strings.HasSuffix(opt, "AT") {
			base = wall
		}
		rw, ok := life(cmd, out, i+2, unitOf(opt), now, base)
		return rw, ok
	}
	return rewritten{}, false
}

// unitOf gives the milliseconds of one unit of a command or an option.
func unitOf(name string) int64 {
	if strings.HasPrefix(name, "P") {
		return 1
	}
	return 1000
}

// life replaces args[at], a life in units from now (or, with a base, from Unix
// time zero), by the end on the server's clock.
func life(cmd string, args []string, at int, unit, now, base int64) (rewritten, bool) {
	n, err := strconv.ParseInt(args[at], 10, 64)
	if err != nil {
		return rewritten{}, false
	}
	expire := strings.Contains(cmd, "EXPIRE")
	if n <= 0 && !expire { // SET, SETEX, GETEX refuse it themselves
		return rewritten{}, false
	}
	if n > century*20/unit || n < -century {
		return rewritten{err: "ERR invalid expire time in '" + strings.ToLower(cmd) + "' command"}, true
	}
	end := now + n*unit - base
	if end <= now && expire {
		end = -1 // miniredis deletes at once
	}
	if !expire {
		end = max(end, 1)
	}
	args[at] = strconv.FormatInt(end, 10)
	return rewritten{args: args, key: args[1], look: end}, true
}
