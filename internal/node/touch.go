package node

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/replica"
)

// Times of a node's touch with the catalog's leader.
const (
	// outOfTouch is how long the leader may be silent, by this node's own clock, before what the node knows of the catalog is
	// in doubt. Others stop waiting for a node 0.8 s after its last heartbeat, or a step of their clock of 0.1 s earlier, and that
	// heartbeat may be 0.2 s older than the moment from which on the node hears nothing: it has to be in doubt before that.
	outOfTouch = 450 * time.Millisecond
	// barrierWait bounds a read barrier.
	barrierWait = time.Second
	// tryAgain is how long a node that got no answer goes on with what it knows before it asks again, although the leader
	// is heard.
	tryAgain = 5 * time.Second
)

// touch says whether this node's view of the catalog can be routed by. It is in touch while it hears the node that leads
// the catalog's group, or, if it leads itself, a majority of those that vote. If not, or if another node has let it know
// that it was too late to be waited for, one read barrier comes before the next message is routed; if that fails, the
// node goes on with what it knows, and says so.
type touch struct {
	self    uint64
	now     func() int64
	barrier func(done func(any, error))
	ended   context.Context
	log     *slog.Logger

	until atomic.Int64 // up to when, on the clock, it is in touch
	due   atomic.Bool  // a barrier is due although it is
	blind atomic.Bool  // it goes on with what it knows

	mu     sync.Mutex
	heard  map[uint64]int64 // when a node was heard last
	voters []uint64
	leader uint64
	asking chan struct{} // closed when the barrier under way is over; nil: there is none
	next   int64         // when to ask again, if blind
}

func newTouch(m *mesh) *touch {
	return &touch{
		self: m.self, now: m.n.clock.Mono, barrier: m.Barrier, ended: m.life, log: m.n.log.With("room", "cluster"),
		heard: map[uint64]int64{},
	}
}

// fresh returns when what is routed now is routed by all that was answered anywhere before, or when that cannot be had.
// It costs a look at the clock; after a silence, a second at most.
func (t *touch) fresh() {
	if t.due.Load() || t.now() >= t.until.Load() {
		t.reassure()
	}
}

// reassure has a barrier carried out. All who come meanwhile wait for the same.
func (t *touch) reassure() {
	now := t.now()
	if t.blind.Load() && now >= t.until.Load() {
		return // nothing has been heard since the last one failed
	}
	t.mu.Lock()
	if t.blind.Load() && now < t.next {
		t.mu.Unlock()
		return
	}
	over := t.asking
	if over == nil {
		over = make(chan struct{})
		t.asking = over
		t.due.Store(false)
		t.mu.Unlock()
		t.barrier(func(_ any, err error) { t.answered(over, err) })
	} else {
		t.mu.Unlock()
	}
	select {
	case <-over:
	case <-t.ended.Done():
	}
}

// answered takes what came of a barrier.
func (t *touch) answered(over chan struct{}, err error) {
	now := t.now()
	t.mu.Lock()
	was := t.blind.Load()
	if err == nil {
		t.until.Store(max(t.until.Load(), now+int64(outOfTouch)))
		t.blind.Store(false)
	} else {
		t.next = now + int64(tryAgain)
		t.due.Store(true)
		t.blind.Store(true)
	}
	t.asking = nil
	t.mu.Unlock()
	close(over)
	switch {
	case err != nil && !was:
		t.log.Warn("messages are routed by what this node knew last: the leader of the catalog gives no answer", "reason", err)
	case err == nil && was:
		t.log.Info("messages are routed by what the whole cluster knows again")
	}
}

// doubt says that another node no longer waits for this one, which is behind.
func (t *touch) doubt() { t.due.Store(true) }

// beat takes note that a node was heard. A heartbeat may be as old as the silence before it: that of a process that stood
// still has waited for it. So it does not undo the silence.
func (t *touch) beat(node uint64) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if now >= t.until.Load() {
		t.due.Store(true)
	}
	t.heard[node] = now
	t.count()
}

// lead takes note of who leads; 0: nobody.
func (t *touch) lead(node uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leader != node {
		t.leader, t.next = node, 0
		t.count()
	}
}

// votersAre takes note of who votes.
func (t *touch) votersAre(nodes []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.voters = nodes
	for node := range t.heard {
		if node != t.leader && !slices.Contains(nodes, node) {
			delete(t.heard, node)
		}
	}
	t.count()
}

// count works out up to when this node is in touch. mu is held.
func (t *touch) count() {
	switch {
	case t.leader == 0:
		t.until.Store(0)
	case t.leader != t.self:
		if at, heard := t.heard[t.leader]; heard {
			t.until.Store(at + int64(outOfTouch))
		}
	default:
		var times []int64
		for _, node := range t.voters {
			if node != t.self {
				times = append(times, t.heard[node])
			}
		}
		// With itself it takes half of the others, rounded up, to be a majority.
		need := (len(times) + 1) / 2
		if need == 0 {
			t.until.Store(math.MaxInt64)
			return
		}
		slices.SortFunc(times, func(a, b int64) int { return cmp.Compare(b, a) })
		if at := times[need-1]; at != 0 {
			t.until.Store(at + int64(outOfTouch))
		}
	}
}

// tick has a node that is behind, or goes on with what it knows, ask as soon as there is somebody to ask, be there a
// message or not, so that it stops saying so.
func (t *touch) tick() {
	if (t.due.Load() || t.blind.Load()) && t.now() < t.until.Load() {
		go t.reassure()
	}
}

// stale says for people why what this node knows may be old, "" if it is not.
func (t *touch) stale() string {
	switch {
	case t.now() >= t.until.Load():
		return "the leader of the catalog has not been heard for a while, or there is none"
	case t.due.Load() || t.blind.Load():
		return "this node is behind the others"
	}
	return ""
}

// Barrier answers when this node has applied all that was answered anywhere before; within a second or so.
func (m *mesh) Barrier(done func(any, error)) {
	if m.n.commands == nil {
		done(nil, &replica.NotLeaderError{})
		return
	}
	m.n.commands.Group().ReadIndex(barrierWait, func(_ uint64, err error) { done(nil, err) })
}

// voters are the nodes that vote in the catalog's group.
func (m *mesh) voters() (nodes []uint64) {
	for n := range m.n.catalog.View().Nodes().All() {
		if n.Voter {
			nodes = append(nodes, n.ID)
		}
	}
	return nodes
}

// stale says why listings may be old, "" if they are not.
func (n *Node) stale() string {
	if n.mesh == nil {
		return ""
	}
	return n.mesh.touch.stale()
}
