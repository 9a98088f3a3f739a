package plugin

// Read is what a client makes of an answer's body.
var Read = read
