package queuehost

import (
	"errors"
	"sync"
	"testing"

	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

// farRigs says that rigs have their queues on another node than their clients.
var farRigs bool

const (
	entryNode = 1
	homeNode  = 2
)

// memNet is links in memory. Messages lie in lines until somebody delivers them.
type memNet struct {
	mu     sync.Mutex
	regs   map[uint64]*Registry
	lines  map[route]*netLine
	up     map[[2]uint64]bool // as the first sees it
	broken map[[2]uint64]bool // what is sent is lost, whether or not somebody has noticed
	budget int                // bytes of a line
	pumps  map[route]chan struct{}
	stop   chan struct{}
	pumped sync.WaitGroup
}

type route struct {
	from, to uint64
	bulk     bool
}

type netLine struct {
	messages [][]byte
	bytes    int
	refused  bool
	size     int // of the last message
}

func newMemNet() *memNet {
	return &memNet{regs: map[uint64]*Registry{}, lines: map[route]*netLine{}, up: map[[2]uint64]bool{}, broken: map[[2]uint64]bool{}, budget: 1 << 20}
}

type memLink struct {
	n    *memNet
	self uint64
}

func (n *memNet) link(self uint64) Link { return &memLink{n, self} }

func (l *memLink) Self() uint64 { return l.self }

func (l *memLink) Send(node uint64, bulk bool, append_ func([]byte) []byte) bool {
	n := l.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.up[[2]uint64{l.self, node}] {
		return false
	}
	r := route{l.self, node, bulk}
	line := n.lines[r]
	if line == nil {
		line = &netLine{}
		n.lines[r] = line
	}
	if line.bytes >= n.budget {
		line.refused = true
		return false
	}
	msg := append_(make([]byte, 0, line.size))
	line.size = len(msg)
	if !n.broken[[2]uint64{l.self, node}] {
		line.messages = append(line.messages, msg)
		line.bytes += len(msg)
		if wake := n.pumps[r]; wake != nil {
			select {
			case wake <- struct{}{}:
			default:
			}
		}
	}
	return true
}

// start delivers what is sent between two nodes from now on, on goroutines as a link's readers are.
func (n *memNet) start(a, b uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pumps, n.stop = map[route]chan struct{}{}, make(chan struct{})
	for _, r := range []route{{a, b, false}, {a, b, true}, {b, a, false}, {b, a, true}} {
		wake := make(chan struct{}, 1)
		n.pumps[r] = wake
		n.pumped.Go(func() {
			for {
				select {
				case <-wake:
				case <-n.stop:
					return
				}
				for n.deliver(r) {
				}
			}
		})
	}
}

func (n *memNet) end() {
	close(n.stop)
	n.pumped.Wait()
}

// deliver delivers one message of a line.
func (n *memNet) deliver(r route) bool {
	n.mu.Lock()
	line := n.lines[r]
	if line == nil || len(line.messages) == 0 {
		n.mu.Unlock()
		return false
	}
	msg := line.messages[0]
	line.messages = line.messages[1:]
	line.bytes -= len(msg)
	again := line.refused && line.bytes <= n.budget/2
	if again {
		line.refused = false
	}
	to, from := n.regs[r.to], n.regs[r.from]
	n.mu.Unlock()
	to.Receive(r.from, msg)
	if again {
		from.Writable(r.to)
	}
	return true
}

// deliverAll delivers what is there, and what comes of it.
func (n *memNet) deliverAll(nodes ...uint64) (any bool) {
	for more := true; more; {
		more = false
		for _, from := range nodes {
			for _, to := range nodes {
				for _, bulk := range []bool{false, true} {
					for n.deliver(route{from, to, bulk}) {
						more, any = true, true
					}
				}
			}
		}
	}
	return any
}

// lose drops what is under way between two nodes, and what is sent from now on.
func (n *memNet) lose(a, b uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broken[[2]uint64{a, b}], n.broken[[2]uint64{b, a}] = true, true
	for _, r := range []route{{a, b, false}, {a, b, true}, {b, a, false}, {b, a, true}} {
		delete(n.lines, r)
	}
}

// set says how the first sees its link to the second.
func (n *memNet) set(a, b uint64, up bool) {
	n.mu.Lock()
	was := n.up[[2]uint64{a, b}]
	n.up[[2]uint64{a, b}] = up
	reg := n.regs[a]
	n.mu.Unlock()
	switch {
	case up && !was:
		reg.LinkUp(b, 1)
	case !up && was:
		reg.LinkDown(b, errors.New("the cable was cut"))
	}
}

// connect makes the link of two nodes; a notices first.
func (n *memNet) connect(a, b uint64) {
	n.mu.Lock()
	n.broken[[2]uint64{a, b}], n.broken[[2]uint64{b, a}] = false, false
	n.mu.Unlock()
	n.set(a, b, true)
	n.set(b, a, true)
}

// cut breaks it.
func (n *memNet) cut(a, b uint64) {
	n.lose(a, b)
	n.set(a, b, false)
	n.set(b, a, false)
}

// addEntry gives the rig a node of clients.
func (r *rig) addEntry(defs []QueueDef, opts []rigOptions) {
	r.t.Helper()
	log := newFakeLog()
	ro := replica.Options{Log: log, Shards: 1, Clock: r.clock}
	qo := Options{Log: log, Clock: r.clock, Link: r.net.link(entryNode), Incarnation: 1}
	for _, o := range opts {
		o(&ro, &qo)
	}
	ro.Log, qo.Log = log, log
	r.entry = replica.Open(ro)
	qo.Node = r.entry
	r.home, r.reg = r.reg, New(qo)
	r.net.regs[homeNode], r.net.regs[entryNode] = r.home, r.reg
	for _, d := range defs {
		if _, err := r.reg.CreateFar(d, homeNode); err != nil {
			r.t.Fatal(err)
		}
	}
	r.entry.Prepare()
	r.net.connect(entryNode, homeNode)
}

func (r *rig) stepBoth() {
	for more := true; more; {
		more = false
		for r.entry.Shard(0).Step() {
			more = true
		}
		if r.net.deliverAll(entryNode, homeNode) {
			more = true
		}
		for r.node.Shard(0).Step() {
			more = true
		}
	}
}

// newFarRig makes a rig whose queues run on another node.
func newFarRig(t testing.TB, log *fakeLog, defs []QueueDef, opts ...rigOptions) *rig {
	farRigs = true
	defer func() { farRigs = false }()
	return newRig(t, log, defs, opts...)
}

func (r *rig) atHome(id seglog.GroupID) *Handle {
	r.t.Helper()
	h := r.home.Get(id)
	if h == nil {
		r.t.Fatalf("no queue %d at home", id)
	}
	return h
}

// What a queue promises it promises on every node: the tests of the host with
// clients on another node.
func TestQueuesOnAnotherNode(t *testing.T) {
	farRigs = true
	defer func() { farRigs = false }()
	for name, test := range map[string]func(*testing.T){
		"DirectPublishIsConfirmedAndDelivered": TestDirectPublishIsConfirmedAndDelivered,
		"PersistentConfirmWaitsForTheDisk":     TestPersistentConfirmWaitsForTheDisk,
		"NobodyWaitsNoSync":                    TestNobodyWaitsNoSync,
		"FirstHandOutWaitsForTheDisk":          TestFirstHandOutWaitsForTheDisk,
		"TransientHandOutDoesNotWait":          TestTransientHandOutDoesNotWait,
		"EachPublishersOrderHolds":             TestEachPublishersOrderHolds,
		"EntriesAreBounded":                    TestEntriesAreBounded,
		"Get":                                  TestGet,
		"NoAckSettlesAtAssignment":             TestNoAckSettlesAtAssignment,
		"Settle":                               TestSettle,
		"AcksOneByOneAreOneCommand":            TestAcksOneByOneAreOneCommand,
		"CreditBehindAttach":                   TestCreditBehindAttach,
		"WakeAndDrain":                         TestWakeAndDrain,
		"ExclusiveConsumerIsAlone":             TestExclusiveConsumerIsAlone,
		"CancelKeepsCheckouts":                 TestCancelKeepsCheckouts,
		"DetachReturnsCheckouts":               TestDetachReturnsCheckouts,
		"Purge":                                TestPurge,
		"BigMessageTravelsInChunks":            TestBigMessageTravelsInChunks,
		"UnsealTakesPublishesAgain":            TestUnsealTakesPublishesAgain,
		"PublishesWaitForTheDeletion":          TestPublishesWaitForTheDeletion,
		"ConsumersAreListed":                   TestConsumersAreListed,
		"BarrierWaitsForSettlementsOnDisk":     TestBarrierWaitsForSettlementsOnDisk,
		"BarrierOfQueuesThatWriteNothing":      TestBarrierOfQueuesThatWriteNothing,
		"CountKnowsWhatCameBefore":             TestCountKnowsWhatCameBefore,
		"OutOfCreditAsksForASync":              TestOutOfCreditAsksForASync,
	} {
		t.Run(name, test)
	}
}
