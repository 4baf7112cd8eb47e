package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/cluster"
	"holdfast/internal/detour"
	"holdfast/internal/node/catgroup"
	"holdfast/internal/peer"
	"holdfast/internal/replica"
)

// mesh is a node's part in its cluster: the links to the others, who they are and how they stand. A node that is alone
// has none.
type mesh struct {
	n       *Node
	self    uint64
	name    string
	links   *peer.TCP
	ways    *detour.Detours // the links, and detours where there is none: what the rooms send on
	open    chan struct{}   // closed when there are links
	driver  *cluster.Driver
	state   cluster.State
	forward *catgroup.Forwarder
	belong  belonging
	lineage lineage
	touch   *touch
	alarms  alarmBook
	life    context.Context // ends when the links are about to be closed
	end     context.CancelFunc

	mu     sync.Mutex
	events []event
	stands map[uint64]stand
	linked map[uint64]bool
	wake   chan struct{}
	ending chan struct{} // closed when the links are about to be
	ended  errands

	gone map[uint64]catalog.Incarnation // starts that were reported to be over

	detector *cluster.Detector    // of the goroutine that watches
	alarmed  map[uint64]alarmBits // other nodes, as passed on last; it has this, too
	relieved int64                // clock.Mono of the last look for who could lead instead of this node, which has an alarm; 0: none; likewise
	kept     int                  // groups that could not be handed over; whoever stops the node has it
	busy     chan struct{}        // holds one while duties are being carried out
	trouble  string               // of the last change of the catalog's group; whoever is busy has it
}

// event is what the links said.
type event struct {
	kind        eventKind
	node        uint64
	incarnation uint64
	why         error
	result      *catalog.Result // of eventChanged: the command that did it, if it is known
}

type eventKind uint8

const (
	eventUp eventKind = iota
	eventDown
	eventSuspect
	eventTrust
	eventChanged // the catalog's nodes are others
)

// stand is how another node stands, for those who ask.
type stand struct {
	is      cluster.Condition
	why     string
	version string
	watched int64 // clock.Mono when it was first watched
	wasUp   bool
}

// The first byte of a message says which room it is for.
const (
	toReplica byte = 1 + iota
	toForwarder
	toQueues
	toMembers
	toDetour // never comes as far as here
)

// maxMessage is the longest message of a room in bytes.
const maxMessage = 4 << 20

// errAlone says why a folder cannot be taken into a cluster.
var errAlone = errors.New("this data folder belongs to a node that was always alone; start it without cluster.address, or give the cluster an empty folder (ctl stop_app and ctl reset empty it)")

// joinMesh opens the links and returns when the node is in a cluster.
func (n *Node) joinMesh(ctx context.Context, by lookup) error {
	s, dir := n.settings, n.settings.DataDir
	id := &n.identity
	if id.Cluster == nil && hasLog(n.fs, dir) {
		return errAlone
	}
	if id.Format, id.Node = formatCluster, id.number(); id.Cluster == nil {
		id.Cluster = new(cluster.State)
	}
	id.Starts++
	self := cluster.Node{ID: id.Node, Name: n.name(), Addr: s.Cluster.Address}
	told := joinList(s.Cluster)
	if id.Cluster.Founding == nil && len(told) == 0 {
		*id.Cluster = cluster.Alone(self, newClusterID())
	}
	if err := id.save(n.fs, dir); err != nil {
		return fmt.Errorf("data folder %s: %w", dir, err)
	}
	l, err := net.Listen("tcp", s.Cluster.Bind())
	if err != nil {
		return fmt.Errorf("cannot listen on %s for other nodes: %w", s.Cluster.Bind(), err)
	}
	m := &mesh{
		n: n, self: id.Node, name: self.Name, state: *id.Cluster, open: make(chan struct{}), wake: make(chan struct{}, 1), ending: make(chan struct{}),
		stands: map[uint64]stand{}, linked: map[uint64]bool{}, detector: cluster.NewDetector(), gone: map[uint64]catalog.Incarnation{},
		busy: make(chan struct{}, 1),
	}
	m.life, m.end = context.WithCancel(context.Background())
	m.belong = belonging{m: m, book: id.Peers}
	m.lineage = lineage{m: m, apart: map[uint64]*parted{}}
	m.lineage.set(id.Line)
	m.touch = newTouch(m)
	m.forward = catgroup.NewForwarder(catgroup.Options{
		Self: m.self, Session: id.Starts, Wait: time.Duration(s.DeclareTimeout), Now: n.clock.Mono,
		Propose: m.propose, Send: m.send, Stale: m.touch.doubt,
	})
	log := n.log.With("room", "cluster")
	list, resolve, found := told, func(context.Context) []string { return told }, false
	if m.state.Founding == nil {
		if by == nil {
			by = lookupHost
		}
		list, found = expand(ctx, by, told)
		found = found || s.Cluster.DNS != ""
		resolve = func(ctx context.Context) []string {
			list, _ := expand(ctx, by, told)
			return list
		}
	}
	m.driver = cluster.NewDriver(cluster.DriverOptions{
		Options: cluster.Options{Self: self, List: list, Found: found, State: m.state, NewID: newClusterID, Rand: lot},
		Call:    m.call, Save: m.save, Admit: m.admit, Resolve: resolve, Waits: n.waits, Clock: n.clock, Logger: log,
	})
	m.ways = detour.New(detour.Options{
		Self: peer.NodeID(m.self), Incarnation: id.Starts, Info: []byte(n.version), Handler: m, Tag: toDetour, MaxMessage: maxMessage,
		Logger: n.log.With("room", "peer"), Called: m.called, Beat: m.sayAlarms,
	})
	o := peer.Options{
		Node: peer.NodeID(m.self), Incarnation: id.Starts, Cluster: peer.ClusterID(m.state.Cluster()), Name: self.Name, Addr: self.Addr,
		Info: []byte(n.version), Handler: m.ways.Handler(), Beat: m.ways.Heard, MaxMessage: maxMessage + detour.Overhead, Listener: l, Secret: []byte(s.Cluster.Secret), Clock: n.clock, Logger: n.log.With("room", "peer"),
		Called: m.called, Levels: n.levels.hello, Unfit: m.unfit,
		Line: m.lineage.told, Meet: m.lineage.meet, Apart: m.lineage.refused,
	}
	if s.Cluster.TLS {
		o.TLS = s.TLS.Load
	}
	m.links = peer.Open(o)
	m.ways.Use(m.links)
	close(m.open)
	n.mesh = m
	if m.state.Founding == nil {
		n.log.Info("looking for the other nodes", "node", self.Name, "address", self.Addr, "join", list)
		state, err := m.driver.Run(ctx)
		m.driver.Wait()
		if err != nil {
			return fmt.Errorf("no cluster was found: %w", err)
		}
		m.state = state
	}
	m.links.SetCluster(peer.ClusterID(m.state.Cluster()))
	n.log.Info("in a cluster", "cluster", m.state.Cluster().String(), "node", self.Name, "id", m.self)
	return nil
}

func newClusterID() (id cluster.ID) {
	rand.Read(id[:])
	return id
}

// lot draws a number from 0 to below n.
func lot(n int) int {
	var b [8]byte
	rand.Read(b[:])
	return int(binary.LittleEndian.Uint64(b[:]) % uint64(n))
}

// name is what people call the node.
func (n *Node) name() string { return cmp.Or(n.settings.NodeName, n.identity.ID) }

// call sends a request of the forming.
func (m *mesh) call(ctx context.Context, addr string, msg []byte) ([]byte, error) {
	<-m.open
	answer, err := m.links.Call(ctx, addr, msg)
	if errors.Is(err, peer.ErrSelf) {
		err = cluster.ErrSelf
	}
	return answer, err
}

// save writes what the node must remember of its cluster. The driver calls it with its lock held.
func (m *mesh) save(s cluster.State) error {
	m.belong.save.Lock()
	defer m.belong.save.Unlock()
	m.n.identity.Cluster = &s
	return m.n.identity.save(m.n.fs, m.n.settings.DataDir)
}

// admit adds a node that asks to join to the catalog; its leader takes it into the group.
func (m *mesh) admit(ctx context.Context, node cluster.Node) error {
	if !m.n.running.Load() || !m.n.catalog.View().Bootstrapped() {
		return errors.New("the cluster is not ready yet")
	}
	v, voter := m.n.catalog.View(), false
	if was := v.Node(node.ID); was != nil {
		voter = was.Voter
	}
	if was := ghost(v, node); was != nil {
		if _, err := m.n.ask(ctx, catalog.RemoveNode(was.ID)); err != nil {
			return err
		}
	}
	_, err := m.n.ask(ctx, catalog.AddNode(catalog.Node{ID: node.ID, Name: node.Name, Addr: node.Addr, Voter: voter}))
	return err
}

// propose puts a command of the catalog in order, if this node leads.
func (m *mesh) propose(cmd []byte, done func(any, error)) {
	if g := m.n.commands; g != nil {
		g.Propose(cmd, true, done)
		return
	}
	done(nil, &replica.NotLeaderError{})
}

// send carries messages of the forwarder.
func (m *mesh) send(to uint64, control bool, add func([]byte) []byte) bool {
	lane := peer.Data
	if control {
		lane = peer.Control
	}
	return m.ways.Send(peer.NodeID(to), lane, func(b []byte) []byte { return add(append(b, toForwarder)) })
}

// raftTransport is the way of replicated groups to other nodes.
type raftTransport struct{ m *mesh }

// Send implements replica.Transport.
func (t raftTransport) Send(to uint64, lane replica.Lane, add func([]byte) []byte) bool {
	on := peer.Control
	switch lane {
	case replica.LaneData:
		on = peer.Data
	case replica.LaneBulk:
		on = peer.Bulk
	}
	return t.m.ways.Send(peer.NodeID(to), on, func(b []byte) []byte { return add(append(b, toReplica)) })
}

// queueLink is the way of queues to other nodes.
type queueLink struct{ m *mesh }

// Self implements queuehost.Link.
func (l queueLink) Self() uint64 { return l.m.self }

// Send implements queuehost.Link.
func (l queueLink) Send(to uint64, bulk bool, add func([]byte) []byte) bool {
	lane := peer.Control
	if bulk {
		lane = peer.Data
	}
	return l.m.ways.Send(peer.NodeID(to), lane, func(b []byte) []byte { return add(append(b, toQueues)) })
}

// Message implements peer.Handler.
func (m *mesh) Message(from peer.NodeID, _ peer.Lane, msg []byte) {
	if len(msg) == 0 {
		return
	}
	switch rest := msg[1:]; msg[0] {
	case toReplica:
		m.n.groups.Receive(uint64(from), rest)
	case toForwarder:
		m.forward.Receive(uint64(from), rest)
	case toQueues:
		m.n.queues.Receive(uint64(from), rest)
	case toMembers:
		m.n.members.Receive(uint64(from), rest)
	}
}

// Up implements peer.Handler.
func (m *mesh) Up(node peer.NodeID, incarnation uint64, info []byte) {
	id := uint64(node)
	m.mu.Lock()
	s := m.stands[id]
	s.version = string(info)
	m.stands[id] = s
	m.linked[id] = true
	m.mu.Unlock()
	m.lineage.linked(id)
	m.n.groups.PeerUp(id)
	m.n.queues.LinkUp(id, incarnation)
	m.forward.Presence(id, true)
	m.happened(event{kind: eventUp, node: id, incarnation: incarnation})
}

// Down implements peer.Handler.
func (m *mesh) Down(node peer.NodeID, why error) {
	id := uint64(node)
	m.mu.Lock()
	delete(m.linked, id)
	m.mu.Unlock()
	m.alarms.lost(id)
	m.n.groups.PeerDown(id)
	m.n.queues.LinkDown(id, why)
	m.forward.Lost(id)
	m.n.members.Lost(id)
	m.happened(event{kind: eventDown, node: id, why: why})
}

// Writable implements peer.Handler. Who stands in line for room tries once more before it waits, so word of room that
// comes before is not missed.
func (m *mesh) Writable(node peer.NodeID, lane peer.Lane) {
	if lane != peer.Bulk {
		m.n.queues.Writable(uint64(node))
	}
}

// Beat implements peer.Handler.
func (m *mesh) Beat(from peer.NodeID, said []byte) {
	m.touch.beat(uint64(from))
	m.hearAlarms(from, said)
}

// Suspect implements peer.Handler.
func (m *mesh) Suspect(node peer.NodeID) {
	m.n.groups.PeerDown(uint64(node))
	m.forward.Presence(uint64(node), false)
	m.n.members.Lost(uint64(node)) // nobody waits for its answers
	m.happened(event{kind: eventSuspect, node: uint64(node)})
}

// Trust implements peer.Handler. It comes before the link is up, too.
func (m *mesh) Trust(node peer.NodeID) {
	m.mu.Lock()
	linked := m.linked[uint64(node)]
	m.mu.Unlock()
	if linked {
		m.n.groups.PeerUp(uint64(node))
		m.forward.Presence(uint64(node), true)
	}
	m.happened(event{kind: eventTrust, node: uint64(node)})
}

// Call implements peer.Handler: another node asks about the cluster.
func (m *mesh) Call(from peer.Hello, msg []byte) []byte {
	if len(msg) > 0 && msg[0] == clusterCall {
		return m.answer(m.life, from, msg[1:])
	}
	return m.driver.Serve(m.life, msg)
}

func (m *mesh) happened(e event) {
	m.mu.Lock()
	m.events = append(m.events, e)
	m.mu.Unlock()
	m.poke()
}

func (m *mesh) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// members are those that the catalog's group begins with; nil for a node that joins one.
func (m *mesh) members() []replica.Member {
	if !m.state.Founding.Has(m.self) {
		return nil
	}
	var list []replica.Member
	for _, f := range m.state.Founding.Founders {
		list = append(list, replica.Member{ID: f.ID, Node: f.ID, Learner: !f.Voter})
	}
	return list
}

// addCatalog adds the catalog's group, replicated.
func (m *mesh) addCatalog() *replica.SimpleGroup {
	machine := &catgroup.Machine{Machine: m.n.catalog, Self: m.self, Applied: m.applied, Restored: m.restored, Most: m.n.levels.known.Most}
	var g *replica.SimpleGroup
	if list := m.members(); list != nil {
		g = m.n.groups.NewSimpleRaftGroup(catalogGroup, machine, list)
	} else {
		g = m.n.groups.JoinSimpleRaftGroup(catalogGroup, machine, m.self)
	}
	g.OnFailed(func(err error) {
		m.n.fail(fmt.Errorf("the catalog here is of no use (forget this node elsewhere, and start it with an empty data folder): %w", err))
	})
	g.OnRole(func(_, leader uint64, _ bool) {
		m.touch.lead(leader)
		m.forward.Lead(leader)
	})
	return g
}

// applied follows what the catalog's group has applied; on its worker.
func (m *mesh) applied(origin, session, seq uint64, r *catalog.Result) {
	if !m.n.running.Load() {
		return // replay
	}
	// First the queue, then the answer, which says that it can be used.
	if r != nil && r.Err == nil {
		m.n.broker.Changed(r, m.forward.Awaits(origin, session, seq))
		m.n.lookAtMembers(r)
	}
	if r != nil && (r.Node != nil || r.Incarnation != 0) {
		m.happened(event{kind: eventChanged, result: r})
	}
	m.forward.Applied(origin, session, seq, r)
}

// restored follows a catalog that came whole; on the worker.
func (m *mesh) restored() {
	if !m.n.running.Load() {
		return
	}
	m.forward.Restored()
	m.happened(event{kind: eventChanged})
	go m.n.broker.Sync()
}

// targets are the nodes to be linked to: those of the catalog, or, while it does not have this one, all that were ever
// heard of.
func (m *mesh) targets() (list []peer.Target, others []uint64) {
	add := func(id uint64, addr string) {
		list = append(list, peer.Target{ID: peer.NodeID(id), Addr: addr})
		others = append(others, id)
	}
	v := m.n.catalog.View()
	if v.Bootstrapped() && v.Node(m.self) != nil {
		for n := range v.Nodes().All() {
			if n.ID != m.self {
				add(n.ID, n.Addr)
			}
		}
		return list, others
	}
	for _, f := range m.state.Founding.Founders {
		if f.ID != m.self {
			add(f.ID, f.Addr)
		}
	}
	for n := range v.Nodes().All() {
		if n.ID != m.self && !slices.Contains(others, n.ID) {
			add(n.ID, n.Addr)
		}
	}
	for _, n := range m.belong.others() {
		if !slices.Contains(others, n.ID) {
			add(n.ID, n.Addr)
		}
	}
	return list, others
}

// handOverWait bounds how long a node that stops waits for others to lead.
const handOverWait = 2 * time.Second

// handOverRest is how long it waits for the next one: groups without another member stay.
const handOverRest = 500 * time.Millisecond

// handOver gives others what this node leads, before it stops to serve: nobody has to wait for an election then. A second
// time it does so only if it came to lead something meanwhile.
func (m *mesh) handOver() {
	left := m.n.groups.Leading()
	if left <= m.kept {
		return
	}
	if m.settleVotes(); !m.othersVote() {
		return
	}
	m.n.groups.HandOver()
	ticks := m.n.clock.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	began := m.n.clock.Mono()
	last, at := began, began
	for left > 0 && at-began < int64(handOverWait) && at-last < int64(handOverRest) {
		<-ticks.C()
		at = m.n.clock.Mono()
		if leads := m.n.groups.Leading(); leads < left {
			left, last = leads, at
		}
	}
	m.kept = left
}

// leave hands over what this node still leads, and says goodbye.
func (m *mesh) leave(clean bool) {
	if clean {
		m.handOver()
	}
	close(m.ending)
	m.end()
	m.forward.Close()
	m.ways.Close()
	m.ended.End()
}

// othersVote reports whether another node could lead the catalog's group.
func (m *mesh) othersVote() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n := range m.n.catalog.View().Nodes().All() {
		if n.ID != m.self && n.Voter && m.stands[n.ID].is == cluster.Up {
			return true
		}
	}
	return false
}

var _ replica.Transport = raftTransport{}
