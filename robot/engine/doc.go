// Package engine decides what to do with one callback. It is pure: rules, a
// callback and where its follower stands go in, a decision comes out, with
// where the follower stands then; it opens no connection, reads no clock (the
// time is that of the callback) and keeps no state, so the same callback always
// gets the same answer and a redelivery cannot change it.
//
//	rules.yaml ── Parse ──▶ Rules ── DecideIn(callback, situation) ──▶ Decision
//	                          │                            ├ replies, rendered
//	                          │                            ├ a call; Render(answer) ──▶ replies
//	                          │                            ├ an engine outside; Take(answer) ──▶ replies
//	                          │                            ├ a limit; Refuse ──▶ what there is instead
//	                          │                            ├ a dialogue's next state
//	                          │                            └ silence
//	                          └──── AtOnce(callback) ───▶ Instant, for the door
//
// The first rule that matches wins; the order in the file is the order of
// matching. Rules are immutable: a reload makes new ones and the room swaps
// the pointer.
//
// The door. Rules with "answer: at_once" are answered in the acknowledgement
// itself (decisions.md D2). Rooms do not import each other, so package app
// hands (*Rules).AtOnce to the door as a plain function value: its result
// type Instant is an alias of an unnamed struct, which the door declares for
// itself, word for word. Door and robot read the same file. If they hold
// different versions for a moment nothing is lost: a callback that the door
// did not answer is answered by the robot as a reply, and one that it did
// answer is never answered again.
//
// Content from outside (the follower's text, a back end's answer) is data and
// never template source. Where it goes decides how it is written: JSON bodies
// and query values are encoded from a tree, path segments are escaped, chat
// text cannot open an anchor. Templates are bounded in source, in steps and
// in output; whatever goes wrong in one is an error and leads to the rule's
// fallback text, never to a panic.
package engine
