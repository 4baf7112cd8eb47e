package queuehost

import (
	"bytes"
	"sync"
)

// loop is the link of a node to itself: the entry of a quorum queue and the member
// that leads speak the same, wherever they are. Like any link it keeps the order
// of each path, has bounds, and never calls back out of send.
type loop struct {
	reg   *Registry
	begin sync.Once // its life, with the first quorum queue
	paths [2]loopPath
}

// loopPath is messages on their way, for one goroutine that lives while there are any.
type loopPath struct {
	mu      sync.Mutex
	scratch []byte // what a message is made in; kept, or each would grow a new one
	msgs    [][]byte
	bytes   int
	refused bool // somebody has to be told when there is room
	running bool
}

// loopBytes is what may be on its way on one path.
const loopBytes = 16 << 20

// self is this node's id.
func (r *Registry) self() uint64 {
	if r.o.Link != nil {
		return r.o.Link.Self()
	}
	return r.o.Self
}

// send sends a message to a node, which may be this one. See Link.Send.
func (r *Registry) send(node uint64, bulk bool, append func(dst []byte) []byte) bool {
	switch {
	case node == r.self():
		return r.loop.send(bulk, append)
	case r.o.Link == nil:
		return false
	}
	return r.o.Link.Send(node, bulk, append)
}

// start begins the life of the loop.
func (l *loop) start() {
	l.begin.Do(func() { l.reg.LinkUp(l.reg.self(), l.reg.o.Incarnation) })
}

func (l *loop) send(bulk bool, append_ func(dst []byte) []byte) bool {
	p := &l.paths[0]
	if bulk {
		p = &l.paths[1]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bytes >= loopBytes {
		p.refused = true
		return false
	}
	p.scratch = append_(p.scratch[:0])
	msg := bytes.Clone(p.scratch)
	if cap(p.scratch) > 4*messageSize {
		p.scratch = nil
	}
	p.msgs = append(p.msgs, msg)
	p.bytes += len(msg)
	if !p.running && !l.reg.o.Stepped {
		p.running = true
		go func() {
			for l.step(p) {
			}
		}()
	}
	return true
}

// step delivers what is on its way on one path; false: nothing was.
func (l *loop) step(p *loopPath) bool {
	p.mu.Lock()
	msgs := p.msgs
	p.msgs = nil
	if len(msgs) == 0 {
		p.running = false
		p.mu.Unlock()
		return false
	}
	p.mu.Unlock()
	n := 0
	for _, msg := range msgs {
		l.reg.Receive(l.reg.self(), msg)
		n += len(msg)
	}
	p.mu.Lock()
	p.bytes -= n
	room := p.refused
	p.refused = false
	p.mu.Unlock()
	if room {
		l.reg.Writable(l.reg.self())
	}
	return true
}

// StepLoop delivers what this node has sent to itself, and reads what is to be sent to others, for
// a simulator (Options.Stepped); false: there was nothing.
func (r *Registry) StepLoop() bool {
	control := r.loop.step(&r.loop.paths[0])
	did := r.loop.step(&r.loop.paths[1]) || control
	r.loads.mu.Lock()
	waiting := len(r.loads.line) > 0
	r.loads.mu.Unlock()
	if waiting {
		var buf []byte
		r.loads.step(r.loads.newReader(), &buf)
	}
	return did || waiting
}
