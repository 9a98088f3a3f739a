// Package sender is the only door out: it takes replies and pushes from the
// queue, calls WeChat, and says what came of each.
//
//	replies          ─┐
//	pushes.realtime  ─┼─▶ token ▸ place ▸ intent ▸ permit ▸ request ▸ outcome row ▸ receipt ▸ commit
//	pushes.bulk      ─┘
//
// Each account and lane has a consumer group of its own, so that neither
// accounts nor lanes stand in each other's way. Replies and pushes call
// different APIs with different quotas at WeChat; each account and API is a
// road with a cap that is never exceeded on this node. On a road realtime goes
// strictly before bulk. The permit is taken last, with everything else ready
// (T41), and retries take permits too (T42).
//
// Invariants. The intent is durable before the first request of a message
// (D7). A push keeps one client_msg_id, its own id, through all tries, and is
// never tried again later than eight minutes after the first try when that try
// may have arrived (G9). Every letter ends in exactly one terminal receipt,
// which is durable before the offset may be committed. Letters of one follower
// are sent in order: a letter that waits holds its key.
//
// What is not known. A request that may have arrived is not a failure. Pushes
// go again with the same client_msg_id, which WeChat absorbs; replies go again
// marked as possible duplicates, or end as unknown, as their class says. A
// letter that comes back after a crash with its intent there and no outcome is
// treated in the same way; one with an outcome is not tried again.
//
// On failure. Database away: nothing is sent. Queue away: outcomes are kept in
// memory and offsets are not committed. WeChat away or refusing an account or
// an API: the road is closed, one probe at a time looks whether it is open
// again, and letters wait in the queue: an API whose daily quota is used up is
// closed until midnight in Beijing, and what has no expiry of its own goes out
// after that. Memory stays bounded, because a letter that waits keeps at most a
// worker or its key. A letter nobody can read, and one whose tries are used up
// without doubt, becomes a dead letter.
package sender
