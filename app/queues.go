package app

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"tidegate/proxy/queues"
)

// QueuesOptions say what `tidegate queues` shows.
type QueuesOptions struct {
	Source  Source // where ops.addr stands if Ops is empty
	Ops     string // operations listener of a proxy
	Key     string // of that listener, or file:PATH of it; empty where it is open
	Account string
	Watch   bool // redraw each second, also where Out is no terminal
	Once    bool // one table, also where it is
	All     bool // every partition
	JSON    bool
	Out     io.Writer
}

// queuesEvery is the pause between two tables.
const queuesEvery = time.Second

// Queues shows how much waits where, for how long, and who works it.
func Queues(ctx context.Context, o QueuesOptions) error {
	addr, err := o.listener()
	if err != nil {
		return usage(err)
	}
	c, err := newOpsClient(addr, o.Key)
	if err != nil {
		return err
	}
	terminal := isTerminal(o.Out)
	t := queueTable{from: c.base.Host, all: o.All, color: terminal && os.Getenv("NO_COLOR") == ""}
	if o.JSON || o.Once || !terminal && !o.Watch {
		v, text, err := o.first(ctx, c)
		if err != nil {
			return err
		}
		if o.JSON {
			_, err := o.Out.Write(text)
			return err
		}
		_, err = io.WriteString(o.Out, t.draw(v))
		return err
	}
	return o.live(ctx, c, t, terminal)
}

// listener finds the operations listener: the flag, the configuration, or the
// default.
func (o QueuesOptions) listener() (string, error) {
	switch {
	case o.Ops != "":
		return o.Ops, nil
	case o.Source.File == "" && len(o.Source.Set) == 0:
		return "http://" + DefaultConfig().Ops.Addr, nil
	}
	c, err := loadNames(o.Source) // ops.addr is no secret
	if err != nil {
		return "", err
	}
	scheme := "http://"
	if c.Ops.CertFile != "" {
		scheme = "https://"
	}
	return scheme + reachable(c.Ops.Addr), nil
}

// reachable turns an address to listen on into one to call: one that means every
// interface is called on this machine.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

func (o QueuesOptions) ask(ctx context.Context, c *opsClient) (queues.View, []byte, error) {
	q := url.Values{}
	if o.Account != "" {
		q.Set("account", o.Account)
	}
	var v queues.View
	text, err := c.get(ctx, "/ops/v1/queues", q, &v)
	return v, text, err
}

// first asks, and makes sure that the account is one that is watched: a name
// with a slip would show a table that looks as if nothing waited.
func (o QueuesOptions) first(ctx context.Context, c *opsClient) (queues.View, []byte, error) {
	v, text, err := o.ask(ctx, c)
	if err != nil || o.Account == "" || v.SampledAt.IsZero() || slices.Contains(accountsOf(v), o.Account) {
		return v, text, err
	}
	every := o
	every.Account = ""
	all, _, err := every.ask(ctx, c)
	if err != nil {
		return v, nil, err
	}
	known := "it watches none"
	if names := accountsOf(all); len(names) > 0 {
		known = "it watches " + strings.Join(names, ", ")
	}
	return v, nil, usage(fmt.Errorf("--account %s: %s has no such account; %s", forTerminal(o.Account), c.base.Host, forTerminal(known)))
}

func accountsOf(v queues.View) (names []string) {
	for _, q := range v.Queues {
		if q.Account != "" && !slices.Contains(names, q.Account) {
			names = append(names, q.Account)
		}
	}
	slices.Sort(names)
	return names
}

// live redraws until ctx ends. A proxy that does not answer may be starting
// anew, so that is shown and asked again; only the first time it is an error.
func (o QueuesOptions) live(ctx context.Context, c *opsClient, t queueTable, terminal bool) error {
	tick := time.NewTicker(queuesEvery)
	defer tick.Stop()
	ask := o.first
	for first := true; ; first = false {
		v, _, err := ask(ctx, c)
		ask = o.ask
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && first {
			return err
		}
		text := t.draw(v)
		if err != nil {
			text = err.Error() + "\n"
		}
		if terminal { // to the upper left corner, and what was below is cleared
			text = "\x1b[H\x1b[2J" + text
		}
		if _, err := io.WriteString(o.Out, text); err != nil {
			return fmt.Errorf("show queues: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
