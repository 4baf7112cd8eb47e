package queuehost

import (
	"slices"
	"sync/atomic"
	"time"

	"holdfast/internal/clock"
)

// Messages that are coming in piece by piece are not in flight yet, and take memory all the same. All that has come of them on a node is
// bounded, together with what is in flight, by the node's credit. Beyond it who is in the middle of a message waits, with one exception, or
// nobody could ever finish: one connection has the turn, goes on until its message is there, and passes the turn on. It loses it if
// nothing comes of it for a while.

// turnStall is how long nothing may come from who has the turn.
const turnStall = time.Second

// coming is what a pool knows of that. Its mutex guards the line.
type coming struct {
	bytes   atomic.Int64
	turn    atomic.Pointer[Credit] // changes with the mutex held
	line    []*Credit              // who waits for the turn, in order
	pressed atomic.Bool            // somebody waits, or has the turn
}

// Coming notes that n more bytes of messages that are not complete have come, or, if n is negative, that so many are not wanted any more
// or part of a complete message.
func (c *Credit) Coming(n int64) {
	p := c.pool
	left := c.coming.Add(n)
	all := p.coming.bytes.Add(n)
	if n > 0 {
		c.came.Add(n)
		return
	}
	if left == 0 {
		p.endTurn(c)
	}
	p.comeOn(all)
}

// MayCome reports whether WaitToCome would return at once.
func (c *Credit) MayCome() bool {
	if c.coming.Load() == 0 {
		return true
	}
	p := c.pool
	used := p.used.Load()
	return used+p.coming.bytes.Load() < p.node || used < p.node && p.coming.turn.Load() == c
}

// WaitToCome returns true when more of an incomplete message may come, at once in the ordinary case, and false when stop was closed first.
// It is for one goroutine.
func (c *Credit) WaitToCome(stop <-chan struct{}) bool {
	p := c.pool
	for !c.MayCome() {
		wake := c.register()
		holder := p.standInLine(c)
		came := int64(0)
		if holder != nil {
			came = holder.came.Load()
		}
		if c.MayCome() {
			c.unregister(wake)
			break
		}
		late, over := clock.After(p.clock, turnStall)
		select {
		case <-wake:
		case <-late:
			c.unregister(wake)
			if holder != nil && holder != c && holder.came.Load() == came {
				p.endTurn(holder)
			}
		case <-stop:
			c.unregister(wake)
			over()
			p.leaveLine(c)
			return false
		}
		over()
	}
	p.leaveLine(c)
	return true
}

// Incomplete returns the bytes of messages that are not complete.
func (c *Credit) Incomplete() int64 { return c.coming.Load() }

// End forgets what was coming in on a connection that has ended: nobody calls Coming any more.
func (c *Credit) End() { c.Coming(-c.coming.Load()) }

// standInLine has c wait for the turn, or take it if nobody has it, and says who has it.
func (p *creditPool) standInLine(c *Credit) (holder *Credit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.coming.pressed.Store(true)
	switch holder = p.coming.turn.Load(); {
	case holder == nil:
		holder = c
		p.coming.turn.Store(c)
	case holder != c && !slices.Contains(p.coming.line, c):
		p.coming.line = append(p.coming.line, c)
	}
	return holder
}

// leaveLine has c wait no longer. It keeps the turn if it has it.
func (p *creditPool) leaveLine(c *Credit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.coming.line = slices.DeleteFunc(p.coming.line, func(w *Credit) bool { return w == c })
	p.coming.pressed.Store(len(p.coming.line) > 0 || p.coming.turn.Load() != nil)
}

// endTurn passes the turn on to who has waited longest, if c has it.
func (p *creditPool) endTurn(c *Credit) {
	if p.coming.turn.Load() != c {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.coming.turn.Load() != c {
		return
	}
	p.coming.turn.Store(nil)
	if len(p.coming.line) > 0 {
		next := p.coming.line[0]
		p.coming.line = p.coming.line[1:]
		p.coming.turn.Store(next)
		p.release(next)
	}
	p.coming.pressed.Store(len(p.coming.line) > 0 || p.coming.turn.Load() != nil)
}

// comeOn lets those look again who wait to go on with a message, if there is credit. all is what is coming on the node.
func (p *creditPool) comeOn(all int64) {
	if p.coming.pressed.Load() && p.used.Load()+all < p.node {
		p.wakeAll()
	}
}
