package catgroup

import (
	"encoding/binary"
	"errors"
	"testing"

	"holdfast/internal/broker"
	"holdfast/internal/catalog"
	"holdfast/internal/replica"
)

// parliament is forwarders whose group is a list of entries: the leader puts in order, and nodes apply when told to.
type parliament struct {
	now    int64
	leader uint64
	nodes  map[uint64]*Forwarder
	log    [][]byte       // committed
	done   map[uint64]int // how far a node has applied
	held   bool           // what the leader gets is not committed
	lost   [][]byte       // what it got then
	told   []uint64       // nodes that were told that they are late
	before func()         // once, before the next message is sent
}

func newParliament(t *testing.T) *parliament {
	p := &parliament{leader: 1, nodes: map[uint64]*Forwarder{}, done: map[uint64]int{}}
	for id := uint64(1); id <= 3; id++ {
		p.nodes[id] = NewForwarder(Options{
			Self: id, Session: 7, Wait: 1 << 40, Now: func() int64 { return p.now },
			Propose: func(cmd []byte, done func(any, error)) {
				switch {
				case p.leader != id:
					done(nil, &replica.NotLeaderError{Leader: p.leader})
				case p.held:
					p.lost = append(p.lost, cmd)
				default:
					p.log = append(p.log, cmd)
				}
			},
			Send: func(to uint64, _ bool, add func([]byte) []byte) bool {
				if do := p.before; do != nil {
					p.before = nil
					do()
				}
				p.nodes[to].Receive(id, add(nil))
				return true
			},
			Stale: func() { p.told = append(p.told, id) },
		})
	}
	for _, f := range p.nodes {
		for id := range p.nodes {
			if id != f.o.Self {
				f.there[id] = true
			}
		}
		f.Lead(1)
	}
	return p
}

// apply has a node apply all there is.
func (p *parliament) apply(id uint64) {
	for ; p.done[id] < len(p.log); p.done[id]++ {
		b := p.log[p.done[id]][1:]
		var head [3]uint64
		for i := range head {
			v, n := binary.Uvarint(b)
			head[i], b = v, b[n:]
		}
		var r *catalog.Result
		if len(b) > 0 {
			r = new(catalog.Result)
		}
		p.nodes[id].Applied(head[0], head[1], head[2], r)
	}
}

// commands counts the commands in the log.
func (p *parliament) commands() (n int) {
	for _, e := range p.log {
		b := e[1:]
		for range 3 {
			_, k := binary.Uvarint(b)
			b = b[k:]
		}
		if len(b) > 0 {
			n++
		}
	}
	return n
}

// A command is answered when every node that is there has applied it, or after a second.
func TestForwardedCommandIsAnsweredWhenAllHaveIt(t *testing.T) {
	p := newParliament(t)
	answered := 0
	p.nodes[2].Propose([]byte("x"), true, func(r any, err error) {
		if answered++; err != nil || r == nil {
			t.Errorf("answer: %v, %v", r, err)
		}
	})
	p.apply(1)
	p.apply(2)
	if answered != 0 {
		t.Fatal("answered before node 3 has it")
	}
	p.apply(3)
	if answered != 1 {
		t.Fatalf("answered %d times", answered)
	}
	p.nodes[2].Propose([]byte("y"), true, func(any, error) { answered++ })
	p.apply(1)
	p.apply(2)
	p.now += int64(everywhere)
	p.nodes[2].Tick()
	if answered != 2 {
		t.Fatal("a node that is late is waited for without end")
	}
	if len(p.told) != 1 || p.told[0] != 3 {
		t.Errorf("told that they are late: nodes %v", p.told)
	}
	p.nodes[2].Propose([]byte("z"), true, func(any, error) { answered++ })
	p.apply(1)
	p.apply(2)
	if answered != 3 {
		t.Fatal("a stale node is waited for")
	}
}

// A command that is taken back before there is a leader never happens.
func TestForwardedCommandIsWithdrawn(t *testing.T) {
	p := newParliament(t)
	f := p.nodes[2]
	f.Lead(0)
	withdraw := f.Put([]byte("x"), func(any, error) { t.Error("answered") }, 1<<40)
	withdraw()
	f.Lead(1)
	if p.commands() != 0 || len(f.pending) != 0 {
		t.Errorf("%d commands, %d pending", p.commands(), len(f.pending))
	}
}

// What may be in a state that came whole is not done a second time: nobody knows what became of it.
func TestForwardedCommandMayBeInAState(t *testing.T) {
	for _, committed := range []bool{false, true} {
		p := newParliament(t)
		p.held = true
		var told []error
		p.nodes[2].Propose([]byte("x"), true, func(_ any, err error) { told = append(told, err) })
		if p.held = false; committed {
			p.log = append(p.log, p.lost...)
			p.apply(1)
			p.apply(3)
		}
		p.done[2] = len(p.log) // by the state
		p.nodes[2].Restored()
		for _, id := range []uint64{1, 2, 3} {
			p.nodes[id].Lead(0)
			p.nodes[id].Lead(3)
		}
		p.leader = 3
		for range 3 {
			p.nodes[2].Tick()
			p.apply(3)
			p.apply(2)
		}
		want := 0
		if committed {
			want = 1
		}
		if p.commands() != want || len(told) != 1 || !errors.Is(told[0], broker.ErrOverdue) || p.nodes[2].Waiting() != 0 {
			t.Errorf("committed %v: %d commands in the log, answers %v, %d wait", committed, p.commands(), told, p.nodes[2].Waiting())
		}
	}
}

// The state comes whole to a node that waits for a barrier: the barrier may be part of it, and is put in order once more.
func TestABarrierMayBeInAState(t *testing.T) {
	p := newParliament(t)
	answered := 0
	p.nodes[2].Put(nil, func(_ any, err error) {
		if answered++; err != nil {
			t.Error(err)
		}
	}, 1<<40)
	p.done[2] = len(p.log)
	p.nodes[2].Restored()
	if answered != 0 {
		t.Fatal("answered without having been applied here")
	}
	p.apply(2)
	if answered != 1 || len(p.nodes[2].pending) != 0 {
		t.Errorf("answered %d times, %d pending", answered, len(p.nodes[2].pending))
	}
}

// What a leader took with it is proposed again, once; what it had committed is not.
func TestForwardedCommandSurvivesItsLeader(t *testing.T) {
	for _, committed := range []bool{false, true} {
		p := newParliament(t)
		p.held = true
		answered := 0
		p.nodes[2].Propose([]byte("x"), true, func(_ any, err error) {
			if answered++; err != nil {
				t.Error(err)
			}
		})
		if committed {
			p.log = append(p.log, p.lost...)
		}
		p.held, p.leader = false, 3
		for _, id := range []uint64{2, 3} {
			p.nodes[id].Lost(1)
			p.nodes[id].Lead(0)
		}
		p.nodes[3].Lead(3)
		p.nodes[2].Lead(3)
		for range 3 {
			p.apply(3)
			p.apply(2)
		}
		if answered != 1 || p.commands() != 1 {
			t.Errorf("committed %v: answered %d times, %d commands in the log", committed, answered, p.commands())
		}
	}
}

// Who gives a command to a leader may be slow: meanwhile another one leads, and has none of it. It must not be given to that one
// as well.
func TestForwardedCommandIsOnItsWay(t *testing.T) {
	p := newParliament(t)
	p.before = func() {
		p.leader = 3
		p.nodes[2].Lead(3)
		p.apply(2)
		p.nodes[2].Tick()
		p.leader = 1
	}
	p.nodes[2].Propose([]byte("x"), true, func(any, error) {})
	p.nodes[2].Lead(1)
	p.apply(2)
	p.nodes[2].Tick()
	if n := p.commands(); n != 1 {
		t.Errorf("the command is in the log %d times", n)
	}
}

// A barrier of which its leader says that nobody knows what became of it does not hold up what waits for it.
func TestABarrierInDoubt(t *testing.T) {
	p := newParliament(t)
	f := p.nodes[2]
	answered := 0
	p.held = true
	f.Propose([]byte("x"), true, func(_ any, err error) {
		if answered++; err != nil {
			t.Error(err)
		}
	})
	f.refused(1, 1, false)
	f.Tick() // asks for the barrier
	if f.barrier == 0 {
		t.Fatal("no barrier")
	}
	f.refused(1, f.barrier, false)
	p.held = false
	for range 3 {
		f.Tick()
		for id := range p.nodes {
			p.apply(id)
		}
	}
	if answered != 1 || p.commands() != 1 || f.Waiting() != 0 {
		t.Errorf("answered %d times, %d commands in the log, %d wait", answered, p.commands(), f.Waiting())
	}
}
