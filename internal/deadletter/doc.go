// Package deadletter is what a message's death does to it: the event is recorded in its headers, and what it has been through decides where it
// may go.
//
// It is pure: it reads the view of a message and appends bytes. It knows nothing of queues, exchanges and routing but their names; who
// carries the letter is the broker.
//
// The history of a message is in its headers, where clients read it: x-death, x-first-death-* and x-last-death-*, in RabbitMQ's form. As a
// client may write the same names, the message says beside its headers whether they are the server's own.
//
// Map of the files:
//
//	deadletter.go  reasons, the keys of a message, the rule against cycles
//	record.go      an event becomes part of the headers
package deadletter
