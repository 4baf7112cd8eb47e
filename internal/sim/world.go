package sim

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/queuehost"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/vfs"
)

// Options say what a World is made of.
type Options struct {
	Seed    uint64
	Nodes   int
	Members int // of each queue, on the first nodes
	Queues  int
	// What members keep for others that are behind; 0: as much as ever. With little, states are sent.
	KeepTail    int64
	KeepEntries int
	Steps       int // of clients
	Faults      int
	Watch       uint64                           // a message whose life is told
	Trace       func(format string, args ...any) // nil: nobody reads along
}

// World is a cluster, its clients, and what happens to them.
type World struct {
	o       Options
	rng     *rand.Rand
	clk     *clock.Manual
	nodes   []*node
	links   map[route]*line
	defs    []queuehost.QueueDef
	members []replica.Member
	check   checker
	steps   int
	err     error
	calm    bool // no more faults
}

// node is one node of the cluster; its id is its place, from 1 on.
type node struct {
	w       *World
	id      uint64
	starts  uint64
	disk    *disk
	rep     *replica.Node
	reg     *queuehost.Registry
	handles []*queuehost.Handle
	clients []*client
	up      bool
	paused  int // steps it does nothing
}

// route is one lane between two nodes: replica's three, then the queues' two.
type route struct {
	from, to uint64
	lane     int
}

const (
	lanes    = 5
	laneFar  = 3
	laneBulk = 4
)

// line is messages on their way. What is held arrives later.
type line struct {
	messages [][]byte
}

// pair is the link between two nodes, in one direction.
type pair struct{ from, to uint64 }

// New makes a cluster that is at rest.
func New(o Options) *World {
	w := &World{o: o, rng: rand.New(rand.NewPCG(o.Seed, 99)), links: map[route]*line{}}
	w.clk = clock.NewManual(time.Unix(1_700_000_000, 0))
	w.check.init(w)
	for i := range min(o.Nodes, o.Members) {
		w.members = append(w.members, replica.Member{ID: uint64(i + 1), Node: uint64(i + 1)})
	}
	for i := range o.Queues {
		w.defs = append(w.defs, queuehost.QueueDef{ID: seglog.GroupID(10 + i), VHost: "/", Name: fmt.Sprintf("q%d", i), Durable: true})
	}
	for i := range o.Nodes {
		n := &node{w: w, id: uint64(i + 1)}
		w.nodes = append(w.nodes, n)
		n.start(vfs.NewMem())
	}
	return w
}

func (w *World) failf(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("seed %d, step %d: %s", w.o.Seed, w.steps, fmt.Sprintf(format, args...))
	}
}

func (w *World) trace(format string, args ...any) {
	if w.o.Trace != nil {
		w.o.Trace(format, args...)
	}
}

// about tells something about a message, if it is the one that is watched.
func (w *World) about(r *record, format string, args ...any) {
	if r != nil && r.id == w.o.Watch {
		w.trace("step %d, %v: message %d: %s", w.steps, time.Duration(w.clk.Mono()), r.id, fmt.Sprintf(format, args...))
	}
}

// start starts a node's process on a disk.
func (n *node) start(fs *vfs.Mem) {
	w := n.w
	n.starts++
	n.disk = newDisk(w, fs)
	if w.err != nil {
		return
	}
	quiet := slog.New(slog.DiscardHandler)
	n.rep = replica.Open(replica.Options{
		Log: n.disk, Reader: n.disk, Transport: n, NodeID: n.id, Shards: 2, Clock: w.clk, Logger: quiet,
		SnapshotEntries: 200, SnapshotBytes: 32 << 10, KeepTail: w.o.KeepTail, KeepEntries: w.o.KeepEntries,
	})
	log := n.disk.Log
	n.reg = queuehost.New(queuehost.Options{
		Log: log, Node: n.rep, Clock: w.clk, Logger: quiet, Link: farLink{n}, Incarnation: n.starts, Stepped: true,
		TailCache: 16 << 10, NewReader: func() *queuehost.Reader { return queuehost.NewReader(log.NewReader()) },
	})
	if err := n.rep.Replay(n.reg.Host); err != nil {
		w.failf("node %d: %v", n.id, err)
		return
	}
	n.handles = nil
	for _, def := range w.defs {
		h, err := n.reg.CreateQuorum(def, w.members)
		if err != nil {
			w.failf("node %d: %v", n.id, err)
			return
		}
		n.handles = append(n.handles, h)
	}
	n.rep.Prepare()
	n.disk.Log.Start()
	n.disk.ask = n.rep.NeedSnapshots
	n.up, n.paused = true, 0
	for _, m := range w.nodes {
		if m != n && m.up && !w.check.cut[pair{n.id, m.id}] {
			w.linkUp(n, m)
		}
	}
}

func (w *World) linkUp(a, b *node) {
	for _, x := range [][2]*node{{a, b}, {b, a}} {
		x[0].rep.PeerUp(x[1].id)
		x[0].reg.LinkUp(x[1].id, x[1].starts)
		x[0].reg.Trust(x[1].id)
	}
	delete(w.check.since, pair{a.id, b.id})
	delete(w.check.since, pair{b.id, a.id})
}

// linkDown breaks the link between two nodes: what is on it is lost.
func (w *World) linkDown(a, b *node) {
	for _, x := range [][2]*node{{a, b}, {b, a}} {
		for lane := range lanes {
			delete(w.links, route{x[0].id, x[1].id, lane})
		}
		if x[0].up {
			x[0].rep.PeerDown(x[1].id)
			x[0].reg.LinkDown(x[1].id, fmt.Errorf("broken"))
		}
		p := pair{x[0].id, x[1].id}
		if _, is := w.check.since[p]; !is {
			w.check.since[p] = w.clk.Mono()
		}
	}
}

// crash ends a node's process. With power the disk keeps what was written.
func (n *node) crash(power bool) {
	w := n.w
	w.trace("node %d crashes (power %v)", n.id, power)
	n.up = false
	fs := n.disk.crash(rand.New(rand.NewPCG(w.o.Seed, n.id<<32|n.starts)))
	n.disk = &disk{fs: fs}
	for _, m := range w.nodes {
		if m != n {
			w.linkDown(n, m)
		}
	}
	w.check.crashed(n)
	n.clients = nil
}

func (n *node) restart() {
	n.w.trace("node %d starts", n.id)
	n.start(n.disk.fs)
}

// Send implements replica.Transport.
func (n *node) Send(to uint64, lane replica.Lane, add func([]byte) []byte) bool {
	return n.send(to, int(lane), add)
}

// farLink is the queues' link.
type farLink struct{ n *node }

func (l farLink) Self() uint64 { return l.n.id }

func (l farLink) Send(to uint64, bulk bool, add func([]byte) []byte) bool {
	lane := laneFar
	if bulk {
		lane = laneBulk
	}
	return l.n.send(to, lane, add)
}

func (n *node) send(to uint64, lane int, add func([]byte) []byte) bool {
	w := n.w
	m := w.node(to)
	if m == nil || !m.up || !n.up || w.check.cut[pair{n.id, to}] {
		return false
	}
	r := route{n.id, to, lane}
	l := w.links[r]
	if l == nil {
		l = &line{}
		w.links[r] = l
	}
	l.messages = append(l.messages, add(nil))
	return true
}

func (w *World) node(id uint64) *node {
	if id == 0 || id > uint64(len(w.nodes)) {
		return nil
	}
	return w.nodes[id-1]
}

// deliver hands over the next message of a lane. False: there is none.
func (w *World) deliver(r route) bool {
	l, to := w.links[r], w.node(r.to)
	if l == nil || len(l.messages) == 0 || !to.up || to.paused > 0 {
		return false
	}
	msg := l.messages[0]
	l.messages = l.messages[1:]
	if r.lane >= laneFar {
		to.reg.Receive(r.from, msg)
	} else {
		to.rep.Receive(r.from, msg)
	}
	return true
}

// work lets a node work once. False: it had nothing to do.
func (n *node) work() (did bool) {
	if !n.up || n.paused > 0 {
		return false
	}
	for i := range 3 {
		did = n.rep.Shard(i).Step() || did
	}
	return n.reg.StepLoop() || did
}

// settle lets everything happen that is on its way, in order.
func (w *World) settle() {
	for round := 0; w.err == nil; round++ {
		if round > 20000 {
			w.failf("the nodes do not come to rest")
			return
		}
		did := false
		for _, n := range w.nodes {
			if !n.up || n.paused > 0 {
				continue
			}
			did = n.work() || did
			for n.disk.sync() || n.rep.ReadStep() {
				did = true
			}
			for _, m := range w.nodes {
				for lane := range lanes {
					for w.deliver(route{m.id, n.id, lane}) {
						did = true
					}
				}
			}
		}
		if !did {
			return
		}
	}
}

// tick lets 50 ms pass.
func (w *World) tick() {
	w.clk.Advance(50 * time.Millisecond)
	ms := w.clk.Mono() / int64(time.Millisecond)
	for _, n := range w.nodes {
		if !n.up || n.paused > 0 {
			continue
		}
		if ms/100 != (ms-50)/100 {
			n.rep.TickRaft()
		}
		n.reg.Tick()
		for _, m := range w.nodes {
			since, down := w.check.since[pair{n.id, m.id}]
			if !down {
				continue
			}
			away := time.Duration(w.clk.Mono() - since)
			if away >= 800*time.Millisecond {
				n.reg.Suspect(m.id)
			}
			if away >= 30*time.Second {
				n.reg.Gone(m.id, m.starts)
				w.check.gone(m)
			}
		}
	}
}

// Run runs the seed to its end and says what was wrong, or nil.
func (w *World) Run() error {
	defer w.stop()
	for range 30 { // the first elections
		w.settle()
		w.tick()
	}
	faultEvery := w.o.Steps
	if w.o.Faults > 0 {
		faultEvery = w.o.Steps / (w.o.Faults + 1)
	}
	for w.steps = 1; w.steps <= w.o.Steps && w.err == nil; w.steps++ {
		w.act()
		if w.steps%faultEvery == 0 && w.o.Faults > 0 {
			w.fault()
		}
		w.recoverSome()
		for range 1 + w.rng.IntN(12) {
			w.step()
		}
	}
	w.finish()
	return w.err
}

// step lets one thing happen somewhere.
func (w *World) step() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if n.paused > 0 {
		n.paused--
		return
	}
	if !n.up {
		return
	}
	switch k := w.rng.IntN(100); {
	case k < 40:
		n.work()
	case k < 60:
		if !n.disk.sync() {
			n.rep.ReadStep()
		}
	case k < 97:
		from := w.nodes[w.rng.IntN(len(w.nodes))]
		r := route{from.id, n.id, w.rng.IntN(lanes)}
		for range 1 + w.rng.IntN(4) {
			w.deliver(r)
		}
	default:
		w.tick()
	}
}

// fault does some harm.
func (w *World) fault() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	switch k := w.rng.IntN(100); {
	case k < 30:
		if n.up {
			n.crash(true)
		}
	case k < 60:
		m := w.nodes[w.rng.IntN(len(w.nodes))]
		if m == n || !m.up || !n.up {
			return
		}
		long := w.rng.IntN(2) == 0
		w.trace("link %d-%d breaks (long %v)", n.id, m.id, long)
		w.linkDown(n, m)
		if long {
			w.check.cut[pair{n.id, m.id}], w.check.cut[pair{m.id, n.id}] = true, true
		} else {
			w.linkUp(n, m)
		}
	case k < 75:
		w.trace("node %d pauses", n.id)
		n.paused = 50 + w.rng.IntN(1000)
	case k < 90:
		if n.up {
			w.trace("node %d hands over", n.id)
			n.rep.HandOver()
		}
	default:
		w.trace("time flies")
		for range 40 + w.rng.IntN(700) {
			w.tick()
			w.settle()
		}
	}
}

// recoverSome brings back what is away, some day.
func (w *World) recoverSome() {
	if w.rng.IntN(60) == 0 {
		for _, n := range w.nodes {
			if !n.up {
				n.restart()
				return
			}
		}
	}
	if w.rng.IntN(80) == 0 {
		for _, a := range w.nodes {
			for _, b := range w.nodes {
				if a.id < b.id && w.check.cut[pair{a.id, b.id}] {
					w.heal(a, b)
					return
				}
			}
		}
	}
}

func (w *World) heal(a, b *node) {
	w.trace("link %d-%d heals", a.id, b.id)
	delete(w.check.cut, pair{a.id, b.id})
	delete(w.check.cut, pair{b.id, a.id})
	if a.up && b.up {
		w.linkUp(a, b)
	}
}

func (w *World) stop() {
	for _, n := range w.nodes {
		n.disk.stop()
	}
}
