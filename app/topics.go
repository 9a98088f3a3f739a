package app

import (
	"context"
	"fmt"
	"io"

	"tidegate/pkg/kafka"
	"tidegate/pkg/telemetry"
)

// topicSpecs lists every topic that the configuration needs.
func (c Config) topicSpecs() []kafka.TopicSpec {
	names := c.Topics.Names().Shared()
	for _, a := range c.Accounts {
		names = append(names, c.Topics.Names().OfAccount(a.Name)...)
	}
	specs := make([]kafka.TopicSpec, len(names))
	for i, n := range names {
		specs[i] = kafka.TopicSpec{Name: n, Partitions: c.Topics.Partitions, Replication: c.Topics.Replication, Retention: c.Topics.Retention, MinInsync: c.Topics.MinISR}
	}
	return specs
}

// admin asks Kafka for a command that does one thing and ends.
func (c Config) admin(ctx context.Context) (a *kafka.Admin, done func(), err error) {
	log, err := telemetry.NewLogger(c.Log)
	if err != nil {
		return nil, nil, usage(err)
	}
	e := newEngines(c, log)
	a, err = e.Admin()
	return a, func() { _ = e.stack.Stop(context.WithoutCancel(ctx)) }, err
}

// Topics creates the missing topics and shows how the others stand. Existing
// topics are never changed: a new partition count would move users to other
// partitions while their old records wait.
func Topics(ctx context.Context, src Source, dryRun bool, out io.Writer) error {
	c, err := loadFor(src, "")
	if err != nil {
		return err
	}
	admin, done, err := c.admin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if dryRun {
		return showTopics(ctx, admin, c.topicSpecs(), out)
	}
	res, err := admin.EnsureTopics(ctx, c.topicSpecs())
	for _, name := range res.Created {
		fmt.Fprintln(out, "created ", name)
	}
	for _, d := range res.Differences {
		fmt.Fprintln(out, "differs ", d)
	}
	if err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	fmt.Fprintf(out, "%d topics, %d created, %d settings differ\n", len(c.topicSpecs()), len(res.Created), len(res.Differences))
	return nil
}

func showTopics(ctx context.Context, admin *kafka.Admin, specs []kafka.TopicSpec, out io.Writer) error {
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	infos, err := admin.DescribeTopics(ctx, names)
	if err != nil {
		return fmt.Errorf("describe topics: %w", err)
	}
	for _, t := range infos {
		if !t.Exists {
			fmt.Fprintln(out, "missing ", t.Name)
			continue
		}
		fmt.Fprintf(out, "exists   %s: %d partitions, replication %d, retention %s\n", t.Name, t.Partitions, t.Replication, t.Retention)
	}
	return nil
}
