// Package webhook tells business systems what becomes of their messages.
//
//	store.Apply ──▶ row of the message ┐ one
//	             └▶ row of the outbox  ┘ transaction
//	outbox ──claim──▶ sign ──▶ POST to the app ──▶ delivered, or due again later
//
// Every change of state of a push becomes one event for the app that asked for
// the push. Events are signed as the specification of Standard Webhooks has it,
// so that a receiver needs no code of ours to verify them.
//
// Invariants: an event exists exactly when the change does. It goes out at
// least once, with the same id on every attempt. Events of one message go to
// one endpoint one after the other, in the order of the changes: the next waits
// until the one before is taken or given up. An endpoint has its own worker, its
// own bound of calls at once and its own pauses, so that a slow one holds up
// nobody else.
//
// On failure: an attempt is repeated with growing pauses until the event is a
// day old; a node that dies loses its claims when they lapse, and another sends
// again. An endpoint that has taken nothing for long is disabled with an alarm:
// its events go on to be kept, and leave when it is enabled again, if they are
// not too old by then.
package webhook
