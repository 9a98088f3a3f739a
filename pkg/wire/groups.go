package wire

// Names of consumer groups are built here and nowhere else, so that whoever
// measures how far a room is behind looks at the group that the room is in:
//
//	<robot>.<account>                     reads the account's callbacks
//	<prefix>.sender.<account>.<lane>      reads its replies, or its pushes of one lane
//	<receipts>                            reads receipts and repeats
//	<receipts>-queued                     learns from replies and pushes what waits for the sender
//
// <robot> and <receipts> are settings of those rooms.

// RobotGroup is the group of the robots of one account.
func RobotGroup(robot, account string) string { return robot + "." + account }

// SenderGroup is the group of the senders of one account and lane.
func (t Topics) SenderGroup(account, lane string) string {
	return t.Prefix + ".sender." + account + "." + lane
}

// QueuedGroup is the group in which the receipts room learns what waits.
func QueuedGroup(receipts string) string { return receipts + "-queued" }

// Lanes lists the lanes of the sender, the fastest first.
func Lanes() []string { return []string{LaneReplies, LaneRealtime, LaneBulk} }

// Lane is the topic of one of the sender's lanes.
func (t Topics) Lane(account, lane string) string {
	if lane == LaneReplies {
		return t.Replies(account)
	}
	return t.Pushes(account, lane)
}
