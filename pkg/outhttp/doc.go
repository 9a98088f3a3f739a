// Package outhttp calls HTTP addresses that others configured: webhooks, and
// whatever else an operator or a business system may name in a setting.
//
// Such an address is input. Somebody may name the cloud's metadata service, our
// own Redis, or a host name that points at either, and make this process ask on
// his behalf. Therefore:
//
//	URL ──Check──▶ what is written: http or https, a plain host, no login in it
//	    ──dial───▶ what it resolves to: every address, again at the moment of the
//	               connect, against a list of our own (block.go)
//	    ──answer─▶ cut at its size and time; a redirect is an answer, not an order
//
// Invariant: no connection is made to an address that is not public, unless the
// use's own allow-list names it. The check sits in the dialler and sees the
// address that is dialled, so a name that resolves differently a moment later
// gains nothing. Proxies of the environment are not honoured: behind one, the
// address that counts would be dialled by somebody else.
//
// Errors and Redact name the host and never the path, the query or a login: the
// address of a group robot is its key. There is no switch that weakens TLS; a
// private authority is named by its file.
package outhttp
