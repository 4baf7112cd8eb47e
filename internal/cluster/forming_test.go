package cluster

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	formingSeeds = flag.Int("forming.seeds", 400, "how many schedules of each kind TestForming tries")
	formingFirst = flag.Int("forming.first", 1, "the first of them")
)

// world is some nodes that form clusters over a network which loses what it likes; time is a number.
type world struct {
	rand  *rand.Rand
	now   int64
	nodes []*simNode
	wires []*flight
	// cut says whether what one node sends reaches another; nil: it does.
	cut func(from, to int) bool
	// forgetful nodes do not write down what they promise: a planted bug.
	forgetful bool
	lastID    byte
	admitted  map[uint64]bool // by the catalog
	hasty     bool            // nodes wait for nobody, so that attempts meet
	pace      int             // how many milliseconds pass at most when nothing else happens
	log       []string
}

type simNode struct {
	index int
	id    uint64
	list  []string
	disk  State
	f     *Former // nil: down
	life  int
}

// flight is a call on its way: there, or back.
type flight struct {
	from, to   int
	life       int // of the caller
	call       Call
	answer     []byte
	back, lost bool
	due        int64 // when it fails, if it is lost
}

func addrOf(i int) string { return fmt.Sprintf("n%d:1", i) }

func newWorld(seed uint64, n int) *world {
	w := &world{rand: rand.New(rand.NewPCG(seed, 7)), admitted: map[uint64]bool{}, pace: 60}
	var list []string
	for i := range n {
		list = append(list, addrOf(i))
	}
	for _, i := range w.rand.Perm(n) {
		w.nodes = append(w.nodes, &simNode{id: uint64(10 + i), list: list})
	}
	for i, node := range w.nodes {
		node.index = i
	}
	return w
}

func (w *world) start(n *simNode) {
	n.life++
	n.f = New(Options{
		Self: Node{n.id, fmt.Sprint("name", n.index), addrOf(n.index)}, List: n.list, State: n.disk,
		NewID: func() ID { w.lastID++; return ID{w.lastID} },
		Rand:  w.rand.IntN,
	})
	if w.hasty {
		n.f.patience, n.f.turn = 0, 0
	}
	w.logf("%d starts, in %v", n.index, n.disk.Cluster())
}

func (w *world) crash(n *simNode) {
	n.f = nil
	w.logf("%d crashes", n.index)
}

func (w *world) logf(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%6d ", w.now/1e6)+fmt.Sprintf(format, args...))
}

// carryOut does what a step wants done. chance is that of a crash before and after the state is written.
func (w *world) carryOut(n *simNode, out Output, reply *flight, chance float64) {
	if w.rand.Float64() < chance {
		w.crash(n)
		return
	}
	if out.Save {
		n.disk = n.f.State()
		if w.forgetful && n.disk.Founding == nil {
			n.disk = State{}
		}
		if w.rand.Float64() < chance*4 {
			w.crash(n)
			return
		}
	}
	for _, c := range out.Calls {
		to := slices.IndexFunc(w.nodes, func(m *simNode) bool { return addrOf(m.index) == c.To })
		w.wires = append(w.wires, &flight{from: n.index, to: to, life: n.life, call: c})
	}
	if reply != nil {
		reply.back, reply.answer = true, out.Answer
		if out.Admit != nil {
			w.admitted[out.Admit.ID] = true
			reply.answer = n.f.Admitted(nil)
		}
		w.wires = append(w.wires, reply)
	}
}

// deliver takes one call a step further.
func (w *world) deliver(i int, chance float64) {
	fl := w.wires[i]
	w.wires = slices.Delete(w.wires, i, i+1)
	from := w.nodes[fl.from]
	if from.f == nil || from.life != fl.life {
		return // nobody waits for it any more
	}
	if fl.lost {
		if w.now < fl.due {
			w.wires = append(w.wires, fl)
			return
		}
		w.carryOut(from, from.f.Answered(w.now, fl.call.Tag, nil, errors.New("lost")), nil, chance)
		return
	}
	if fl.back {
		if w.cut != nil && w.cut(fl.to, fl.from) {
			w.lose(fl)
			return
		}
		w.carryOut(from, from.f.Answered(w.now, fl.call.Tag, fl.answer, nil), nil, chance)
		return
	}
	if fl.to < 0 || w.nodes[fl.to].f == nil || w.cut != nil && w.cut(fl.from, fl.to) {
		w.lose(fl)
		return
	}
	to := w.nodes[fl.to]
	w.carryOut(to, to.f.Serve(w.now, fl.call.Msg), fl, chance)
	if !fl.back { // the node crashed and never answered
		w.lose(fl)
	}
}

func (w *world) lose(fl *flight) {
	fl.lost, fl.due = true, w.now+int64(w.rand.IntN(2000))*1e6
	w.wires = append(w.wires, fl)
}

// step lets one thing happen; trouble says how often bad things do.
func (w *world) step(trouble float64) {
	switch p := w.rand.Float64(); {
	case len(w.wires) > 0 && p < 0.7:
		i := w.rand.IntN(len(w.wires))
		if w.rand.Float64() < trouble && !w.wires[i].lost {
			fl := w.wires[i]
			w.wires = slices.Delete(w.wires, i, i+1)
			w.lose(fl)
			return
		}
		w.deliver(i, trouble/8)
	default:
		w.now += int64(w.rand.IntN(w.pace)) * 1e6
		for _, n := range w.nodes {
			if n.f != nil {
				w.carryOut(n, n.f.Tick(w.now), nil, trouble/16)
			}
		}
	}
}

// check returns what is wrong: two clusters, or a node in one that does not know it.
func (w *world) check() error {
	var of ID
	for _, n := range w.nodes {
		states := []State{n.disk}
		if n.f != nil {
			states = append(states, n.f.State())
		}
		for _, s := range states {
			c := s.Cluster()
			if c == (ID{}) {
				continue
			}
			if of == (ID{}) {
				of = c
			}
			if !s.Founding.Has(n.id) && !w.admitted[n.id] {
				return fmt.Errorf("node %d is in a cluster that did not admit it", n.index)
			}
			if c != of {
				return fmt.Errorf("two clusters, %v and %v", of, c)
			}
		}
	}
	return nil
}

func (w *world) fail(t *testing.T, kind string, seed uint64, err error) {
	t.Helper()
	t.Fatalf("%s, seed %d: %v\n%s", kind, seed, err, strings.Join(w.log, "\n"))
}

// calm lets time pass without trouble until all of some nodes are in a cluster.
func (w *world) calm(nodes []*simNode) error {
	end := w.now + int64(3*time.Minute)
	for w.now < end {
		for range 50 {
			w.step(0)
		}
		if err := w.check(); err != nil {
			return err
		}
		if !slices.ContainsFunc(nodes, func(n *simNode) bool { return n.f == nil || !n.f.Done() }) {
			return nil
		}
	}
	var problems []string
	for _, n := range nodes {
		if n.f == nil {
			problems = append(problems, fmt.Sprintf("%d is down", n.index))
			continue
		}
		problems = append(problems, fmt.Sprintf("%d: %v %q", n.index, n.f.Done(), n.f.Problem()))
	}
	return fmt.Errorf("no cluster of all in three minutes: %s", strings.Join(problems, "; "))
}

// chaos lets nodes start, crash and lose each other for a while.
func (w *world) chaos(steps int) error {
	trouble := []float64{0, 0.02, 0.1, 0.3}[w.rand.IntN(4)]
	w.pace = []int{60, 300, 1000}[w.rand.IntN(3)]
	w.hasty = w.rand.IntN(2) == 0
	defer func() { w.pace = 60 }()
	for _, n := range w.nodes {
		if w.rand.IntN(3) > 0 {
			w.start(n)
		}
	}
	for range steps {
		switch p := w.rand.Float64(); {
		case p < 0.01:
			n := w.nodes[w.rand.IntN(len(w.nodes))]
			if n.f == nil {
				w.start(n)
			} else if w.rand.IntN(3) == 0 {
				w.crash(n)
			}
		case p < 0.015:
			w.divide()
		default:
			w.step(trouble)
		}
		if err := w.check(); err != nil {
			return err
		}
	}
	return nil
}

// divide cuts the network in two, one way or both, or mends it.
func (w *world) divide() {
	side := make([]bool, len(w.nodes))
	for i := range side {
		side[i] = w.rand.IntN(2) == 0
	}
	switch w.rand.IntN(3) {
	case 0:
		w.cut = nil
	case 1:
		w.cut = func(from, to int) bool { return side[from] != side[to] }
	case 2:
		w.cut = func(from, to int) bool { return side[from] && !side[to] }
	}
	w.logf("cut %v", side)
}

func forming(t *testing.T, kind string, run func(w *world, n int) error) {
	t.Run(kind, func(t *testing.T) {
		for _, n := range []int{1, 2, 3, 5} {
			for i := range *formingSeeds {
				seed := uint64(*formingFirst + i)
				w := newWorld(seed, n)
				if err := run(w, n); err != nil {
					w.fail(t, fmt.Sprintf("%s with %d nodes", kind, n), seed, err)
				}
			}
		}
	})
}

// TestForming runs schedules of starts, crashes, lost calls and cut networks, all drawn by a seed, and looks for two
// clusters after every step. -forming.first and -forming.seeds give other ones.
func TestForming(t *testing.T) {
	forming(t, "together", func(w *world, n int) error {
		for _, node := range w.nodes {
			w.start(node)
		}
		if err := w.calm(w.nodes); err != nil {
			return err
		}
		if founders := len(w.nodes[0].disk.Founding.Founders); founders != n {
			return fmt.Errorf("%d founders", founders)
		}
		return nil
	})
	forming(t, "whatever happens, then all", func(w *world, n int) error {
		if err := w.chaos(1500); err != nil {
			return err
		}
		w.cut = nil
		for _, node := range w.nodes {
			if node.f == nil {
				w.start(node)
			}
		}
		return w.calm(w.nodes)
	})
	forming(t, "whatever happens, then a majority", func(w *world, n int) error {
		if err := w.chaos(1500); err != nil {
			return err
		}
		w.cut = nil
		up := w.rand.Perm(n)[:n/2+1]
		var majority []*simNode
		for i, node := range w.nodes {
			if !slices.Contains(up, i) {
				w.crash(node)
				continue
			}
			if node.f == nil {
				w.start(node)
			}
			majority = append(majority, node)
		}
		return w.calm(majority)
	})
	forming(t, "two halves", func(w *world, n int) error {
		small := w.rand.Perm(n)[:n/2]
		w.cut = func(from, to int) bool { return slices.Contains(small, from) != slices.Contains(small, to) }
		var majority []*simNode
		for i, node := range w.nodes {
			w.start(node)
			if !slices.Contains(small, i) && n%2 == 1 { // of two, neither half is a majority
				majority = append(majority, node)
			}
		}
		if err := w.calm(majority); err != nil {
			return err
		}
		for range 2000 {
			w.step(0)
		}
		for i, node := range w.nodes {
			if node.f.Done() != slices.Contains(majority, node) {
				return fmt.Errorf("node %d: in a cluster %v", i, node.f.Done())
			}
		}
		w.cut = nil
		return w.calm(w.nodes)
	})
}

// The checker finds what it is there for: nodes that forget their promises found two clusters.
func TestFormingForgetful(t *testing.T) {
	for seed := range uint64(5000) {
		w := newWorld(seed, 3)
		w.forgetful = true
		if w.chaos(1500) != nil {
			return
		}
	}
	t.Fatal("nodes that forget found one cluster all the same")
}
