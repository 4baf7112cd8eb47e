package queuehost

import (
	"math"
	"slices"
	"sync"
	"time"
)

// health is what is known of the nodes whose sessions quorum queues keep.
type health struct {
	mu    sync.Mutex
	nodes map[uint64]nodeHealth
	// met are the nodes that have sessions with queues led here, and since when this node knows that they are not of the cluster;
	// belongs: they are.
	met map[uint64]int64
}

// belongs is no time: the node is of the cluster.
const belongs = int64(-1)

// strangerFor is how long a node that has a session may be unknown: this node may be behind with what it knows of the cluster.
const strangerFor = 30 * time.Second

// everyProcess is the latest process of a node that was removed from the cluster: none comes back.
const everyProcess = math.MaxUint64

// nodeHealth is what is known of one node.
type nodeHealth struct {
	suspect     bool
	since       int64  // clock.Mono when it became so
	incarnation uint64 // the latest process that was heard of
	gone        uint64 // this process of it, and those before, count as dead; 0: none does
}

// of returns what is known of a node.
func (h *health) of(node uint64) nodeHealth {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nodes[node]
}

// change changes what is known of a node; it reports whether anything is new.
func (h *health) change(node uint64, fn func(*nodeHealth)) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nodes[node]
	was := n
	fn(&n)
	h.nodes[node] = n
	return n != was
}

// over reports whether a process of the node counts as dead to a queue that bears with it for so long, in ns; 0: as long as everybody does. If
// it is only a matter of time, it is over at at.
func (n *nodeHealth) over(incarnation uint64, patience, now int64) (is bool, at int64) {
	switch {
	case incarnation < n.incarnation || n.gone == everyProcess:
		return true, 0
	case patience == 0:
		return incarnation <= n.gone, 0
	case !n.suspect:
		return false, 0
	}
	at = n.since + patience
	return now >= at, at
}

// Suspect says that a node has not been heard of lately: quorum queues led here give
// its consumers nothing new.
func (r *Registry) Suspect(node uint64) {
	r.newsOf(node, func(n *nodeHealth) {
		if !n.suspect {
			n.suspect, n.since = true, r.o.Clock.Mono()
		}
	})
}

// Trust takes Suspect, and Gone, back.
func (r *Registry) Trust(node uint64) {
	r.newsOf(node, func(n *nodeHealth) { n.suspect, n.gone = false, 0 })
}

// Gone says that a process of a node counts as dead, until it is trusted again: what its sessions
// with quorum queues led here hold goes back to the queues, but for those that say themselves how long they bear with it.
func (r *Registry) Gone(node, incarnation uint64) {
	r.newsOf(node, func(n *nodeHealth) { n.gone = max(n.gone, incarnation) })
}

// Removed says that a node is not in the cluster any more: it does not come back, and its sessions end.
func (r *Registry) Removed(node uint64) { r.Gone(node, everyProcess) }

// meet notes a node that has a session with a queue that is led here.
func (r *Registry) meet(node uint64) {
	if r.o.Member == nil || node == r.self() {
		return
	}
	r.health.mu.Lock()
	defer r.health.mu.Unlock()
	if r.health.met == nil {
		r.health.met = map[uint64]int64{}
	}
	if _, is := r.health.met[node]; !is {
		r.health.met[node] = belongs
		if !r.o.Member(node) {
			r.health.met[node] = r.o.Clock.Mono()
		}
	}
}

// tickStrangers ends the sessions of nodes that were removed while this one did not hear it: when it was down, or had just come
// and was behind with what it knows of the cluster.
func (r *Registry) tickStrangers() {
	var removed []uint64
	now := r.o.Clock.Mono()
	r.health.mu.Lock()
	for node, since := range r.health.met {
		switch {
		case r.o.Member(node):
			r.health.met[node] = belongs
		case since == belongs:
			r.health.met[node] = now
		case now-since >= int64(strangerFor):
			removed = append(removed, node)
			delete(r.health.met, node)
		}
	}
	r.health.mu.Unlock()
	slices.Sort(removed)
	for _, node := range removed {
		r.Removed(node)
	}
}

// newsOf notes something about a node, and has the queues that are led here look.
func (r *Registry) newsOf(node uint64, fn func(*nodeHealth)) {
	if !r.health.change(node, fn) {
		return
	}
	for _, h := range r.sorted(func(h *host) bool { return h.lead != nil }) {
		if h.lead.leads() {
			h.lead.look.Store(true)
			h.group.Wake()
		}
	}
}
