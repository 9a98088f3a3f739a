package app

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"tidegate/pkg/telemetry"
	"tidegate/proxy"
	"tidegate/proxy/spool"
)

// SpoolInspect tells what lies in a spool and changes nothing, also while a
// door uses it. Keys are openids: they are shown as the hashes that logs have,
// if the configuration is given, and otherwise as hashes of this run alone.
func SpoolInspect(src Source, dir string, out io.Writer) error {
	c, err := LoadConfig(src.File, src.Set)
	if err != nil {
		return usage(err)
	}
	r, err := spool.Inspect(dir)
	if err != nil {
		return err
	}
	used := ""
	if r.InUse {
		used = ", used by a process"
	}
	fmt.Fprintf(out, "spool %s: %d records wait for the queue (%s)%s\n", dir, r.Waiting, mebibytes(r.Bytes), used)
	if r.Waiting > 0 {
		now := time.Now()
		fmt.Fprintf(out, "oldest %s, newest %s ago\n", now.Sub(r.Oldest).Round(time.Second), now.Sub(r.Newest).Round(time.Second))
	}
	fmt.Fprintf(out, "on disk %s in %d segments; %d records in them were replayed already\n", mebibytes(r.Disk), r.Segments, r.Replayed)
	hash := newEngines(c, nil).hasher
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for i, topic := range r.Topics {
		if i == 0 {
			fmt.Fprintln(t, "\nTOPIC\tRECORDS\tKEYS")
		}
		fmt.Fprintf(t, "%s\t%d\t%d\n", topic.Topic, topic.Records, topic.Keys)
	}
	for i, k := range r.Keys {
		if i == 0 {
			fmt.Fprintln(t, "\nMOST OF A KEY\tRECORDS\tTOPIC")
		}
		fmt.Fprintf(t, "%s\t%d\t%s\n", hash.OpenID(k.Key), k.Records, k.Topic)
	}
	damage(t, r)
	return t.Flush()
}

// damage lists what a human has to look at.
func damage(t io.Writer, r spool.Report) {
	for i, b := range r.Bad {
		if i == 0 {
			fmt.Fprintln(t, "\nUNREADABLE\tOFFSET\tBYTES\tWHAT BECOMES OF IT")
		}
		what := "kept aside at the next start; the rest is replayed"
		if b.Unfinished {
			what = "never acknowledged, cut off at the next start"
			if r.InUse {
				what = "being written, or never acknowledged"
			}
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\n", b.File, b.From, b.To-b.From, what)
	}
	for i, p := range r.Parked {
		if i == 0 {
			fmt.Fprintln(t, "\nPUT ASIDE\tBYTES\tTOPIC")
		}
		topic := p.Topic
		if topic == "" {
			topic = "(unreadable)"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\n", p.File, p.Bytes, topic)
	}
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// SpoolDrain gives Kafka what lies in the spool of a door that is gone, in
// order per user. It may be called again after an error.
func SpoolDrain(ctx context.Context, src Source, dir string, out io.Writer) error {
	c, err := loadFor(src, "")
	if err != nil {
		return err
	}
	r, err := spool.Inspect(dir) // a directory that is not there must not be made
	if err != nil {
		return err
	}
	if r.Waiting == 0 && r.Segments == 0 {
		fmt.Fprintf(out, "spool %s is empty\n", dir)
		return nil
	}
	log, err := telemetry.NewLogger(c.Log)
	if err != nil {
		return usage(err)
	}
	e := newEngines(c, log)
	defer func() { _ = e.stack.Stop(context.WithoutCancel(ctx)) }()
	producer, err := e.Producer()
	if err != nil {
		return err
	}
	d, err := proxy.Drain(ctx, dir, producer, c.Topics.Names(), log.Named("spool"))
	fmt.Fprintf(out, "%d records replayed, %d of them as dead letters; %d left\n", d.Replayed, d.DeadLetters, d.Left)
	if d.Parked > 0 {
		fmt.Fprintf(out, "%d were put aside: see 'tidegate spool inspect %s'\n", d.Parked, dir)
	}
	return err
}
