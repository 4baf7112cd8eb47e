package queuehost

import "sync"

// health is what is known of the nodes whose sessions quorum queues keep.
type health struct {
	mu    sync.Mutex
	nodes map[uint64]nodeHealth
}

// nodeHealth is what is known of one node.
type nodeHealth struct {
	suspect     bool
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

// Suspect says that a node has not been heard of lately: quorum queues led here give
// its consumers nothing new.
func (r *Registry) Suspect(node uint64) { r.newsOf(node, func(n *nodeHealth) { n.suspect = true }) }

// Trust takes Suspect, and Gone, back.
func (r *Registry) Trust(node uint64) {
	r.newsOf(node, func(n *nodeHealth) { n.suspect, n.gone = false, 0 })
}

// Gone says that a process of a node counts as dead, until it is trusted again: what its sessions
// with quorum queues led here hold goes back to the queues.
func (r *Registry) Gone(node, incarnation uint64) {
	r.newsOf(node, func(n *nodeHealth) { n.gone = max(n.gone, incarnation) })
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
