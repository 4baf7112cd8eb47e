package queuehost

import (
	"bytes"
	"slices"
	"testing"

	"holdfast/internal/clock"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

// fakeLog is a log in memory whose disk is as slow as the test wants: batches
// become stable when sync is called.
type fakeLog struct {
	batches  []*seglog.Batch // appended, not stable
	records  []seglog.Replayed
	stable   int // of records
	items    map[seglog.GroupID]map[uint64][]byte
	released map[seglog.GroupID][]seglog.Range
	live     map[seglog.GroupID][]seglog.Range
	hits     []seglog.Hit
	clean    bool
	syncs    int // batches that asked for a sync
	pins     int
	auto     bool // stable at once
	started  bool
}

func newFakeLog() *fakeLog {
	return &fakeLog{
		items:    map[seglog.GroupID]map[uint64][]byte{},
		released: map[seglog.GroupID][]seglog.Range{},
		live:     map[seglog.GroupID][]seglog.Range{},
	}
}

func (l *fakeLog) Append(b *seglog.Batch) {
	if b.Sync {
		l.syncs++
	}
	for _, r := range b.Records {
		l.records = append(l.records, seglog.Replayed{
			Group: r.Group, Kind: r.Kind, Term: r.Term, Index: r.Index, Time: r.Time, Meta: bytes.Clone(r.Meta),
		})
		for _, bl := range r.Blocks {
			m := l.items[r.Group]
			if m == nil {
				m = map[uint64][]byte{}
				l.items[r.Group] = m
			}
			for i, it := range bl.Items {
				m[bl.First+uint64(i)] = it
			}
		}
	}
	if l.auto {
		l.stable = len(l.records)
		b.Stable(b)
		return
	}
	l.batches = append(l.batches, b)
}

// sync makes everything appended stable.
func (l *fakeLog) sync() {
	bs := l.batches
	l.batches = nil
	l.stable = len(l.records)
	for _, b := range bs {
		b.Stable(b)
	}
}

func (l *fakeLog) Replay(fn func(seglog.Replayed) error) error {
	start := map[seglog.GroupID]int{}
	var ids []seglog.GroupID
	for i, r := range l.records[:l.stable] {
		if _, ok := start[r.Group]; !ok {
			ids = append(ids, r.Group)
			start[r.Group] = 0
		}
		switch r.Kind {
		case seglog.KindSnapshot:
			start[r.Group] = i
		case seglog.KindDrop:
			start[r.Group] = l.stable
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		for _, r := range l.records[start[id]:l.stable] {
			if r.Group == id {
				if err := fn(r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (l *fakeLog) KeepTail(seglog.GroupID, uint64) {}

func (l *fakeLog) Clean() bool               { return l.clean }
func (l *fakeLog) Start()                    { l.started = true }
func (l *fakeLog) Quarantined() []seglog.Hit { return l.hits }

func (l *fakeLog) SetLive(g seglog.GroupID, rs []seglog.Range) (missing uint64) {
	l.live[g] = slices.Clone(rs)
	for _, r := range rs {
		for id := r.First; id <= r.Last; id++ {
			if _, ok := l.items[g][id]; !ok {
				missing++
			}
		}
	}
	return missing
}

func (l *fakeLog) Quarantine(g seglog.GroupID, reason string) {
	l.hits = append(l.hits, seglog.Hit{Group: g, Reason: reason})
}

func (l *fakeLog) Release(g seglog.GroupID, _ uint64, rs []seglog.Range) {
	l.released[g] = append(l.released[g], rs...)
}

func (l *fakeLog) PinRange(g seglog.GroupID, first, last uint64) (seglog.Ref, uint64) {
	l.pins++
	n := uint64(0)
	for ; first+n <= last && l.items[g][first+n] != nil; n++ {
	}
	return seglog.Ref{}, n
}

// crashed returns the log as it is found after a crash: what was stable.
func (l *fakeLog) crashed() *fakeLog {
	n := newFakeLog()
	n.records = slices.Clone(l.records[:l.stable])
	n.stable = len(n.records)
	n.items = l.items
	return n
}

// rig is a node's queues without workers: the test steps.
type rig struct {
	t     testing.TB
	log   *fakeLog
	node  *replica.Node
	reg   *Registry
	clock *clock.Manual

	// Of a rig whose queues run on another node: reg is the entry's, all else that of the queues' home.
	home  *Registry
	entry *replica.Node
	net   *memNet
}

// rigOptions change how a rig is built.
type rigOptions func(*replica.Options, *Options)

func newRig(t testing.TB, log *fakeLog, defs []QueueDef, opts ...rigOptions) *rig {
	t.Helper()
	r := &rig{t: t, log: log, clock: clock.NewManual(testTime)}
	ro := replica.Options{Log: log, Shards: 1, Clock: r.clock}
	qo := Options{Log: log, Clock: r.clock}
	if farRigs {
		r.net = newMemNet()
		qo.Link = r.net.link(homeNode)
	}
	for _, o := range opts {
		o(&ro, &qo)
	}
	r.node = replica.Open(ro)
	qo.Node = r.node
	r.reg = New(qo)
	if err := r.node.Replay(r.reg.Host); err != nil {
		t.Fatal(err)
	}
	for _, d := range defs {
		if _, err := r.reg.Create(d); err != nil {
			t.Fatal(err)
		}
	}
	r.node.Prepare()
	log.Start()
	if farRigs {
		r.addEntry(defs, opts)
	}
	r.step()
	return r
}

// step runs rounds until nothing is left to do.
func (r *rig) step() {
	if r.net != nil {
		r.stepBoth()
		for h := range r.reg.Far() {
			h.Explain(func(Explanation) {}) // its Stats are as of the last one
		}
		r.stepBoth()
		return
	}
	for r.node.Shard(0).Step() {
	}
}

// settle steps and syncs until nothing is left to do.
func (r *rig) settle() {
	r.step()
	for len(r.log.batches) > 0 {
		r.log.sync()
		r.step()
	}
}

func (r *rig) queue(id seglog.GroupID) *Handle {
	r.t.Helper()
	h := r.reg.Get(id)
	if h == nil {
		r.t.Fatalf("no queue %d", id)
	}
	return h
}

func durable(id seglog.GroupID) QueueDef {
	return QueueDef{ID: id, VHost: "/", Name: "durable", Durable: true}
}

func transient(id seglog.GroupID) QueueDef { return QueueDef{ID: id, VHost: "/", Name: "transient"} }

// text makes a message whose head is a text; nobody here looks into it.
func text(s string) message.Message { return message.Message{Head: []byte(s)} }

// tickets records outcomes as text.
type tickets struct{ got []outcome }

type outcome struct {
	first, last uint64
	o           Outcome
}

func (t *tickets) Settled(first, last uint64, o Outcome) {
	t.got = append(t.got, outcome{first, last, o})
}

// sink is a consumer that keeps what it gets.
type sink struct {
	got       []Delivery
	batches   int
	cancelled error
	drained   []uint32
	wakes     int
	events    []string
}

func (s *sink) Deliver(ds []Delivery) {
	s.batches++
	for _, d := range ds {
		s.got = append(s.got, d)
		s.events = append(s.events, "deliver "+string(d.Message.Head))
	}
}
func (s *sink) Cancelled(err error) { s.cancelled = err }
func (s *sink) Drained(n uint32) {
	s.drained = append(s.drained, n)
	s.events = append(s.events, "drained")
}
func (s *sink) Wake() { s.wakes++ }

func (s *sink) bodies() []string {
	var out []string
	for _, d := range s.got {
		b := string(d.Message.Head)
		if d.Redelivered {
			b += "*"
		}
		out = append(out, b)
	}
	return out
}

func (s *sink) reset() { s.got, s.events = nil, nil }

func publish(h *Handle, tk Ticket, persistent bool, bodies ...string) {
	ps := make([]Publish, len(bodies))
	for i, b := range bodies {
		ps[i] = Publish{Message: text(b), Persistent: persistent, Ticket: tk, Seq: uint64(i + 1)}
	}
	h.Publish(ps)
}

func unlimited(prefetch uint32) ConsumerSpec {
	return ConsumerSpec{Prefetch: prefetch, Credit: Unlimited}
}

func ids(first, last uint64) []queue.Range { return []queue.Range{{First: first, Last: last}} }

// host is the queue on its worker, wherever that is.
func (r *rig) host(id seglog.GroupID) *host {
	r.t.Helper()
	reg := r.reg
	if r.home != nil {
		reg = r.home
	}
	reg.mu.RLock()
	defer reg.mu.RUnlock()
	h := reg.hosts[id]
	if h == nil {
		r.t.Fatalf("no queue %d here", id)
	}
	return h
}
