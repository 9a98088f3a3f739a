package queues

import (
	"tidegate/pkg/wire"
)

// Queue is one topic as one consumer group reads it.
type Queue struct {
	Name    string // callbacks, replies, pushes.bulk, receipts, …
	Account string // empty where all accounts share it
	Topic   string
	Group   string
	Bulk    bool // Config.Bulk holds for it
}

// Names are what the names of topics and groups are made of.
type Names struct {
	Topics   wire.Topics
	Robot    string // begins the names of the robots' groups
	Receipts string // group of the receipts room
}

// Of lists the queues of the accounts, and those that they share.
func (n Names) Of(accounts []string) []Queue {
	var out []Queue
	for _, a := range accounts {
		out = append(out, Queue{Name: "callbacks", Account: a, Topic: n.Topics.Callbacks(a), Group: wire.RobotGroup(n.Robot, a)})
		for _, lane := range wire.Lanes() {
			out = append(out, Queue{Name: laneName(lane), Account: a, Topic: n.Topics.Lane(a, lane), Group: n.Topics.SenderGroup(a, lane), Bulk: lane == wire.LaneBulk})
		}
		for _, lane := range wire.Lanes() { // what the receipts room has not noted as waiting yet
			out = append(out, Queue{Name: "queued." + laneName(lane), Account: a, Topic: n.Topics.Lane(a, lane), Group: wire.QueuedGroup(n.Receipts), Bulk: lane == wire.LaneBulk})
		}
	}
	return append(out,
		Queue{Name: "receipts", Topic: n.Topics.Receipts(), Group: n.Receipts},
		Queue{Name: "repeats", Topic: n.Topics.Repeats(), Group: n.Receipts})
}

func laneName(lane string) string {
	if lane == wire.LaneReplies {
		return "replies"
	}
	return "pushes." + lane
}

// subject is how alarms and people name the queue: "callbacks bank".
func (q Queue) subject() string {
	if q.Account == "" {
		return q.Name
	}
	return q.Name + " " + q.Account
}
