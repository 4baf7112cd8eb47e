// Package queuehost runs the queues of this node. A queue's machine (package
// queue) says what happens to a message; queuehost batches the commands that
// reach it, hands them to the group's replicator (package replica), keeps the
// bodies, and carries out the effects: deliveries, confirms, space given back.
// Handle is how anyone reaches a queue.
//
// It never speaks AMQP, never decides what happens to a message, and never
// blocks: a Handle's methods put commands into the queue's inbox and return;
// answers come on the queue's shard worker through Ticket, Consumer and the
// done functions, none of which may block. What one goroutine does through a
// Handle happens in that order.
//
//   - api.go: Ticket, Consumer, Delivery, Publish and the other words shared with the rooms above
//   - credit.go: what a connection may have in flight towards queues
//   - window.go: a session's side of a consumer's credit
//   - handle.go: the operations on one queue
//   - loader.go: bodies that have to be read from the disk
//   - registry.go: which queues run here; orphans and quarantine
//   - inbox.go: commands on their way to the worker
//   - host.go, pack.go, packpub.go, apply.go, stable.go: the queue on its worker: what it keeps, what goes into an entry (publishes: packpub.go), what follows from it, what waits for the disk
//   - outcome.go: publishes with the same fate, joined
//   - admin.go: deletion, quarantine, and other operations that are no commands of the machine's
//   - replay.go: restart: entries, snapshots and the recover command
//   - bodies.go: the map from message numbers to bodies in memory
//   - cache.go: which bodies leave memory, and who waits for that
//   - spilled.go: bodies on their way to the disk and there that are not in the log
//   - lane.go: what the queues of one shard worker share
//   - link.go: links to other nodes, and what goes round between two nodes: lives of a link, credit
//   - far.go, farsend.go, farhear.go: a queue that runs on another node: its session there, what goes there, what comes back
//   - mailbox.go: replies to consumers of direct reply-to on another node
//   - inflow.go: what another node has under way to queues here
//   - guest.go: the other side: a node whose sessions queues here serve
//   - serve.go, serveask.go, servesay.go: one session: what it puts in and settles, the operations it asks for, what it is told
//   - relay.go: its consumers, and bodies that are read for them
//   - farwire.go: the messages between the two
//   - member.go, leader.go: a quorum queue on its worker: the member here, and what it does while it leads
//   - entry.go, resume.go: the session of this node with a quorum queue, and how it is resumed with another leader
//   - holdback.go: acknowledgements that can wait for company
//   - membership.go: which members run here
//   - tries.go: the leader's side of that
//   - watch.go: entries that wait for something, and queues without a leader
//   - dedup.go: keys by which a machine finds messages that come twice
//   - weigh.go: sizes of messages that were there before sizes mattered
//   - loop.go: the link of this node to itself
//   - health.go: what is known of the nodes that quorum queues have sessions with
//   - stats.go: counters and explanations
package queuehost
