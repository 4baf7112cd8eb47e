package sim

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/cluster"
	"holdfast/internal/message"
	"holdfast/internal/node/catgroup"
	"holdfast/internal/queuehost"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/vfs"
)

// Options say what a World is made of.
type Options struct {
	Seed    uint64
	Nodes   int
	Members int // of each quorum queue, when it is declared
	Queues  int // quorum queues
	Classic int // queues that live on one node
	// What members keep for others that are behind; 0: as much as ever. With little, states are sent.
	KeepTail     int64
	KeepEntries  int
	Steps        int // of clients
	Faults       int
	Lanes        [lanes]int                       // bytes that are on their way on each lane at most; 0: any number
	Window       int64                            // bytes of publishes that one node may have on their way to another; 0: as ever
	Rest         bool                             // groups without anything to do rest
	Frail        uint64                           // a node whose log is damaged now and then; 0: none
	Big          bool                             // every other message is in chunks
	Relayed      bool                             // a node counts as alive that somebody else hears
	Reshapes     bool                             // members change
	Deletes      bool                             // queues are deleted, and others declared
	Purges       bool                             // queues are purged
	Settings     bool                             // arguments and policies ask for more than a plain queue
	Transactions bool                             // clients commit transactions, too; without Settings
	Carried      bool                             // with Settings: dead letters are carried by the product, and an exchange delays
	RaiseAt      int                              // with Settings: the step from which on the cluster may go to the latest level
	Watch        uint64                           // a message whose life is told
	Trace        func(format string, args ...any) // nil: nobody reads along
}

// World is a cluster, its clients, and what happens to them.
type World struct {
	o     Options
	rng   *rand.Rand
	clk   *clock.Manual
	nodes []*node
	links
	orders     orders
	queues     []*simQueue // that there are
	all        []*simQueue // those that were, too
	byID       map[seglog.GroupID]*simQueue
	store      *simQueue          // of the exchange that delays, which is not among queues
	target     [targets]*simQueue // of dead letters
	wired      bool               // all is declared and bound that letters go through
	boundTo    map[[2]string]bool // what is bound, by exchange and queue
	lastMember uint64
	states     map[at]uint64
	scratch    []byte
	builder    message.Builder
	check      checker
	txs        []*transaction
	publishers uint64 // that number their messages
	steps      int
	err        error
	calm       bool // no more faults
	healed     bool // and all has come to rest after the last one
	flies      int  // steps until much time passes
	harmed     bool // members of the frail node are damaged, or may be
	plain      bool // publishes ask for nothing and are small
}

// node is one node of the cluster; its id is its place, from 1 on, until it has to come back as another one.
type node struct {
	w         *World
	id        uint64
	starts    uint64
	disk      *disk
	clk       *skewed
	rep       *replica.Node
	reg       *queuehost.Registry
	health    *cluster.Detector
	reader    *queuehost.Reader
	order     order
	founder   bool
	raised    uint16 // the cluster's level, as its folder says
	grave     grave
	watched   []uint64 // other nodes of the catalog
	clients   []*client
	retired   []*client
	room      []uint64  // nodes to which a lane has room again, not heard yet
	small     int       // so many steps its disk has no room
	copied    *vfs.Mem  // its disk as it was once
	asking    []*change // that its members were asked for
	mail      []mail    // dead letters on their way
	forgotten []mail    // those that were lost
	up        bool
	paused    int // steps it does nothing
}

// skewed is the clock of a node: its wall time jumps.
type skewed struct {
	clock.Clock
	by time.Duration
}

// Now implements clock.Clock.
func (c *skewed) Now() time.Time { return c.Clock.Now().Add(c.by) }

// New makes a cluster that is at rest.
func New(o Options) *World {
	w := &World{
		o: o, rng: rand.New(rand.NewPCG(o.Seed, 99)), links: newLinks(), byID: map[seglog.GroupID]*simQueue{}, boundTo: map[[2]string]bool{}, states: map[at]uint64{}}
	w.bound = o.Lanes
	w.clk = clock.NewManual(time.Unix(1_700_000_000, 0))
	w.check.init(w)
	w.orders = newOrders(w)
	for i := range o.Nodes {
		w.nodes = append(w.nodes, &node{w: w, id: uint64(i + 1), founder: true, clk: &skewed{Clock: w.clk}})
	}
	for _, n := range w.nodes {
		n.start(vfs.NewMem(), nil)
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
		w.o.Trace("step %d, %v: %s", w.steps, time.Duration(w.clk.Mono()), fmt.Sprintf(format, args...))
	}
}

// about tells something about a message, if it is the one that is watched.
func (w *World) about(r *record, format string, args ...any) {
	if r != nil && r.id == w.o.Watch {
		w.trace("message %d: %s", r.id, fmt.Sprintf(format, args...))
	}
}

// start starts a node's process on a disk that has to hold what the ledger says.
func (n *node) start(fs *vfs.Mem, before ledger) {
	w := n.w
	n.starts++
	n.disk = newDisk(n, fs, before)
	if w.err != nil {
		return
	}
	if slices.ContainsFunc(n.disk.Quarantined(), func(h seglog.Hit) bool { return h.Group == catgroup.Group }) {
		n.lose("a part of it is damaged")
		return
	}
	quiet := slog.New(complaints{n})
	n.rep = replica.Open(replica.Options{
		Log: n.disk, Reader: n.disk, Transport: n, NodeID: n.id, Shards: 2, Clock: n.clk, Logger: quiet,
		SnapshotEntries: 200, SnapshotBytes: 32 << 10, LateSnapshots: 1 << (4 * (n.id % 4)), KeepTail: w.o.KeepTail, KeepEntries: w.o.KeepEntries, Rest: w.o.Rest,
	})
	log := n.disk.Log
	n.reg = queuehost.New(queuehost.Options{
		Log: log, Node: n.rep, Clock: n.clk, Logger: quiet, Link: farLink{n}, Incarnation: n.starts, Stepped: true,
		TailCache: 16 << 10, PeerCredit: w.o.Window, NewReader: func() *queuehost.Reader { return queuehost.NewReader(log.NewReader()) },
		Level:   n.level,
		Applied: n.applied, Member: func(node uint64) bool { return n.view().Node(node) != nil },
		Deleted: func(id seglog.GroupID) bool {
			return id <= seglog.GroupID(n.view().LastQueue()) && n.view().QueueByID(catalog.QueueID(id)) == nil
		},
	})
	n.openCatalog(quiet)
	n.reader = queuehost.NewReader(log.NewReader())
	n.health = cluster.NewDetector()
	if err := n.rep.Replay(n.reg.Host); err != nil {
		w.failf("node %d: %v", n.id, err)
		return
	}
	n.asking, n.room, n.watched, n.mail, n.forgotten = nil, nil, nil, nil, nil
	n.order.machine.Policies = n.order.broker.PoliciesChanged // of what is in the log, queues learn when they begin
	n.begin()
	n.watched = n.known() // or nobody would hear that one of them leaves before this node is in
	n.rep.Prepare()
	n.disk.Log.Start()
	n.disk.ask = n.rep.NeedSnapshots
	n.disk.ledger.verify(w, n, n.disk)
	n.up, n.paused = true, 0
	var others []uint64
	for _, m := range w.nodes {
		if m != n {
			others = append(others, m.id)
		}
	}
	n.health.Watch(w.clk.Mono(), others)
	for _, m := range w.nodes {
		if m != n && m.up && !w.cut[pair{n.id, m.id}] {
			w.linkUp(n, m)
		}
	}
	n.enter()
}

// follow carries out what a node's detector says.
func (n *node) follow(changes []cluster.Change) {
	for _, c := range changes {
		switch c.Is {
		case cluster.Up:
			n.reg.Trust(c.Node)
		case cluster.Suspect:
			n.reg.Suspect(c.Node)
		case cluster.Gone:
			n.w.trace("node %d takes node %d for dead", n.id, c.Node)
			n.reg.Gone(c.Node, c.Incarnation)
		}
	}
}

// crash ends a node's process. Without power the disk keeps only what was synced.
func (n *node) crash(power bool) {
	w := n.w
	w.trace("node %d crashes (power %v)", n.id, power)
	n.up = false
	fs, after := n.disk.crash(rand.New(rand.NewPCG(w.o.Seed, n.id<<32|n.starts)), power)
	n.disk = &disk{fs: fs, ledger: after}
	for _, m := range w.nodes {
		if m != n {
			w.linkDown(n, m)
		}
	}
	for _, m := range w.nodes {
		m.grave.deserted(n)
	}
	for _, c := range n.asking { // nobody answers any more
		c.asked = false
	}
	w.check.crashed(n)
	w.orders.lost(n)
	n.clients, n.retired = nil, nil
}

func (n *node) restart() {
	if n.grave.why != "" {
		n.w.bury()
		return
	}
	n.w.trace("node %d starts", n.id)
	if n.w.o.Settings { // or what is kept for a time would be kept for another: a start is the one moment at which that clock counts
		n.clk.by = 0
	}
	n.start(n.disk.fs, n.disk.ledger)
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

// sync writes what waits for the disk. A node whose log has failed ends.
func (n *node) sync() bool {
	did := n.disk.sync()
	if n.up && n.order.failed != nil {
		why := n.order.failed.Error()
		n.crash(false)
		n.lose(why)
		return true
	}
	if n.up && n.disk.dead {
		n.w.trace("node %d: its disk has failed", n.id)
		n.crash(n.w.rng.IntN(2) == 0)
		return true
	}
	return did
}

// settle lets everything happen that is on its way, in order.
func (w *World) settle() {
	for round := 0; w.err == nil; round++ {
		if round > 200000 { // a lane that takes one chunk at a time may need some 20,000
			w.failf("the nodes do not come to rest")
			return
		}
		did := false
		for _, n := range w.nodes {
			if !n.up || n.paused > 0 {
				continue
			}
			for n.hear() {
				did = true
			}
			did = n.work() || did
			for n.up && (n.sync() || n.rep.ReadStep() || n.disk.keep()) {
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
	now := w.clk.Mono()
	ms := now / int64(time.Millisecond)
	for _, n := range w.nodes {
		if !n.up || n.paused > 0 {
			continue
		}
		if every := int64(beatEvery / time.Millisecond); ms/every != (ms-50)/every {
			n.rep.TickRaft()
			n.beat(now)
			n.order.forward.Tick()
			if ms/(3*every) != (ms-50)/(3*every) {
				n.duties()
				n.tend()
			}
		}
		n.reg.Tick()
		n.post(false)
	}
	w.check.look()
}

// beat lets a node look who is alive.
func (n *node) beat(now int64) {
	w := n.w
	for _, m := range w.nodes {
		since, silent := w.silent[pair{m.id, n.id}]
		if silent && time.Duration(now-since) >= cluster.SuspectAfter {
			n.rep.PeerDown(m.id)
			n.order.forward.Presence(m.id, false)
			n.follow(n.health.Suspect(now, m.id))
		}
		if m == n || !w.o.Relayed || !m.up || m.paused > 0 {
			continue
		}
		for _, by := range w.nodes {
			if by != n && by != m && by.up && w.hears(n, by) && w.hears(by, m) {
				n.follow(n.health.Heard(now, m.id, by.id))
				break
			}
		}
	}
	n.follow(n.health.Tick(now))
}

// Run runs the seed to its end and says what was wrong, or nil.
func (w *World) Run() error {
	defer w.stop()
	w.found()
	faultEvery := w.o.Steps
	if w.o.Faults > 0 {
		faultEvery = max(w.o.Steps/(w.o.Faults+1), 1)
	}
	for w.steps = 1; w.steps <= w.o.Steps && w.err == nil; w.steps++ {
		w.act()
		if w.steps%faultEvery == 0 && w.o.Faults > 0 {
			w.fault()
		}
		if w.flies > 0 {
			if w.flies--; w.flies == 0 {
				w.fly(300 + w.rng.IntN(100))
			}
		}
		w.recoverSome()
		for range 1 + w.rng.IntN(12) {
			w.step()
		}
	}
	w.finish()
	return w.err
}

// found has the nodes find together, and people declare the first queues.
func (w *World) found() {
	for range 40 {
		w.settle()
		w.tick()
	}
	if w.o.Settings && w.o.RaiseAt == 0 {
		for range 40 {
			if w.introduceLetters() {
				break
			}
			w.rest(5)
		}
		w.rest(5)
	}
	for range w.o.Queues + w.o.Classic {
		if n := w.anyNode(); n != nil {
			w.manage()
		}
		w.rest(5)
	}
	if n := w.wanted(); n != w.o.Queues+w.o.Classic {
		w.failf("there are %d queues in the beginning", n)
	}
}

// step lets one thing happen somewhere.
func (w *World) step() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if n.paused > 0 {
		if n.paused--; n.paused == 0 {
			n.wakes()
		}
		return
	}
	if !n.up {
		return
	}
	if n.disk.full > 0 {
		n.disk.full--
	}
	if n.small > 0 {
		if n.small--; n.small == 0 {
			w.trace("the disk of node %d has room again", n.id)
			n.disk.fs.SetCapacity(0)
		}
	}
	switch k := w.rng.IntN(100); {
	case k < 37:
		n.work()
	case k < 41:
		for n.hear() {
		}
	case k < 60:
		if !n.sync() && n.up && !n.rep.ReadStep() {
			n.disk.keep()
		}
	case k < 97:
		from := w.nodes[w.rng.IntN(len(w.nodes))]
		r := route{from.id, n.id, w.rng.IntN(lanes)}
		for range lanes { // the next that something is on its way on
			if w.deliver(r) {
				break
			}
			r.lane = (r.lane + 1) % lanes
		}
		for range w.rng.IntN(4) {
			w.deliver(r)
		}
	default:
		w.tick()
	}
}

func (w *World) stop() {
	for _, n := range w.nodes {
		n.disk.stop()
	}
}

// OptionsOf says what a seed is about.
func OptionsOf(seed uint64, steps int) Options {
	o := Options{
		Seed: seed, Nodes: 3, Members: 3, Queues: 2, Steps: steps, Faults: max(steps/100, 1),
		Relayed: seed/4%2 == 0, Reshapes: seed/8%2 == 0, Deletes: seed/16%2 == 0, Purges: seed/32%2 == 0,
	}
	if seed%3 == 0 {
		o.Classic = 1
	}
	switch seed / 64 % 4 { // links of the sizes that they have are never full here
	case 1:
		o.Lanes = [lanes]int{64 << 10, 64 << 10, 64 << 10, 64 << 10, 64 << 10, 64 << 10, 64 << 10}
	case 2:
		o.Lanes = [lanes]int{8 << 10, 8 << 10, 8 << 10, 8 << 10, 2 << 10, 2 << 10, 1 << 10}
		o.Window = 4 << 10
	case 3:
		o.Lanes = [lanes]int{4 << 10, 1 << 10, 1 << 10, 1 << 10, 500, 200, 30}
		o.Big = true
	}
	o.Rest = seed/1024%4 > 0
	if o.Settings = seed/4096%2 == 1; o.Settings && seed/8192%2 == 1 {
		o.RaiseAt = steps / 5
	}
	o.Carried = o.Settings && seed/16384%2 == 1
	if o.Classic == 0 && seed/256%2 == 0 {
		o.Frail = 1 + seed/512%3
	}
	switch seed % 4 {
	case 1:
		o.Nodes = 4
	case 2:
		o.KeepTail, o.KeepEntries = 1, 1
	case 3:
		o.Nodes, o.Members = 5, 5
	}
	return o
}
