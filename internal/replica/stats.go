package replica

import (
	"sync/atomic"

	"holdfast/internal/metrics"
)

// Stats are the counters of a node's shards, summed; totals since the start.
type Stats struct {
	Shards    int
	Groups    int
	Rounds    uint64
	Entries   uint64 // applied
	Records   uint64 // appended to the log, snapshots included
	Batches   uint64 // rounds that appended anything
	Snapshots uint64
	BusyNanos uint64 // time spent in rounds
	InLog     int64  // rounds waiting for the disk
	Sent      uint64 // messages to other members, heartbeats counted by the node
	// RoundTime and StableTime are in seconds: how long a round took, and how
	// long one waited for the disk.
	RoundTime, StableTime metrics.Distribution
}

type shardCounters struct {
	rounds, entries, records, batches, snapshots, busy, sent atomic.Uint64
	inLog                                                    atomic.Int64
	roundTime, stableTime                                    *metrics.Histogram
}

func (c *shardCounters) round(nanos int64) {
	c.rounds.Add(1)
	c.busy.Add(uint64(nanos))
	c.roundTime.Observe(float64(nanos) * 1e-9)
}

func (c *shardCounters) appended(records int) {
	c.batches.Add(1)
	c.records.Add(uint64(records))
	c.inLog.Add(1)
}

func (c *shardCounters) stable(nanos int64) {
	c.inLog.Add(-1)
	c.stableTime.Observe(float64(nanos) * 1e-9)
}

// Stats sums the counters. Any goroutine may call it.
func (n *Node) Stats() Stats {
	st := Stats{Shards: len(n.shards)}
	n.mu.RLock()
	st.Groups = len(n.groups)
	n.mu.RUnlock()
	for _, s := range n.shards {
		c := &s.stats
		st.Rounds += c.rounds.Load()
		st.Entries += c.entries.Load()
		st.Records += c.records.Load()
		st.Batches += c.batches.Load()
		st.Snapshots += c.snapshots.Load()
		st.BusyNanos += c.busy.Load()
		st.InLog += c.inLog.Load()
		st.Sent += c.sent.Load()
		st.RoundTime.Add(c.roundTime.Read())
		st.StableTime.Add(c.stableTime.Read())
	}
	return st
}
