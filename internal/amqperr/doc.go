// Package amqperr is the catalogue of what a client can do wrong: reply code,
// text and whether the channel or the whole connection ends.
//
// There is one constructor per kind of mistake. A text names the entity, its
// vhost, the value received and the current value, in the form that clients of
// RabbitMQ know: "NOT_FOUND - no queue 'orders' in vhost '/'". All of them are
// listed in testdata/errors.golden.
//
// It never formats anything that is not meant for the client's eyes, and it
// never speaks about trouble of our own or of the disk: those are invariants
// and plain error values.
//
//   - error.go: the Error type, scopes, truncation
//   - codes.go: reply codes and their names
//   - access.go: who may do what (403, 530 at login)
//   - entity.go: queues, exchanges and bindings (404, 405, 406)
//   - protocol.go: frames, methods and states (50x, 530, 540)
//   - server.go: what the server imposes (320, 541)
package amqperr
