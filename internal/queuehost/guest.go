package queuehost

import (
	"maps"
	"slices"
	"sync"

	"holdfast/internal/seglog"
)

// guest is another node as our queues see it that serve it: its sessions, one for
// each queue, all of one life of the link. When the link breaks, all are over:
// what their consumers hold goes back.
type guest struct {
	reg  *Registry
	node uint64

	mu       sync.Mutex
	life     life
	dead     bool // the sessions of life are over; what still comes of it is dropped
	overDue  bool // it has yet to be told that
	roomDue  bool // it has yet to be told its window
	sessions map[seglog.GroupID]*session
	stray    map[seglog.GroupID]int64 // bytes of chunks that came for no session, before the publish that they belong to
	flow     *inflow                  // of life; nil before the first
	earlier  []*inflow                // of earlier lives, while anything of them is in flight

	waitMu  sync.Mutex
	waiting []sender // for the link
}

// mostStray is how many queues may have chunks of a publish under way for which there is no session: more than have messages that
// large at a time. A node that names more makes no sense, and costs no more memory.
const mostStray = 1 << 16

// sender has something to send that the link had no room for. Waits with the
// guest at most once at a time.
type sender interface{ resume() }

// receive takes a message of the entry side; false: it makes no sense.
func (g *guest) receive(head farHead, c cut) bool {
	g.mu.Lock()
	if g.flow == nil || g.life.before(head.life) {
		g.begin(head.life)
	}
	if g.dead || head.life != g.life {
		g.mu.Unlock()
		return true
	}
	if head.kind == farBegin {
		g.mu.Unlock()
		return c.ended()
	}
	s := g.sessions[head.queue]
	switch {
	case head.kind == farResume && head.try == 0:
		g.mu.Unlock()
		return false
	case head.kind == farResume:
		if s != nil {
			if s.head.try >= head.try {
				g.mu.Unlock()
				return true
			}
			s.end()
			defer s.flow.gave()
		}
		delete(g.stray, head.queue)
		s = newSession(g, head)
		g.sessions[head.queue] = s
	case head.try > 0 && (s == nil || s.head.try != head.try): // of a try that is over
		flow, stray := g.flow, g.stray[head.queue]
		flow.dropped(&stray, head.kind, c)
		if delete(g.stray, head.queue); stray > 0 {
			g.strays(head.queue, stray)
		}
		tooMany := len(g.stray) > mostStray
		g.mu.Unlock()
		if head.kind.publishes() {
			flow.gave()
		}
		return !tooMany
	case s == nil:
		s = newSession(g, head)
		g.sessions[head.queue] = s
	}
	g.mu.Unlock()
	ok, closed := s.receive(head.kind, c)
	if closed {
		g.close(s)
	}
	return ok
}

// close ends one session.
func (g *guest) close(s *session) {
	g.mu.Lock()
	if g.sessions[s.head.queue] == s {
		delete(g.sessions, s.head.queue)
	}
	g.mu.Unlock()
	s.end()
	s.flow.gave() // outcomes that were not sent might have told it
}

// forget ends the try of the guest's with a quorum queue that was deleted.
func (g *guest) forget(id seglog.GroupID) {
	g.mu.Lock()
	s := g.sessions[id]
	if s == nil || s.ref == nil {
		g.mu.Unlock()
		return
	}
	delete(g.sessions, id)
	g.mu.Unlock()
	s.lost(0)
	s.mu.Lock()
	stray := s.stray
	s.mu.Unlock()
	g.mu.Lock()
	if g.flow == s.flow && stray > 0 {
		g.strays(id, stray)
	}
	g.mu.Unlock()
	s.flow.gave() // outcomes that were not sent might have told it
}

// strays notes bytes of chunks that came for no session. The mutex is held.
func (g *guest) strays(id seglog.GroupID, bytes int64) {
	if g.stray == nil {
		g.stray = map[seglog.GroupID]int64{}
	}
	g.stray[id] = bytes
}

// begin begins a life: whatever was before is over. The mutex is held.
func (g *guest) begin(l life) {
	g.endAll()
	window := g.reg.o.PeerCredit
	if g.flow != nil {
		g.earlier = append(g.earlier, g.flow)
	}
	// What earlier lives have left here still takes memory.
	g.earlier = slices.DeleteFunc(g.earlier, func(f *inflow) bool {
		left := f.credit.InFlight()
		window -= left
		return left == 0
	})
	g.life, g.dead, g.overDue = l, false, false
	g.flow = &inflow{guest: g, life: l, window: max(window, g.reg.o.PeerCredit/8)}
	g.flow.credit.pool, g.flow.credit.inflow = g.reg.pool, g.flow
	g.roomDue = true
	g.notify()
}

// endAll ends all sessions. The mutex is held.
func (g *guest) endAll() {
	for _, id := range slices.Sorted(maps.Keys(g.sessions)) {
		g.sessions[id].end()
	}
	clear(g.sessions)
	g.stray = nil
	g.waitMu.Lock()
	g.waiting = nil
	g.waitMu.Unlock()
}

func (g *guest) linkDown() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.flow == nil || g.dead {
		return
	}
	g.endAll()
	// The entry side may have seen no break; then it has to be told.
	g.dead, g.overDue, g.roomDue = true, true, false
}

// reject ends all sessions because something that came makes no sense.
func (g *guest) reject() {
	g.linkDown()
	g.writable()
}

// notify sends what is about the whole link. The mutex is held.
func (g *guest) notify() {
	if g.overDue {
		g.overDue = !g.reg.send(g.node, false, farHead{kind: farOver, life: g.life}.append)
	}
	if g.roomDue {
		g.roomDue = !g.reg.send(g.node, false, g.flow.appendRoom)
	}
}

func (g *guest) writable() {
	g.mu.Lock()
	g.notify()
	g.mu.Unlock()
	g.waitMu.Lock()
	waiting := g.waiting
	g.waiting = nil
	g.waitMu.Unlock()
	for _, s := range waiting {
		s.resume()
	}
}

// wait has s resumed when the link has room.
func (g *guest) wait(s sender) {
	g.waitMu.Lock()
	g.waiting = append(g.waiting, s)
	g.waitMu.Unlock()
}
