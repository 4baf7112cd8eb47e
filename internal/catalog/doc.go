// Package catalog is what exists: nodes, vhosts, users, permissions, exchanges, queues and bindings.
//
// The catalog is a pure machine. Commands (encoded bytes, made by the constructors in command.go) go in, a [Result] comes
// out, and the same commands in the same order give the same state on every node. It never does I/O, reads no clock,
// starts no goroutine and draws no random number: whatever is random or local (a generated queue name, a password's salt,
// the time) travels in the command.
//
// Readers never wait: [Machine.View] returns an immutable [View] that any goroutine may keep and read as long as it likes.
// A command's view is published before Apply returns, so whoever waited for the command's result sees its effect.
//
// Map of the files:
//
//	types.go            the records: Node, Queue, Exchange, Binding, User, Permission, Result
//	command.go          the commands, one constructor each
//	names.go            names as they are kept, names the server gives
//	view.go             reading: lookup, ordered listing and paging
//	placed.go           reading: the nodes, and what lives on them
//	route.go            from an exchange and a key to queues
//	policy.go           policies: which hold for a queue or an exchange
//	policy_check.go     what a policy may say
//	effective.go        arguments and policies merged into the settings of a queue
//	equivalence.go      a declare of what exists: is it the same?
//	arguments.go        a declare of what does not: is it possible?
//	machine.go          Machine: decoding commands, publishing views
//	apply_queue.go      what the commands on queues do,
//	apply_exchange.go   on exchanges and bindings,
//	apply_node.go       on nodes and on the members of quorum queues,
//	apply_admin.go      on vhosts, users and permissions
//	apply_policy.go     on policies
//	levels.go           which formats the nodes know and write
//	errors.go           mistakes of administrators
//	snapshot.go         the state as bytes and back
//	codec.go            fields as bytes and back
//	keys.go             the keys things are sorted by
//	definitions.go      export in the form of RabbitMQ's definitions files
package catalog
