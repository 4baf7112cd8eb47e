package broker

import (
	"sync"

	"holdfast/internal/queuehost"
)

// slot lines up what is to go to one queue.
type slot struct {
	handle *queuehost.Handle
	lined  *lined               // nil when nothing is
	reply  string               // not "": handle is a mailbox, and this the name of a consumer that it leads to. Then it lines nothing up itself, see line
	to     *queuehost.Addressee // the same
}

// lined is messages lined up for one queue. It is borrowed between the first
// Publish and the Flush: an idle channel holds no memory for it.
type lined struct {
	publishes []queuehost.Publish
	settled   []queuehost.Settled // of a transaction
}

var linedPool = sync.Pool{New: func() any { return new(lined) }}

// keepLined is the largest list that is kept for its next use.
const keepLined = 8192

func (s *slot) flush() {
	l := s.lined
	s.lined = nil
	s.handle.Put(l.publishes)
	l.free()
}

// free gives the list back: the messages belong to the queue now.
func (l *lined) free() {
	if cap(l.publishes) > keepLined {
		return
	}
	clear(l.publishes)
	l.publishes = l.publishes[:0]
	linedPool.Put(l)
}

// lineUp lines a publish up for a queue.
func (p *Publisher) lineUp(s *slot, q *queuehost.Publish) {
	l := s.lined
	if l == nil {
		l = p.line(s)
	}
	q.For = s.to
	l.publishes = append(l.publishes, *q)
}

// line returns what is lined up for a queue: one list, whenever its route was found. All replies to consumers of one node are in one.
func (p *Publisher) line(s *slot) *lined {
	if s.reply != "" {
		s = p.slot(s.handle)
	}
	if s.lined == nil {
		s.lined = linedPool.Get().(*lined)
		p.dirty = append(p.dirty, s)
	}
	return s.lined
}
