// Package session knows what one client has been promised: the connection's
// handshake and end, its channels, delivery tags, prefetch, confirms and
// transactions. It speaks to the broker only.
//
// A connection has a reader and a writer. The reader parses its buffer in
// place and carries frames out at once, collecting publishes and
// acknowledgements until the buffer is empty: then each queue hears of them in
// one call. A method that has to wait for the rest of the broker runs on a
// worker of its channel, and the other channels go on. The writer swaps the
// outbox whole, gives out delivery tags in the order of writing, and joins
// everything into few writes.
//
// It never routes, never touches a queue but through the broker, never opens a
// file, and never waits on a shard worker's goroutine.
//
//   - server.go: listeners, counters
//   - conn.go: a connection's life; handshake.go: its beginning; dispatch.go: frames to channels; read.go: the buffer; turns.go: which reader may go on
//   - channel.go: a channel's life, who owns it, flushing; backlog.go: what waits for a busy one
//   - methods.go: the methods; publish.go, incomplete.go, tx.go: publishing; consume.go, flow.go, unacked.go: consuming, settling, prefetch
//   - confirm.go: what publishers are owed
//   - outbox.go, write.go: the way out; raw.go: writing without waiting
//   - pulse.go: heartbeats; block.go: alarms; info.go: listings
package session
