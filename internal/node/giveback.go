package node

import (
	"runtime/debug"
	"runtime/metrics"
)

const (
	// calmBytes is how much a node may allocate between two looks and count as calm.
	calmBytes = 1 << 20
	// calmLooks is for how many looks in a row it must be.
	calmLooks = 2
	// giveBackMin is how many bytes must be there to be given back, and giveBackShare which part of what is live besides.
	giveBackMin   = 4 << 20
	giveBackShare = 8
)

// heapNow is what the runtime knows of its heap, in bytes.
type heapNow struct {
	allocated uint64 // since the process began
	live      uint64 // when the collector ran last, without ballast
	objects   uint64 // live or garbage, without ballast
	free      uint64 // neither in use nor given back to the system
}

// giveBack returns memory to the system when a time is over in which much was used: thousands of queues were declared, a
// backlog was drained. By itself the collector runs when the heap has doubled, which a node that has become calm does not
// bring about, and the runtime keeps what it found. A calm node allocates so little that this costs it less than a
// hundredth of a core, however large its heap is: there must be something to collect, in proportion to what is live.
type giveBack struct {
	read    func() heapNow
	collect func() // garbage, and return what is free
	before  uint64 // allocated at the last look
	calm    int    // looks
}

// look collects if the node has been calm and there is enough to give back.
func (g *giveBack) look() {
	now := g.read()
	if now.allocated-g.before > calmBytes {
		g.calm = 0
	} else {
		g.calm++
	}
	g.before = now.allocated
	spare := now.objects - min(now.objects, now.live) + now.free
	if g.calm >= calmLooks && spare >= giveBackMin+now.live/giveBackShare {
		g.collect()
		g.calm = 0
	}
}

// newGiveBack is for a node with ballast.
func newGiveBack(b ballast) *giveBack {
	return &giveBack{read: b.readHeap, collect: debug.FreeOSMemory}
}

// readHeap asks the runtime, which stops nobody for it.
func (b ballast) readHeap() heapNow {
	samples := [...]metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples[:])
	return heapNow{
		allocated: samples[0].Value.Uint64(), free: samples[3].Value.Uint64(),
		live: b.less(samples[1].Value.Uint64()), objects: b.less(samples[2].Value.Uint64()),
	}
}
