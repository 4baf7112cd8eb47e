package queuehost

import (
	"slices"
	"sync/atomic"
	"time"

	"holdfast/internal/clock"
)

// What has come of messages and transactions that are not complete is not in flight yet, and takes memory all the same. All of it on a node is
// bounded, together with what is in flight, by the node's credit. Beyond it who holds more than a little of it waits, with one exception,
// or nobody could ever finish: one connection has the turn, goes on until what it holds is complete, and passes the turn on.
//
// The turn is taken from who makes too little of it, or too much: it is passed on, and if what is incomplete is far beyond the credit,
// what that connection holds is given up. A connection never holds more than its most. So a node holds at most its credit, half of the most of a
// connection, the most of the one that has the turn, and comingShare of each other. See docs/decisions/0019-what-is-not-complete.md.

const (
	// comingShare is what a connection may hold whatever others do: what one read may bring is no matter.
	comingShare = 64 << 10
	// turnStall is after how long it is looked at what has come of who has the turn, and turnLeast how much it has to be. Who
	// did not keep up the last time is looked at slowAgain times as often.
	turnStall = time.Second
	turnLeast = 64 << 10
	slowAgain = 8
)

// coming is what a pool knows of that. Its mutex guards the line and what the turn is judged by.
type coming struct {
	most    int64 // of one connection
	bytes   atomic.Int64
	turn    atomic.Pointer[Credit] // changes with the mutex held
	line    []*Credit              // who waits for the turn, in order
	pressed atomic.Bool            // somebody waits, or has the turn

	looked     int64 // when the holder was last looked at, by the clock's Mono
	then       int64 // what had come of it
	turnBefore int64 // what had come of it when it got the turn
}

// Coming notes that n more bytes of what is not complete have come, or, if n is negative, that so many are not wanted any more
// or part of something complete.
func (c *Credit) Coming(n int64) {
	p := c.pool
	left := c.coming.Add(n)
	all := p.coming.bytes.Add(n)
	if n > 0 {
		c.came.Add(n)
		return
	}
	if left <= comingShare {
		p.endTurn(c)
	}
	p.comeOn(all)
}

// TooMuch reports whether the connection holds more than any may of what is not complete: some of it has to be given up.
func (c *Credit) TooMuch() bool { return c.coming.Load() > c.pool.coming.most }

// MayCome reports whether WaitToCome would return at once.
func (c *Credit) MayCome() bool {
	if c.coming.Load() <= comingShare {
		return true
	}
	p := c.pool
	used := p.used.Load()
	return used+p.coming.bytes.Load() < p.node || used < p.node && p.coming.turn.Load() == c
}

// WaitToCome returns true when more of what is incomplete may come, at once in the ordinary case, and false when stop was closed first.
// It is for one goroutine.
func (c *Credit) WaitToCome(stop <-chan struct{}) bool {
	p := c.pool
	for !c.MayCome() {
		wake := c.register()
		again := p.standInLine(c)
		if c.MayCome() {
			c.unregister(wake)
			break
		}
		late, over := clock.After(p.clock, again)
		select {
		case <-wake:
		case <-late:
			c.unregister(wake)
			p.judge()
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

// Incomplete returns the bytes of what is not complete.
func (c *Credit) Incomplete() int64 { return c.coming.Load() }

// End forgets what was coming in on a connection that has ended: nobody calls Coming any more.
func (c *Credit) End() { c.Coming(-c.coming.Load()) }

// OnGivenUp has f called when the connection is to give up what it holds that is not complete. It is called before anything has come. f must not block.
func (c *Credit) OnGivenUp(f func()) { c.giveUp = f }

// standInLine has c wait for the turn, or take it if nobody has it, and says after how long the holder is looked at.
func (p *creditPool) standInLine(c *Credit) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.coming.pressed.Store(true)
	holder := p.coming.turn.Load()
	switch {
	case holder == nil:
		p.giveTurn(c)
		holder = c
	case holder != c && !slices.Contains(p.coming.line, c):
		p.coming.line = append(p.coming.line, c)
	}
	stall, _ := holder.pace()
	return stall
}

// giveTurn gives c the turn. The mutex is held.
func (p *creditPool) giveTurn(c *Credit) {
	t := &p.coming
	t.turn.Store(c)
	t.then = c.came.Load()
	t.looked, t.turnBefore = p.clock.Mono(), t.then
}

// pace is how much has to come of who has the turn, in which time. The mutex is held.
func (c *Credit) pace() (time.Duration, int64) {
	if c.slow {
		return turnStall / slowAgain, turnLeast / slowAgain
	}
	return turnStall, turnLeast
}

// judge takes the turn from who does not make enough of it, or has it for too long while others wait. Of the time in which it was itself held
// back nothing is expected.
func (p *creditPool) judge() {
	p.mu.Lock()
	t := &p.coming
	c := t.turn.Load()
	if c == nil || len(t.line) == 0 {
		p.mu.Unlock()
		return
	}
	stall, least := c.pace()
	now, came := p.clock.Mono(), c.came.Load()
	if now-t.looked < int64(stall) {
		p.mu.Unlock()
		return
	}
	slow := came-t.then < least
	t.looked, t.then = now, came
	if c.waiting.Load() || p.used.Load() >= p.node || !slow && came-t.turnBefore < 2*t.most {
		p.mu.Unlock()
		return
	}
	c.slow = c.slow || slow
	p.passOn()
	far := t.bytes.Load()+p.used.Load() >= p.node+t.most/2
	p.mu.Unlock()
	if far && c.giveUp != nil {
		c.giveUp()
	}
}

// leaveLine has c wait no longer. It keeps the turn if it has it.
func (p *creditPool) leaveLine(c *Credit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.coming.line = slices.DeleteFunc(p.coming.line, func(w *Credit) bool { return w == c })
	p.coming.pressed.Store(len(p.coming.line) > 0 || p.coming.turn.Load() != nil)
}

// endTurn passes the turn on, if c has it and needs it no longer.
func (p *creditPool) endTurn(c *Credit) {
	if p.coming.turn.Load() != c {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.coming.turn.Load() == c {
		c.slow = false
		p.passOn()
	}
}

// passOn gives the turn to who has waited longest. The mutex is held.
func (p *creditPool) passOn() {
	t := &p.coming
	t.turn.Store(nil)
	if len(t.line) > 0 {
		next := t.line[0]
		t.line = t.line[1:]
		p.giveTurn(next)
		p.release(next)
		if next.slow && len(t.line) > 0 {
			p.release(t.line[0]) // to look at it sooner than it was about to
		}
	}
	t.pressed.Store(len(t.line) > 0 || t.turn.Load() != nil)
}

// comeOn lets those look again who wait to go on, if there is credit. all is what is coming on the node.
func (p *creditPool) comeOn(all int64) {
	if p.coming.pressed.Load() && p.used.Load()+all < p.node {
		p.wakeAll()
	}
}
