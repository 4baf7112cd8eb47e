package queuehost

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/message"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/vfs"
)

// trio is nodes with their workers, real logs, and links of goroutines between them.
type trio struct {
	nodes []*liveNode
	mu    sync.Mutex
	up    map[[2]uint64]*liveLink // in one direction
	tick  *time.Ticker
	done  chan struct{}
	wg    sync.WaitGroup
}

type liveNode struct {
	trio *trio
	id   uint64
	log  *seglog.Log
	rep  *replica.Node
	reg  *Registry
}

// liveLink is one life of the link from one node to another: five lanes, each with a goroutine.
type liveLink struct {
	lanes [5]liveLane
	done  chan struct{}
	wg    sync.WaitGroup
}

type liveLane struct {
	mu   sync.Mutex
	msgs [][]byte
	wake chan struct{}
}

// newTrio starts n nodes on disks; all hold a member of each queue.
func newTrio(t testing.TB, n int, disk func(i int) (vfs.FS, string), queues ...QueueDef) *trio {
	t.Helper()
	return newTrioWith(t, n, func(*Options) {}, disk, queues...)
}

// newTrioWith does it with options changed.
func newTrioWith(t testing.TB, n int, change func(*Options), disk func(i int) (vfs.FS, string), queues ...QueueDef) *trio {
	t.Helper()
	x := &trio{up: map[[2]uint64]*liveLink{}, tick: time.NewTicker(50 * time.Millisecond), done: make(chan struct{})}
	quiet := slog.New(slog.DiscardHandler)
	var members []Member
	for i := range n {
		members = append(members, Member{ID: uint64(i + 1), Node: uint64(i + 1)})
	}
	for i := range n {
		fs, dir := disk(i)
		if err := fs.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
		v := &liveNode{trio: x, id: uint64(i + 1)}
		var node atomic.Pointer[replica.Node]
		o := seglog.Options{Logger: quiet, Events: seglog.Events{NeedSnapshot: func(ids []seglog.GroupID) {
			if n := node.Load(); n != nil {
				n.NeedSnapshots(ids)
			}
		}}}
		if _, mem := fs.(*vfs.Mem); mem {
			o.SegmentMin, o.SegmentMax, o.CheckpointBytes = 256<<10, 1<<20, 1<<20
		}
		var err error
		if v.log, err = seglog.Open(fs, dir, o); err != nil {
			t.Fatal(err)
		}
		v.rep = replica.Open(replica.Options{Log: v.log, Reader: replica.NewReader(v.log), Transport: v, NodeID: v.id, Logger: quiet})
		node.Store(v.rep)
		ro := Options{
			Log: v.log, Node: v.rep, Logger: quiet, Link: liveFar{v}, Incarnation: 1,
			NewReader: func() *Reader { return NewReader(v.log.NewReader()) },
		}
		change(&ro)
		v.reg = New(ro)
		if err := v.rep.Replay(v.reg.Host); err != nil {
			t.Fatal(err)
		}
		for _, def := range queues {
			if _, err := v.reg.CreateQuorum(def, members); err != nil {
				t.Fatal(err)
			}
		}
		x.nodes = append(x.nodes, v)
		v.rep.Start()
	}
	for _, a := range x.nodes {
		for _, b := range x.nodes {
			if a.id < b.id {
				x.connect(a, b)
			}
		}
	}
	x.wg.Go(func() {
		for {
			select {
			case <-x.tick.C:
				for _, v := range x.nodes {
					v.reg.Tick()
				}
			case <-x.done:
				return
			}
		}
	})
	return x
}

func (x *trio) close(t testing.TB) {
	close(x.done)
	x.wg.Wait()
	for _, a := range x.nodes {
		for _, b := range x.nodes {
			if a.id < b.id {
				x.cut(a, b)
			}
		}
	}
	for _, v := range x.nodes {
		if err := errors.Join(v.rep.Close(true), v.log.Close(true)); err != nil {
			t.Error(err)
		}
	}
}

func (x *trio) connect(a, b *liveNode) {
	for _, v := range [][2]*liveNode{{a, b}, {b, a}} {
		l := &liveLink{done: make(chan struct{})}
		for i := range l.lanes {
			lane := &l.lanes[i]
			lane.wake = make(chan struct{}, 1)
			l.wg.Go(func() { l.run(lane, i, v[0], v[1]) })
		}
		x.mu.Lock()
		x.up[[2]uint64{v[0].id, v[1].id}] = l
		x.mu.Unlock()
	}
	for _, v := range [][2]*liveNode{{a, b}, {b, a}} {
		v[0].rep.PeerUp(v[1].id)
		v[0].reg.LinkUp(v[1].id, 1)
	}
}

func (x *trio) cut(a, b *liveNode) {
	for _, v := range [][2]*liveNode{{a, b}, {b, a}} {
		x.mu.Lock()
		l := x.up[[2]uint64{v[0].id, v[1].id}]
		delete(x.up, [2]uint64{v[0].id, v[1].id})
		x.mu.Unlock()
		if l != nil {
			close(l.done)
			l.wg.Wait()
		}
	}
	for _, v := range [][2]*liveNode{{a, b}, {b, a}} {
		v[0].rep.PeerDown(v[1].id)
		v[0].reg.LinkDown(v[1].id, errors.New("the cable was cut"))
	}
}

func (l *liveLink) run(lane *liveLane, i int, from, to *liveNode) {
	for {
		select {
		case <-lane.wake:
		case <-l.done:
			return
		}
		lane.mu.Lock()
		msgs := lane.msgs
		lane.msgs = nil
		lane.mu.Unlock()
		for _, m := range msgs {
			if i >= 3 {
				to.reg.Receive(from.id, m)
			} else {
				to.rep.Receive(from.id, m)
			}
		}
	}
}

func (v *liveNode) send(to uint64, i int, add func([]byte) []byte) bool {
	v.trio.mu.Lock()
	l := v.trio.up[[2]uint64{v.id, to}]
	v.trio.mu.Unlock()
	if l == nil {
		return false
	}
	lane := &l.lanes[i]
	lane.mu.Lock()
	lane.msgs = append(lane.msgs, add(nil))
	lane.mu.Unlock()
	select {
	case lane.wake <- struct{}{}:
	default:
	}
	return true
}

// Send implements replica.Transport.
func (v *liveNode) Send(to uint64, lane replica.Lane, add func([]byte) []byte) bool {
	return v.send(to, int(lane), add)
}

type liveFar struct{ v *liveNode }

func (l liveFar) Self() uint64 { return l.v.id }

func (l liveFar) Send(to uint64, bulk bool, add func([]byte) []byte) bool {
	if bulk {
		return l.v.send(to, 4, add)
	}
	return l.v.send(to, 3, add)
}

// tally is a publisher's ticket: how many had which outcome.
type tally struct {
	mu   sync.Mutex
	out  map[uint64]Outcome
	more *sync.Cond
}

func (t *tally) Settled(first, last uint64, o Outcome) {
	t.mu.Lock()
	for i := first; i <= last; i++ {
		t.out[i] = o
	}
	t.mu.Unlock()
	t.more.Broadcast()
}

// Publishers and consumers on all nodes, while links break and leaders change: nothing confirmed is lost, with all
// workers and goroutines at work.
func TestQuorumLive(t *testing.T) {
	x := newTrio(t, 3, func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, durable(7), durable(8))
	defer x.close(t)
	const each = 400
	type seen struct {
		mu  sync.Mutex
		ids map[uint64]int
	}
	var consumers []*hearer
	got := &seen{ids: map[uint64]int{}}
	note := func(bodies []string) {
		got.mu.Lock()
		defer got.mu.Unlock()
		for _, b := range bodies {
			v, err := message.Parse([]byte(b))
			if err != nil {
				t.Error(err)
				continue
			}
			got.ids[binary.BigEndian.Uint64(v.Body)]++
		}
	}
	for _, v := range x.nodes {
		for _, id := range []seglog.GroupID{7, 8} {
			c := newHearer(v.reg.Get(id))
			c.attach()
			consumers = append(consumers, c)
		}
	}
	var tallies []*tally
	var published sync.WaitGroup
	for n, v := range x.nodes {
		for q, id := range []seglog.GroupID{7, 8} {
			tk := &tally{out: map[uint64]Outcome{}}
			tk.more = sync.NewCond(&tk.mu)
			tallies = append(tallies, tk)
			h, credit := v.reg.Get(id), v.reg.NewCredit()
			base := uint64(n*2+q) * each
			published.Go(func() {
				for i := range uint64(each) {
					body := binary.BigEndian.AppendUint64(nil, base+i)
					h.Publish([]Publish{{Message: message.Message{Head: testHead(body)}, Ticket: tk, Seq: base + i, Credit: credit}})
					if i%20 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			})
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 6 {
		a := x.nodes[rng.IntN(3)]
		b := x.nodes[int(a.id)%3]
		x.cut(a, b)
		time.Sleep(20 * time.Millisecond)
		x.connect(a, b)
		a.rep.HandOver()
		time.Sleep(30 * time.Millisecond)
	}
	published.Wait()
	accepted := 0
	for i, tk := range tallies {
		tk.mu.Lock()
		for len(tk.out) < each {
			tk.more.Wait()
		}
		for seq, o := range tk.out {
			if o == Accepted {
				accepted++
			} else {
				t.Logf("publisher %d: %d is %v", i, seq, o)
			}
		}
		tk.mu.Unlock()
	}
	// All that was accepted comes to somebody.
	for missing := true; missing; {
		missing = false
		for _, c := range consumers {
			c.mu.Lock()
			note(c.bodies)
			c.bodies = nil
			c.mu.Unlock()
		}
		for _, tk := range tallies {
			for seq, o := range tk.out {
				if o == Accepted && got.ids[seq] == 0 {
					missing = true
				}
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Logf("%d accepted, %d delivered", accepted, len(got.ids))
}

// testHead is a message without properties.
func testHead(body []byte) []byte {
	var b message.Builder
	b.Begin("", "", []byte{0, 0}, uint64(len(body)), true)
	b.Write(body)
	return b.Message().Head
}

// BenchmarkQuorum is publish, confirm, deliver, ack on a quorum queue of three nodes in this process, each with a log on
// disk, per message; the clients are on the leader's node, or on another.
func BenchmarkQuorum(b *testing.B) {
	for _, far := range []bool{false, true} {
		for _, c := range []struct{ size, window int }{{1, 1}, {32, 200}, {32, 4096}} {
			b.Run(fmt.Sprintf("far=%v/batch=%d/window=%d", far, c.size, c.window), func(b *testing.B) {
				x := newTrio(b, 3, func(int) (vfs.FS, string) { return vfs.OS(), b.TempDir() }, durable(7))
				defer x.close(b)
				v := x.nodes[0]
				ready := make(chan struct{})
				v.reg.Get(7).Count(func(uint64, uint64, error) { close(ready) })
				<-ready
				leader := v.reg.Get(7).Leader()
				for _, v := range x.nodes {
					if (v.id == leader) != far {
						benchWindow(b, v.reg, c.size, c.window, true, ConsumerSpec{Credit: 4096, Prefetch: 2048})
						return
					}
				}
			})
		}
	}
}
