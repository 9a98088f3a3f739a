package redis

import (
	"context"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// Message is one announcement.
type Message struct{ Channel, Payload string }

// Publish announces payload to whoever listens now. Announcements are hints:
// nobody may miss work because one is lost, so listeners also poll.
func (c *Client) Publish(ctx context.Context, channel, payload string) error {
	_, err := c.write(ctx, "publish", c.key(channel), payload)
	return c.fail("publish", err)
}

// Subscribe hands announcements on the channels to fn, one after the other,
// until ctx ends; it then returns nil. Connection losses are repaired inside,
// and announcements made meanwhile are lost. It uses a connection of its own.
func (c *Client) Subscribe(ctx context.Context, fn func(Message), channels ...string) error {
	names := make([]string, len(channels))
	for i, ch := range channels {
		names[i] = c.key(ch)
	}
	sub := c.rdb.Subscribe(ctx, names...)
	defer sub.Close()
	in := sub.Channel(goredis.WithChannelSize(256))
	for {
		select {
		case <-ctx.Done():
			return nil
		case m, open := <-in:
			if !open {
				return c.fail("subscribe", goredis.ErrClosed)
			}
			fn(Message{Channel: strings.TrimPrefix(m.Channel, c.prefix), Payload: m.Payload})
		}
	}
}
