package queues

import "tidegate/pkg/kafka"

func lagOf(committed, end int64) kafka.Lag {
	return kafka.Lag{Topic: "t", Committed: committed, End: end, Lag: end - max(0, committed)}
}
