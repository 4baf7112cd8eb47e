// Package queue is what happens to a message in a queue: in which order it
// waits, to whom it goes, and what becomes of it.
//
// A queue is a pure state machine. Commands go in through Machine.Apply, an
// entry at a time, and effects come out: deliveries, released message numbers,
// answers. The same entries give the same effects and the same state on every
// machine, so a log of entries, or a snapshot and the entries after it, is the
// whole queue.
//
// It never reads a clock, a message's body or a disk, and it starts no
// goroutine. Time and sizes come with the commands. What a message says is not
// known here: a message is its Number.
//
// Memory: ready messages are ranges of numbers, whatever their count. A
// message costs memory of its own only while a consumer holds it (a slot of 24
// bytes) or while its neighbours have another history than it has (a run of 24
// bytes). See docs/internals/queue.md.
//
// Map of the files:
//
//	types.go        numbers, ranges, identities
//	command.go      the commands and what they mean; codec.go: their bytes
//	effect.go       the effects and what they mean; effects.go: the list of them
//	settings.go     what arguments and policies ask for
//	machine.go      the state, Apply, and the small questions
//	extra.go        the state that only settings ask for
//	enqueue.go      messages and chunks of big messages come in
//	consumer.go     consumers come, go, and get credit
//	serve.go        ready messages are assigned to consumers
//	settle.go       checkouts end; messages return or are released
//	session.go      sessions open and die; recovery in a new incarnation
//	resume.go       what a new leader asks: sessions, consumers, what they hold
//	limit.go        limits of length and bytes; publishes that are refused
//	dead.go         messages that a letter is to tell of
//	deadline.go     messages that expire
//	later.go        messages that wait for a time
//	dedup.go        messages that come twice; publisher.go: by their publishers' numbers; screen.go: by way of an exchange that lets nothing
//	                through twice; keylist.go: keys in the order in which they came
//	weigh.go        the sizes of messages
//	single.go       the single active consumer
//	attr.go         the history of a message
//	runs.go         the sorted set of ready messages of one lane
//	checkouts.go    the messages one consumer holds, by delivery id
//	snapshot.go     the state as bytes; restore.go: and back; snapshotextra.go: what few have
//	explain.go      why nothing is delivered
//	check.go        the invariants of the whole state; checkextra.go: of what few have
package queue
