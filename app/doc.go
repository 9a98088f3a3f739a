// Package app puts the rooms together: one configuration becomes roles, and
// `dev` becomes every role in one process with embedded engines and the
// simulator. It is the only package that knows every room, and it holds no
// logic of any of them.
//
// A role's life: load and validate the configuration, open the engines that
// the role needs (each undo is registered right after its do), make the room,
// run it together with the operations listener, and on a signal stop in the
// order refuse new work ▸ finish what is in flight ▸ flush the producer ▸
// close Redis, SQL, Kafka – under one deadline.
package app
