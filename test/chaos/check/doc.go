// Package check says whether a history (test/chaos/history) keeps what Tidegate
// promises. It knows nothing but events: no deployment, no clock, no product
// code. It goes over the history a fixed number of times, so hundreds of
// thousands of callbacks take a second.
//
// Words. A cause is a callback, named by the token in its text; it is acked once
// any of its deliveries was answered with one of the three acks. An effect is a
// record of the callbacks topic, or a reply that a user saw; the first effect of
// a cause is the one that counts, later ones are duplicates.
//
//	C1  lost            an acked cause without an effect
//	C2  duplicate       a second visible reply; a second record where the run forbids it
//	    split identity  records of one cause under two ids
//	    merged          records of two causes under one id
//	C3  inversion       y was sent after x had been acked, and y's first effect is earlier
//	    split key       records of one user in two partitions, whose order nothing tells
//	C7  invented        an effect without a cause
//	    misdirected     an effect for another user than its cause's
//	    cross-account   an effect in another account than its cause's
//	C8  late            an ack that took 4.5 s or more; an acks' p99 above the limit
//	    late effect     a first effect more than 60 s after ack and last fault
//	C12 malformed       an answer outside G2
//	    refused         503, where the run does not allow it
//	    silent          no answer, where the run does not allow it
//	C0  broken history  the history contradicts itself and proves nothing
//	    poll skip, nonmonotonic poll: the log was not read whole, or out of order
//
// Inversion is real-time order per (account, openid): what was sent while the
// other was still on its way may come in either order, because WeChat does not
// wait either.
//
// Every finding carries the smallest slice of the history that shows it.
package check
