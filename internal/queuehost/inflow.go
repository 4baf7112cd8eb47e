package queuehost

import (
	"sync/atomic"

	"holdfast/internal/bytecodec"
	"holdfast/internal/planted"
)

// inflow is what a guest has in flight towards our queues, in one life of the
// link. It is bounded by a window, and charged to the node's credit.
type inflow struct {
	guest  *guest
	life   life
	credit Credit
	window int64
	given  atomic.Int64 // cost given back
	told   atomic.Int64 // what the guest knows of that
}

func (f *inflow) appendRoom(dst []byte) []byte {
	given := f.given.Load()
	f.told.Store(given)
	dst = farHead{kind: farRoom, life: f.life}.append(dst)
	return bytecodec.AppendUints(dst, uint64(given), uint64(f.window))
}

// dropped gives back what the guest owes for a message of a try that is over: it counts as under way until somebody says that it is
// not. stray are bytes of chunks that have come without the publish that they belong to.
func (f *inflow) dropped(stray *int64, kind farKind, c cut) {
	switch {
	case planted.Is(planted.WindowLeaks):
	case kind == farChunk:
		*stray += int64(len(c.Rest))
	case kind.publishes():
		if kind == farBehind {
			c.Uint()
		}
		c.Uint()
		c.Uint()
		for len(c.Rest) > 0 {
			size, chunked := c.skipPublish()
			if c.Bad() {
				return
			}
			if chunked {
				size += *stray
				*stray = 0
			}
			f.given.Add(size + overhead)
		}
	}
}

// gave notes credit given back of which no outcome speaks, and tells the guest
// when it is worth it, or nothing is left.
func (f *inflow) gave() {
	if left := f.credit.InFlight(); left > 0 && f.given.Load()-f.told.Load() < f.window/16 {
		return
	}
	g := f.guest
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.flow == f && !g.dead {
		g.roomDue = true
		g.notify()
	}
}
