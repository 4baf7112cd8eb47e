// Package replica puts the commands of groups in order and drives them: it
// decides when an entry may be applied and tells when it is stable. A group is
// direct (nothing written, applied at once), solo (its entries are in this
// node's log, applied when appended, stable after the sync), or raft (applied when a
// majority of its members has them on disk).
//
// Few workers serve many groups. Each group is pinned to a shard, and the
// shard's worker alone touches the group's host: no locks, no goroutine for a
// group. A worker goes round: it takes its mailbox whole, packs one entry for
// each group that has something to do, appends all of them as one batch to the
// log, applies them, and lets the hosts carry out what follows.
//
// It never knows what a group is (a queue, the catalog), never looks into an
// entry, and a worker never blocks.
//
//   - host.go: what a group brings along, and the entry it packs
//   - replicator.go: direct and solo: when an entry may be applied
//   - shard.go: mailbox, worker, the step of a round
//   - round.go: one round's batch on its way through the log
//   - group.go: a group and its snapshots
//   - node.go: the shards and groups of a node: replay, start, stop
//   - raft.go: the third replicator, on etcd's raft; raftturn.go: its turn in a round; raftstore.go:
//     what raft sees of the log; raftpayload.go: what entries carry; raftreplay.go: from the log
//   - raftsend.go, transport.go, raftcodec.go, rafttime.go: messages, and the beats of all groups
//   - raftelect.go, raftmembers.go, rafttail.go: who leads, who belongs to it, what is kept for whom
//   - raftread.go, raftrest.go, raftleave.go, raftforce.go: read barriers; groups with nothing to do; members
//     that were removed; the survivor of a lost majority. raftplant.go: mistakes for tests
//   - rafttransfer.go, raftgive.go, rafttake.go: the state for a member that is far behind
//   - simple.go: a ready-made host for small machines
//   - stats.go: counters
package replica
