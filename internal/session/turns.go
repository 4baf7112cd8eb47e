package session

import "runtime"

// bulkBytes is how much a connection has to have sent at once to need a turn.
const bulkBytes = 8 << 10

// yieldFrames is after how many frames a reader with a turn lets others run. At each
// read it costs 8 % of the CPU time of 1 KiB messages; never lets a queue
// of 16-byte messages grow that its consumer could have kept short.
const yieldFrames = 3000

// turns are what readers with much to carry out take in turn: half as many at a
// time as there are processors, first come, first served.
//
// A publisher that never waits keeps its reader busy for ever. With as many such
// readers as processors, Go's scheduler comes to look for sockets that have
// become readable only every 10 ms, and everybody else starves: measured on two
// cores with four publishers of 16 bytes and four consumers that acknowledge
// with a prefetch of 200, 31,000 deliveries a second beside 3.9 M publishes; with turns 1.1 to 1.7 M
// beside 4 M, at less CPU time a message. Whoever has a turn never waits
// for anything while it has it, so turns always come round.
type turns chan struct{}

func newTurns() turns { return make(turns, max(1, runtime.GOMAXPROCS(0)/2)) }

// takeTurn waits for a turn if much was read.
func (c *conn) takeTurn() {
	if c.slab.w-c.slab.r < bulkBytes {
		return
	}
	select {
	case c.server.turns <- struct{}{}:
	default:
		c.waiting.Store(true)
		c.server.turns <- struct{}{}
		c.waiting.Store(false)
	}
	c.turn = true
}

// endTurn gives the turn back, if there was one, and from time to time lets
// others run: without that, what was handed on waits until the socket is empty.
func (c *conn) endTurn() {
	if !c.turn {
		return
	}
	c.turn = false
	<-c.server.turns
	if c.frames >= yieldFrames {
		c.frames = 0
		runtime.Gosched()
	}
}

// aside runs a wait in the middle of a turn, without holding it.
func (c *conn) aside(wait func() bool) bool {
	c.waiting.Store(true)
	defer c.waiting.Store(false)
	if !c.turn {
		return wait()
	}
	<-c.server.turns
	ok := wait()
	c.server.turns <- struct{}{}
	return ok
}
