package redismem

import (
	"bufio"
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// rawName marks peers of our own: their commands pass the hook untouched. The
// blank makes it a name that CLIENT SETNAME refuses.
const rawName = "redismem raw"

// hook runs before every command. It returns true if it has answered.
func (s *Server) hook(c *server.Peer, cmd string, args ...string) bool {
	if c.ClientName == rawName {
		return false
	}
	k := s.connOf(c)
	if k != nil { // inside Lua the lock is held and time stands still, as in Redis
		if text := s.fault.Load(); text != nil {
			c.WriteError(*text)
			return true
		}
		s.expireDue()
	}
	switch cmd {
	case "TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME":
		return s.answerLife(c, k, cmd, args)
	case "INFO":
		return s.answerInfo(c)
	case "SELECT":
		s.noteDB(args, k == nil)
		return false
	case "MULTI", "EXEC", "DISCARD":
		return s.transaction(c, k, cmd)
	}
	if refused[cmd] {
		c.WriteError("ERR unknown command '" + strings.ToLower(cmd) + "': not in Redis 7.0, or not in the embedded server")
		return true
	}
	return s.withLife(c, k, cmd, args)
}

// connOf tells real connections from calls inside Lua (nil). A connection's
// first command comes without a context; a call from Lua always brings one.
func (s *Server) connOf(c *server.Peer) *conn {
	if v, ok := s.conns.Load(c); ok {
		return v.(*conn)
	}
	if c.Ctx != nil {
		return nil
	}
	k := &conn{}
	s.conns.Store(c, k)
	c.OnDisconnect(func() { s.conns.Delete(c) })
	return k
}

// withLife runs a command that gives or moves a life, rewritten, and
// then notes when to look at the key. The note comes after the command, so that
// it cannot be used up before the key is there.
func (s *Server) withLife(c *server.Peer, k *conn, cmd string, args []string) bool {
	now := s.now()
	rw, ok := rewrite(cmd, args, now, time.Now().UnixMilli())
	if !ok {
		return false
	}
	if rw.err != "" {
		c.WriteError(rw.err)
		return true
	}
	reply := s.raw(c, rw.args)
	if k != nil && k.multi {
		k.queued = append(k.queued, rw.key)
	} else {
		s.hints.push(rw.key, max(rw.look, now))
	}
	c.WriteRaw(reply)
	return true
}

// transaction follows MULTI, and after EXEC looks at the keys that got a life in it.
func (s *Server) transaction(c *server.Peer, k *conn, cmd string) bool {
	if k == nil {
		return false
	}
	if cmd == "MULTI" {
		k.multi = true
		return false
	}
	reply := s.raw(c, []string{cmd})
	for _, key := range k.queued {
		s.hints.push(key, s.now())
	}
	k.multi, k.queued = false, nil
	c.WriteRaw(reply)
	return true
}

// answerLife turns the stored end of a key into what the command asks for.
func (s *Server) answerLife(c *server.Peer, k *conn, cmd string, args []string) bool {
	if len(args) != 1 {
		return false
	}
	if k != nil && k.multi {
		c.WriteError("ERR the embedded server cannot answer " + cmd + " inside MULTI; use a script")
		return true
	}
	reply := s.raw(c, []string{"PTTL", args[0]})
	end, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(reply, ":"), "\r\n"), 10, 64)
	if err != nil || end < 0 { // an error, no such key, or no life
		c.WriteRaw(reply)
		return true
	}
	left := max(end-s.now(), 0)
	switch cmd {
	case "PTTL":
		c.WriteInt(int(left))
	case "TTL":
		c.WriteInt(int((left + 500) / 1000))
	case "PEXPIRETIME":
		c.WriteInt(int(s.born.UnixMilli() + end))
	case "EXPIRETIME":
		c.WriteInt(int((s.born.UnixMilli() + end) / 1000))
	}
	return true
}

// answerInfo says what pkg/redis asks a server at start. The version is the
// oldest one whose commands we use.
func (s *Server) answerInfo(c *server.Peer) bool {
	if reply := s.raw(c, []string{"INFO"}); strings.HasPrefix(reply, "-") {
		c.WriteRaw(reply)
		return true
	}
	c.WriteBulk("# Server\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\ntidegate_embedded:1\r\n" +
		"# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n" +
		"# Persistence\r\nloading:0\r\naof_enabled:0\r\n# Replication\r\nrole:master\r\n")
	return true
}

// raw runs a command untouched on behalf of c and returns the reply's bytes.
func (s *Server) raw(c *server.Peer, args []string) string {
	var buf bytes.Buffer
	p := server.NewPeer(bufio.NewWriter(&buf))
	p.ClientName, p.Ctx, p.Resp3 = rawName, c.Ctx, c.Resp3
	s.srv.Dispatch(p, args)
	p.Flush()
	if c.Ctx == nil {
		c.Ctx = p.Ctx
	}
	return buf.String()
}

// captureNested keeps the context that miniredis gives to calls inside Lua.
// With it, and miniredis' lock held by us, several commands run as one step.
func (s *Server) captureNested() error {
	const probe = "TIDEGATE.NESTED"
	err := s.srv.Register(probe, func(c *server.Peer, _ string, _ []string) {
		if s.nested == nil {
			s.nested = c.Ctx
		}
		c.WriteOK()
	})
	if err != nil {
		return err
	}
	reply := s.raw(&server.Peer{}, []string{"EVAL", "return redis.call('" + probe + "')", "0"})
	if s.nested == nil {
		return errors.New("calls inside scripts are not seen: " + reply)
	}
	return nil
}
