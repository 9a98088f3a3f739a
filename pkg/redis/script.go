package redis

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// Script is Lua that runs on the server as one step. Write above each script
// its keys, its arguments and its result.
type Script struct {
	src string
	sha string
}

// NewScript prepares a script. Nothing is sent.
func NewScript(src string) *Script {
	sum := sha1.Sum([]byte(src))
	return &Script{src: src, sha: hex.EncodeToString(sum[:])}
}

// Run executes the script at most once. The server is asked by digest; if it
// does not know the digest (first use, restart, failover, another node) it is
// sent the text, which is safe because an unknown digest executed nothing.
//
// All keys must be in keys and must share one hash tag; that is checked here, so
// that a mistake shows on a single server and not first in a cluster. The result is int64,
// string, []any or nil (Lua's false and nil).
func (s *Script) Run(ctx context.Context, c *Client, keys []string, args ...any) (any, error) {
	tail, err := s.tail(make([]any, 0, 1+len(keys)+len(args)), c, keys, args)
	if err != nil {
		return nil, err
	}
	v, err := c.write(ctx, append([]any{"evalsha", s.sha}, tail...)...)
	if err != nil && isNoScript(err) {
		v, err = c.write(ctx, append([]any{"eval", s.src}, tail...)...)
	}
	if isNil(err) {
		return nil, nil
	}
	return v, c.fail("script", err)
}

func isNoScript(err error) bool {
	return goredis.HasErrorPrefix(err, "NOSCRIPT") || strings.Contains(err.Error(), "NOSCRIPT No matching script")
}
