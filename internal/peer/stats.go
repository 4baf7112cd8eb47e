package peer

import (
	"maps"
	"sync/atomic"
	"time"
)

// Stats is what the links to one peer have come to since this node started, or since the node became a peer.
type Stats struct {
	Up         bool
	Lanes      [Lanes]LaneStats
	Links      uint64        // how often the link came up
	Suspicions uint64        // how often the node became suspect
	RoundTrip  time.Duration // of the last heartbeat and its echo; 0: none came back yet
}

// LaneStats is one lane of a peer. Bytes are those of messages with their heads, without heartbeats.
type LaneStats struct {
	SentMessages, SentBytes         uint64 // taken by Send; what a link that broke has lost is among them
	ReceivedMessages, ReceivedBytes uint64
	Refused                         uint64 // by Send, because the lane was full
	Waiting                         int    // bytes taken and not yet written
}

// receivedCounts is what came on a lane of a peer, over all its links.
type receivedCounts struct{ messages, bytes atomic.Uint64 }

func (c *receivedCounts) add(messages, bytes uint64) {
	if messages > 0 {
		c.messages.Add(messages)
		c.bytes.Add(bytes)
	}
}

// echoed is called when a ping has come back. What is no time of ours is left alone.
func (g *target) echoed(ping int64) {
	if took := g.o.Clock.Mono() - ping; took >= 0 && took <= int64(time.Minute) {
		g.roundTrip.Store(max(took, 1))
	}
}

// stats gathers what the target has counted.
func (g *target) stats() Stats {
	s := Stats{
		Up: g.up.Load() != nil, Links: g.links.Load(), Suspicions: g.suspected.Load(), RoundTrip: time.Duration(g.roundTrip.Load()),
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range s.Lanes {
		l, lane := &s.Lanes[i], g.link.out[i]
		lane.mu.Lock()
		l.SentMessages, l.SentBytes, l.Refused = lane.counts.messages, lane.counts.bytes, lane.counts.refused
		if !lane.closed {
			l.Waiting = len(lane.pending) + lane.writing
		}
		lane.mu.Unlock()
		l.ReceivedMessages, l.ReceivedBytes = g.received[i].messages.Load(), g.received[i].bytes.Load()
	}
	return s
}

// Stats are the counts of the nodes named in SetPeers or found at its addresses.
func (t *TCP) Stats() map[NodeID]Stats {
	out := map[NodeID]Stats{}
	for id, g := range maps.All(*t.byID.Load()) {
		out[id] = g.stats()
	}
	return out
}

// Peers are the nodes named in SetPeers or found at its addresses, and whether
// the link to each is up.
func (t *TCP) Peers() map[NodeID]bool {
	out := map[NodeID]bool{}
	for id, g := range maps.All(*t.byID.Load()) {
		out[id] = g.up.Load() != nil
	}
	return out
}
