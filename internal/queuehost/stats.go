package queuehost

import "time"

// Stats are a queue's counters. Counts are as of the last round; totals are
// since the node started.
type Stats struct {
	Ready, Unacked, Consumers uint64
	Bytes                     uint64 // of ready and unacked messages
	Published, Delivered      uint64
	Acked, Redelivered        uint64
	Gets, GetsEmpty           uint64
	BodiesInMemory            uint64 // bytes
	Unstable                  uint64 // persistent publishes that wait for the disk
}

// Explanation says how a queue stands and why its ready messages do not move.
type Explanation struct {
	Stats
	// OldestUnacked is how long the oldest checkout has been out; 0 if there is none.
	OldestUnacked time.Duration
	// BlockedBy says in a few words what the ready messages wait for: empty if
	// there are none or they are being delivered.
	BlockedBy string
	// Lines say the same and more in sentences.
	Lines []string
}
