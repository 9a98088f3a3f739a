package app

import (
	"context"
	"errors"
	"fmt"
	"io"

	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
)

// permits lists the least that each role's user at Kafka must be allowed. users
// gives the user's name of a role; an account that is added needs its lines, as
// it needs its topics.
func (c Config) permits(users func(role string) string) []kafka.Permit {
	l := permitList{users: users}
	t := c.Topics.Names()
	l.topics("topics", true, t.Prefix+".", "Create", "Describe", "DescribeConfigs")

	// The door watches how deep every queue is, and whether its retention is near.
	l.topics("proxy", true, t.Prefix+".", "Describe", "DescribeConfigs")
	for _, group := range []string{t.Prefix + ".", wire.RobotGroup(c.Robot.Group, ""), c.Receipts.Group} {
		l.group("proxy", group, true, "Describe")
	}
	l.write("proxy", t.Receipts(), t.Repeats(), t.DeadLetters())
	l.write("robot", t.Receipts(), t.DeadLetters())
	l.write("sender", t.Receipts(), t.DeadLetters())
	l.write("receipts", t.DeadLetters())
	for _, a := range c.Accounts {
		pushes := []string{t.Pushes(a.Name, wire.LaneRealtime), t.Pushes(a.Name, wire.LaneBulk)}
		waiting := append([]string{t.Replies(a.Name)}, pushes...)
		l.write("proxy", t.Callbacks(a.Name))
		l.read("robot", t.Callbacks(a.Name))
		l.group("robot", wire.RobotGroup(c.Robot.Group, a.Name), false, "Read")
		l.write("robot", t.Replies(a.Name))
		l.read("sender", waiting...)
		for _, lane := range wire.Lanes() {
			l.group("sender", t.SenderGroup(a.Name, lane), false, "Read")
			l.group("receipts", t.SenderGroup(a.Name, lane), false, "Describe") // for the sum of what waits
		}
		l.write("sender", pushes...)
		l.read("receipts", waiting...)
		l.write("receipts", pushes...)
		l.write("deadletters", append([]string{t.Callbacks(a.Name)}, waiting...)...)
	}
	l.read("receipts", t.Receipts(), t.Repeats())
	// Whoever runs 'tidegate deadletters' reads them, and puts them back.
	l.read("deadletters", t.DeadLetters())
	l.write("deadletters", t.DeadLetters(), t.Receipts(), t.Repeats())
	l.group("receipts", c.Receipts.Group, false, "Read")
	l.group("receipts", wire.QueuedGroup(c.Receipts.Group), false, "Read")
	return l.permits
}

type permitList struct {
	users   func(role string) string
	permits []kafka.Permit
	seen    map[kafka.Permit]bool
}

func (l *permitList) add(role string, p kafka.Permit) {
	p.Principal = "User:" + l.users(role)
	if l.seen == nil {
		l.seen = map[kafka.Permit]bool{}
	}
	if !l.seen[p] {
		l.seen[p] = true
		l.permits = append(l.permits, p)
	}
}

func (l *permitList) topics(role string, prefixed bool, name string, operations ...string) {
	for _, op := range operations {
		l.add(role, kafka.Permit{Topic: name, Prefixed: prefixed, Operation: op})
	}
}

func (l *permitList) group(role, name string, prefixed bool, operation string) {
	l.add(role, kafka.Permit{Group: name, Prefixed: prefixed, Operation: operation})
}

func (l *permitList) write(role string, topics ...string) {
	for _, t := range topics {
		l.topics(role, false, t, "Write")
	}
}

func (l *permitList) read(role string, topics ...string) {
	for _, t := range topics {
		l.topics(role, false, t, "Read")
	}
}

// ACLOptions say what to do with the list.
type ACLOptions struct {
	// Users is put before the role's name: "tidegate-" makes tidegate-proxy.
	Users string
	// Apply writes the list into the cluster instead of printing it.
	Apply bool
}

// ACLs prints what each role's user at Kafka must be allowed, as arguments of
// kafka-acls.sh, or writes it into the cluster.
func ACLs(ctx context.Context, src Source, o ACLOptions, out io.Writer) error {
	users := func(role string) string { return o.Users + role }
	if !o.Apply {
		return printACLs(src, users, out)
	}
	c, err := loadFor(src, "")
	if err != nil {
		return err
	}
	permits := c.permits(users)
	admin, done, err := c.admin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := admin.Permit(ctx, permits); err != nil {
		return fmt.Errorf("write access control list (the user needs Alter on the cluster): %w", err)
	}
	fmt.Fprintf(out, "%d permits are in place\n", len(permits))
	return nil
}

// printACLs needs the names of topics, groups and accounts, and no secret:
// whoever keeps the cluster's list need not be allowed to read one.
func printACLs(src Source, users func(role string) string, out io.Writer) error {
	c, err := loadNames(src)
	if err != nil {
		return usage(err)
	}
	if err := errors.Join(at("topics", c.Topics.validate()), c.validateAccounts("")); err != nil {
		return usage(fmt.Errorf("configuration %s cannot be used:\n%w", nameOf(src), err))
	}
	for _, p := range c.permits(users) {
		if _, err := fmt.Fprintln(out, p); err != nil {
			return fmt.Errorf("print access control list: %w", err)
		}
	}
	return nil
}
