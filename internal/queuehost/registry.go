package queuehost

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/amqperr"
	"holdfast/internal/clock"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/spill"
)

// Log is what the queues need of the segment log.
type Log interface {
	Release(g seglog.GroupID, index uint64, ranges []seglog.Range)
	PinRange(g seglog.GroupID, first, last uint64) (seglog.Ref, uint64)
	Quarantined() []seglog.Hit
	Quarantine(g seglog.GroupID, reason string)
}

// Options say what a Registry is built from. Zero means the default in brackets.
type Options struct {
	Log    Log
	Node   *replica.Node
	Owner  Owner
	Clock  clock.Clock // (the system's)
	Logger *slog.Logger
	// TailCache is how many bytes of memory the newest bodies take that are on
	// disk as well, or could be (16 MiB).
	TailCache int64
	// Spill takes the older ones that are not in the log. Nil: they stay in memory.
	Spill *spill.Store
	// ConnectionCredit and NodeCredit bound what one connection, and all of
	// them together, have in flight towards queues (4 MiB, 256 MiB).
	ConnectionCredit, NodeCredit int64
	// Incomplete is what one connection may hold of messages and transactions that are not complete; never less than NodeCredit (32 MiB).
	Incomplete int64
	// Link leads to other nodes. Nil: there are none.
	Link Link
	// Name is what people call another node. Nil: its id.
	Name func(node uint64) string
	// Self is this node's id, if there is no Link.
	Self uint64
	// Stepped says that a simulator calls StepLoop.
	Stepped bool
	// Prompt says that what is due in a queue is not left until the next Tick.
	Prompt bool
	// Wait bounds how long an operation on a quorum queue waits for a leader (15 s).
	Wait time.Duration
	// Leader is told when a member here hears of another leader of its queue; 0: there is
	// none. It runs on the worker and must not block. Nil: nobody is told.
	Leader func(id seglog.GroupID, node uint64)
	// Applied is told after each entry of a quorum queue that a member here has applied, also while the log is read
	// at the start; state appends the encoded state. It runs on the worker and must not block. Nil: nobody is told.
	Applied func(id seglog.GroupID, index uint64, state func(dst []byte) []byte)
	// Incarnation is the start of this node's process: it rises.
	Incarnation uint64
	// PeerCredit is what one other node may have in flight towards the queues here (16 MiB).
	PeerCredit int64
	// NewReader makes readers for deliveries that are read from the disk and go to
	// other nodes. Nil: what is in the log cannot be.
	NewReader func() *Reader
	// Deleted reports whether a queue that does not run here is known to be deleted,
	// so that a publish to it counts as settled. Nil: nobody knows. It must not block.
	Deleted func(seglog.GroupID) bool
	// Level is the level of the formats that the cluster writes; see docs/internals/formats.md. Nil: 1. It must not block.
	Level func() uint16
	// StallAfter is after how long without a delivery a queue counts as stalled, if it could deliver. 0: nobody looks.
	StallAfter time.Duration
	// Member reports whether a node is one of the cluster's, as far as this one knows. Nil: all are. It must not block.
	Member func(node uint64) bool
	// Reply returns the queue behind a consumer of direct reply-to here, nil if there is none. It must not block, and borrows. Nil: there are none.
	Reply func(vhost, name []byte) *Handle
}

func (o *Options) setDefaults() {
	if o.Clock == nil {
		o.Clock = clock.System()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Name == nil {
		o.Name = func(node uint64) string { return strconv.FormatUint(node, 10) }
	}
	if o.Wait <= 0 {
		o.Wait = 15 * time.Second
	}
	for _, d := range []struct {
		v *int64
		n int64
	}{{&o.TailCache, 16 << 20}, {&o.ConnectionCredit, 4 << 20}, {&o.NodeCredit, 256 << 20}, {&o.Incomplete, 32 << 20}, {&o.PeerCredit, peerCredit}} {
		if *d.v <= 0 {
			*d.v = d.n
		}
	}
}

// Registry knows the queues that run on this node.
//
// Life: New; replica.Node.Replay with Registry.Host as the factory; Create for
// every queue of the catalog, which adopts what was replayed; Start of the
// node. What was replayed and not created is an orphan.
type Registry struct {
	o       Options
	owner   Owner
	lanes   []*lane
	pool    *creditPool
	near    neighbours
	loads   loads
	loop    loop
	holders holders
	dues    dues
	stalls  stalls
	health  health
	vacant  vacancies
	unread  unread
	alarmed alarmedNodes

	behind behind

	timeouts    atomic.Uint64 // consumers that held messages for too long
	activations atomic.Uint64 // changes of single active consumers
	txs         atomic.Uint32 // numbers of transactions given out
	duplicates  atomic.Uint64 // messages that had come before

	mu          sync.RWMutex
	hosts       map[seglog.GroupID]*host
	quarantined map[seglog.GroupID]string // reasons; groups the log did not replay
	ending      map[seglog.GroupID]int    // members of quorum queues, and discarded data, that have yet to end
	unborn      map[seglog.GroupID]unborn // members that begin when the catalog is known to have all there is
}

// New returns an empty registry.
func New(o Options) *Registry {
	o.setDefaults()
	r := &Registry{
		o: o, owner: o.Owner, pool: newCreditPool(o.ConnectionCredit, o.NodeCredit, o.Incomplete),
		hosts: map[seglog.GroupID]*host{}, quarantined: map[seglog.GroupID]string{},
		near: neighbours{homes: map[uint64]*home{}, guests: map[uint64]*guest{}, fars: map[seglog.GroupID]*far{}, mailboxes: map[uint64]*Handle{}},
	}
	r.loads.reg, r.loop.reg = r, r
	r.pool.clock = o.Clock
	if o.Prompt {
		r.dues.clock = o.Clock
	}
	r.ending = map[seglog.GroupID]int{}
	r.health.nodes = map[uint64]nodeHealth{}
	n := int64(o.Node.Shards())
	for range n {
		r.lanes = append(r.lanes, &lane{reg: r, cache: cache{limit: o.TailCache / n}, spill: spiller{store: o.Spill, most: maxLeaving, block: spill.BlockSize}})
	}
	for _, hit := range o.Log.Quarantined() {
		r.quarantined[hit.Group] = hit.Reason
	}
	return r
}

// SetOwner says who is told of unused queues; before the node is started.
func (r *Registry) SetOwner(o Owner) { r.owner = o }

// NewCredit returns the credit of one connection.
func (r *Registry) NewCredit() *Credit { return &Credit{pool: r.pool} }

// Host makes the host of a group met in the log; it is replica's factory. raft: it is
// the member of a quorum queue.
func (r *Registry) Host(id seglog.GroupID, raft bool) replica.Host {
	r.mu.Lock()
	defer r.mu.Unlock()
	if raft {
		h := r.newMember(QueueDef{ID: id, Durable: true})
		h.claimed, h.expected = false, true // the group goes on, whatever the catalog here knows
		return h
	}
	h := r.newHost(QueueDef{ID: id, Durable: true})
	r.hosts[id] = h
	return h
}

// Create makes a queue, or adopts the replayed one with this id, which is
// possible until the node is started. A quarantined queue is created as one
// whose every operation fails (Handle.Unavailable).
func (r *Registry) Create(def QueueDef) (*Handle, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.hosts[def.ID]; h != nil && (h.claimed || !def.logged()) || r.far(def.ID) != nil {
		return nil, fmt.Errorf("queuehost: group %d exists", def.ID)
	} else if h != nil {
		return r.adopt(h, def)
	}
	h := r.newHost(def)
	h.claimed = true
	h.configure = h.wanted() != queue.Settings{}
	if reason, hit := r.hit(def); hit {
		h.m, h.besides().reason = nil, reason
		h.unavailable.Store(amqperr.QueueUnavailable(def.VHost, def.Name, reason))
	}
	r.hosts[def.ID] = h
	r.o.Node.NewGroup(def.ID, h, h.logged)
	return &h.handle, nil
}

// hit reports whether a queue that was not replayed is quarantined. A hit of
// group 0 is one of every group of which the log has no record: such a queue,
// known from before the start, may have had messages.
func (r *Registry) hit(def QueueDef) (reason string, hit bool) {
	if reason, hit = r.quarantined[def.ID]; hit {
		return reason, true
	}
	if !def.logged() || r.o.Node.Started() {
		return "", false
	}
	if reason, hit = r.quarantined[0]; hit {
		r.o.Log.Quarantine(def.ID, reason) // the next start is to know it as well
	}
	return reason, hit
}

// adopt gives a replayed host its definition.
func (r *Registry) adopt(h *host, def QueueDef) (*Handle, error) {
	if r.o.Node.Group(def.ID) == nil {
		return nil, fmt.Errorf("queuehost: group %d was dropped", def.ID)
	}
	if h.claimed = true; h.expected { // its worker may be at work
		h.named.Store(&def)
		h.alert.Or(alertSettings)
		h.group.Wake()
		return &h.handle, nil
	}
	h.def = def
	if e := h.unavailable.Load(); e != nil { // now with its name
		h.unavailable.Store(amqperr.QueueUnavailable(def.VHost, def.Name, h.reason()))
	}
	if h.m != nil && h.m.Applied() == 0 {
		h.configure = h.wanted() != queue.Settings{}
	}
	return &h.handle, nil
}

// Expect says, before the node is started, that the catalog here may lag behind the log: groups that nobody has claimed
// may be queues of which it will hear. They recover like any other and can be created after the start. Until CaughtUp all go by
// the settings that they have, and a member of a quorum queue of which the log knows nothing does not begin.
func (r *Registry) Expect() {
	r.behind.is.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, h := range r.hosts {
		if !h.claimed && r.o.Node.Group(id) != nil {
			h.expected = true
		}
	}
}

// Get returns the queue's handle, or nil.
func (r *Registry) Get(id seglog.GroupID) *Handle {
	r.mu.RLock()
	if h := r.hosts[id]; h != nil && h.claimed && h.lead == nil {
		r.mu.RUnlock()
		return &h.handle
	}
	r.mu.RUnlock()
	if f := r.far(id); f != nil {
		return &f.handle
	}
	return nil
}

// Far yields the handles of the queues that are served by other nodes, in the order of their ids; mailboxes are none.
func (r *Registry) Far() iter.Seq[*Handle] {
	return func(yield func(*Handle) bool) {
		r.near.mu.RLock()
		fars := slices.Collect(maps.Values(r.near.fars))
		r.near.mu.RUnlock()
		slices.SortFunc(fars, func(a, b *far) int { return cmp.Compare(a.def.ID, b.def.ID) })
		for _, f := range fars {
			if !isMailbox(f.def.ID) && !yield(&f.handle) {
				return
			}
		}
	}
}

// All yields the handles of all queues that run here, quorum queues not counted, in the order of their ids.
func (r *Registry) All() iter.Seq[*Handle] {
	return func(yield func(*Handle) bool) {
		for _, h := range r.sorted(func(h *host) bool { return h.claimed && h.lead == nil }) {
			if !yield(&h.handle) {
				return
			}
		}
	}
}

func (r *Registry) sorted(want func(*host) bool) []*host {
	r.mu.RLock()
	hs := make([]*host, 0, len(r.hosts))
	for _, h := range r.hosts {
		if want(h) {
			hs = append(hs, h)
		}
	}
	r.mu.RUnlock()
	slices.SortFunc(hs, func(a, b *host) int {
		if a.def.ID < b.def.ID {
			return -1
		}
		return 1
	})
	return hs
}

// Drop deletes a queue: its consumers are cancelled with reason, its space
// comes back. done, if not nil, runs on the worker after that, or at once if
// there is no such queue.
func (r *Registry) Drop(id seglog.GroupID, reason error, done func()) {
	r.mu.Lock()
	h := r.hosts[id]
	delete(r.hosts, id)
	delete(r.quarantined, id)
	r.mu.Unlock()
	r.near.mu.Lock()
	f := r.near.fars[id]
	delete(r.near.fars, id)
	guests := slices.Collect(maps.Values(r.near.guests))
	r.near.mu.Unlock()
	if f != nil && f.entry != nil {
		for _, g := range guests {
			g.forget(id)
		}
	}
	switch {
	case h != nil && h.lead != nil:
		r.mu.Lock()
		r.ending[id]++
		r.mu.Unlock()
		r.endMember(h)
	case h != nil:
		h.handle.put(op{kind: opDrop, call: &call{reason: reason, done: done}})
		return
	}
	if f != nil {
		f.drop(&call{reason: reason, done: done})
		return
	}
	run0(done)
}

// Hit takes a queue out of service whose log turned out to be damaged while
// running; it serves the log's Events.Hit and does not wait.
func (r *Registry) Hit(hit seglog.Hit) {
	r.mu.Lock()
	h := r.hosts[hit.Group]
	r.quarantined[hit.Group] = hit.Reason // until it is discarded
	running := h != nil && h.claimed
	r.mu.Unlock()
	switch {
	case running && h.lead != nil && !h.lead.hit:
		h.group.Do(func() { h.quarantine(errors.New(hit.Reason)) })
	case running:
		h.handle.put(op{kind: opQuarantine, call: &call{reason: errors.New(hit.Reason)}})
	}
}

// Orphans lists the groups of the log that no Create has claimed.
func (r *Registry) Orphans() []Orphan {
	var os []Orphan
	for _, h := range r.sorted(func(h *host) bool { return !h.claimed }) {
		o := Orphan{ID: h.def.ID, Reason: "no queue of the catalog has this id"}
		if why := h.reason(); why != "" {
			o.Reason = why
		}
		os = append(os, o)
	}
	r.mu.RLock()
	for id, reason := range r.quarantined {
		if r.hosts[id] == nil && id != 0 {
			os = append(os, Orphan{ID: id, Reason: reason})
		}
	}
	r.mu.RUnlock()
	slices.SortFunc(os, func(a, b Orphan) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return os
}

// Discard gives up on an orphan, or on the data of a quarantined queue, which
// is gone afterwards. Its space comes back. A queue that other nodes serve stays reachable
// here; a member of it may come here again, and begins when the old data have ended.
func (r *Registry) Discard(id seglog.GroupID) error {
	r.mu.Lock()
	h := r.hosts[id]
	_, hit := r.quarantined[id]
	hit = hit && id != 0
	if h != nil && h.claimed && h.unavailable.Load() == nil || h == nil && !hit {
		r.mu.Unlock()
		return fmt.Errorf("group %d is neither an orphan nor quarantined", id)
	}
	if h == nil && r.ending[id] > 0 { // it goes already
		delete(r.quarantined, id)
		r.mu.Unlock()
		return nil
	}
	if h == nil {
		h = r.newHost(QueueDef{ID: id, Durable: true})
		h.m = nil
		r.hosts[id] = h
	}
	if h.group == nil {
		if g := r.o.Node.Group(id); g != nil {
			h.SetGroup(g)
		} else {
			r.o.Node.NewGroup(id, h, true)
		}
	}
	if h.claimed { // the queue goes with them
		r.mu.Unlock()
		r.Drop(id, errors.New("the queue was discarded"), nil)
		return nil
	}
	r.forgetMember(h)
	r.mu.Unlock()
	r.endMember(h)
	return nil
}

func errExists(id seglog.GroupID) error { return fmt.Errorf("queuehost: group %d exists", id) }

// sortedKeys are the keys of a map in order: what is done in a map's own order differs from run to run.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
