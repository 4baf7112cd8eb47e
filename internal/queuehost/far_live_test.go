package queuehost

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/vfs"
)

// pair is two nodes with their workers: home has queue 10 on a real log, or queue 7
// and a log that does nothing, and entry reaches it.
type pair struct {
	net   *memNet
	home  *Registry
	entry *Registry
	near  *replica.Node
	close func()
}

func newPair(t testing.TB, home *Registry, def QueueDef, end func()) *pair {
	p := &pair{net: newMemNet(), home: home}
	p.near, p.entry = startNode(t, &nullLog{})
	home.o.Link, p.entry.o.Link = p.net.link(homeNode), p.net.link(entryNode)
	p.net.regs[homeNode], p.net.regs[entryNode] = home, p.entry
	if _, err := p.entry.CreateFar(def, homeNode); err != nil {
		t.Fatal(err)
	}
	p.net.start(entryNode, homeNode)
	p.net.connect(entryNode, homeNode)
	p.close = func() {
		p.net.end()
		p.near.Close(false)
		end()
	}
	return p
}

func newRealPair(t testing.TB, tail int64) *pair {
	r := openReal(t, vfs.NewMem(), "data", 1, tail)
	r.reg.o.NewReader = func() *Reader { return NewReader(r.log.NewReader()) }
	return newPair(t, r.reg, durable(10), func() { r.close(t, true) })
}

// hearer is a consumer that keeps what it gets, acknowledges, and grants credit as it goes.
type hearer struct {
	h      *Handle
	id     queue.ConsumerID
	window Window
	noAck  bool
	reader *Reader // of a consumer at home

	mu     sync.Mutex
	bodies []string
	ids    []uint64
	ended  error
	more   *sync.Cond
}

func newHearer(h *Handle) *hearer {
	c := &hearer{h: h, window: Window{Size: 50}}
	c.more = sync.NewCond(&c.mu)
	return c
}

func (c *hearer) attach() {
	done := make(chan struct{})
	c.h.Attach(ConsumerSpec{Credit: c.window.Size, NoAck: c.noAck}, c, func(id queue.ConsumerID, err error) {
		c.id = id
		if err != nil {
			c.Cancelled(err)
		}
		close(done)
	})
	<-done
}

func (c *hearer) Deliver(ds []Delivery) {
	c.mu.Lock()
	for _, d := range ds {
		m := d.Message
		if d.Load != nil { // at home: the body is on the disk only
			var err error
			if m, err = d.Load.Load(c.reader); err != nil {
				panic(err)
			}
		}
		c.bodies = append(c.bodies, whole(m))
		c.ids = append(c.ids, d.ID)
	}
	c.mu.Unlock()
	c.more.Broadcast()
	if !c.noAck {
		c.h.Settle(c.id, []queue.Range{{First: ds[0].ID, Last: ds[len(ds)-1].ID}}, queue.Ack)
	}
	if g := c.window.Sent(uint32(len(ds))); g > 0 {
		c.h.Credit(c.id, g, false)
	}
}

func (c *hearer) Cancelled(err error) {
	c.mu.Lock()
	c.ended = err
	c.mu.Unlock()
	c.more.Broadcast()
}
func (c *hearer) Drained(uint32) {}
func (c *hearer) Wake()          {}

// wait waits for n deliveries, or the end.
func (c *hearer) wait(n int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.bodies) < n && c.ended == nil {
		c.more.Wait()
	}
	return c.bodies
}

func whole(m message.Message) string {
	s := string(m.Head)
	for _, c := range m.Chunks {
		s += string(c)
	}
	return s
}

// What is on the disk at home is read there, and comes in order with what is in memory.
func TestFarDeliveriesFromDisk(t *testing.T) {
	p := newRealPair(t, 1)
	defer p.close()
	h := p.entry.Get(10)
	tk := &countTicket{ready: make(chan struct{}, 1)}
	var all []string
	put := func(n int) {
		for range n {
			i := len(all)
			m := message.Message{Head: fmt.Appendf(nil, "message %d", i)}
			if i%50 == 3 {
				for k := range 1 + i%4 {
					m.Chunks = append(m.Chunks, []byte(strings.Repeat(fmt.Sprint(k), 1000+i)))
				}
			}
			all = append(all, whole(m))
			h.Publish([]Publish{{Message: m, Persistent: true, Ticket: tk}})
		}
		tk.wait(uint64(len(all)))
	}
	put(400)
	if n := p.home.Get(10).Stats().BodiesInMemory; n > 1000 {
		t.Fatalf("%d bytes are in memory", n)
	}
	c := newHearer(h)
	c.attach()
	put(100)
	want(t, "bodies", c.wait(len(all)), all)
	h.Detach(c.id, nil)
	put(20)
	g := h.Getter(ConsumerSpec{}, discard{})
	for i := 500; i < 520; i++ {
		got := make(chan string, 1)
		h.Get(g, i%2 == 0, func(d Delivery, left uint64, ok bool, err error) {
			got <- fmt.Sprint(whole(d.Message), left, ok, err)
		})
		want(t, "get", <-got, fmt.Sprint(all[i], 519-i, true, nil))
	}
	p.waitForLoaders()
}

// waitForLoaders waits until no goroutine reads for other nodes.
func (p *pair) waitForLoaders() {
	for running := 1; running > 0; runtime.Gosched() {
		p.home.loads.mu.Lock()
		running = p.home.loads.running
		p.home.loads.mu.Unlock()
	}
}

// Many publish and consume while the link breaks now and then: what was accepted
// is consumed, and all that was lent is given back.
func TestFarConcurrently(t *testing.T) {
	p := newRealPair(t, 4<<10)
	defer p.close()
	h := p.entry.Get(10)
	const publishers, each = 3, 1500
	var work, consuming sync.WaitGroup
	var mu sync.Mutex
	accepted, heard := map[string]bool{}, map[string]bool{}
	stop := make(chan struct{})
	listen := func(noAck bool) {
		for {
			c := newHearer(h)
			c.noAck = noAck
			c.attach()
			ended := make(chan struct{})
			go func() {
				c.mu.Lock()
				for c.ended == nil {
					c.more.Wait()
				}
				c.mu.Unlock()
				close(ended)
			}()
			last := false
			select {
			case <-ended:
			case <-stop:
				last = true
				done := make(chan struct{})
				h.Detach(c.id, func() { close(done) })
				<-done
				c.Cancelled(errors.New("the end"))
				<-ended
			}
			mu.Lock()
			for _, b := range c.bodies {
				heard[b] = true
			}
			mu.Unlock()
			if last {
				return
			}
			runtime.Gosched()
		}
	}
	for i := range 3 {
		consuming.Go(func() { listen(i == 0) })
	}
	for i := range publishers {
		work.Go(func() {
			credit := p.entry.NewCredit()
			for n := 0; n < each; {
				tk := &listTicket{left: 10, done: make(chan struct{})}
				ps := make([]Publish, 10)
				for k := range ps {
					ps[k] = Publish{Message: text(fmt.Sprintf("%d.%d", i, n+k)), Persistent: k%2 == 0, Ticket: tk, Seq: uint64(n + k), Credit: credit}
				}
				h.Publish(ps)
				n += len(ps)
				<-tk.done
				mu.Lock()
				for _, seq := range tk.accepted {
					accepted[fmt.Sprintf("%d.%d", i, seq)] = true
				}
				mu.Unlock()
				if i == 0 && n%300 == 0 {
					p.net.cut(entryNode, homeNode)
					p.net.connect(entryNode, homeNode)
				}
			}
			for credit.InFlight() > 0 {
				runtime.Gosched()
			}
		})
	}
	work.Wait()
	near := newHearer(p.home.Get(10)) // takes what the others have not got
	near.reader = p.home.o.NewReader()
	near.attach()
	for left := uint64(1); left > 0; {
		ready := make(chan uint64, 1)
		p.home.Get(10).Count(func(n, _ uint64, _ error) { ready <- n })
		left = <-ready
	}
	close(stop)
	consuming.Wait()
	ready := make(chan uint64, 1)
	for left := uint64(1); left > 0; {
		p.home.Get(10).Explain(func(x Explanation) { ready <- x.Ready + x.Unacked })
		left = <-ready
	}
	for _, b := range near.wait(0) {
		heard[b] = true
	}
	for b := range accepted {
		if !heard[b] {
			t.Fatalf("%s was accepted and nobody has got it", b)
		}
	}
	for p.home.pool.used.Load() != 0 || p.entry.pool.used.Load() != 0 {
		runtime.Gosched()
	}
	p.waitForLoaders()
}

// listTicket hears the outcomes of so many publishes.
type listTicket struct {
	mu       sync.Mutex
	left     int
	accepted []uint64
	done     chan struct{}
}

func (t *listTicket) Settled(first, last uint64, o Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for seq := first; seq <= last; seq++ {
		if t.left--; o == Accepted {
			t.accepted = append(t.accepted, seq)
		}
	}
	if t.left == 0 {
		close(t.done)
	}
}

// BenchmarkFar is BenchmarkDirect with the clients on another node, over a link in memory.
func BenchmarkFar(b *testing.B) {
	for _, size := range []int{1, 32, 256} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			n, r := startNode(b, &nullLog{}, transient(7))
			p := newPair(b, r, transient(7), func() { n.Close(false) })
			benchFlow(b, p.entry, size, false, ConsumerSpec{NoAck: true, Credit: 4096})
			p.close()
		})
	}
}

func TestFarQueueIsDropped(t *testing.T) {
	r := newFarRig(t, newFakeLog(), []QueueDef{transient(7)})
	h, s, tk := r.queue(7), &sink{}, &tickets{}
	h.Attach(unlimited(1), s, func(queue.ConsumerID, error) {})
	publish(h, tk, false, "a", "b")
	r.step()
	want(t, "home", h.Home(), uint64(homeNode))
	gone, done := errors.New("deleted"), false
	publish(h, tk, false, "c")
	r.reg.Drop(7, gone, func() { done = true })
	r.step()
	want(t, "told", []any{s.cancelled, done, tk.got[len(tk.got)-1].o}, []any{gone, true, Gone})
	want(t, "what it held is back at home", r.atHome(7).Stats().Ready, uint64(2))
	want(t, "sessions at home", len(r.home.guest(entryNode).sessions), 0)
	want(t, "after that", r.reg.Get(7) == nil, true)
	publish(h, tk, false, "d")
	r.step()
	want(t, "a publish to a handle that was kept", tk.got[len(tk.got)-1], outcome{1, 1, Gone})
}

// A queue that its home does not know, yet or any more.
func TestFarQueueThatIsNotThere(t *testing.T) {
	r := newFarRig(t, newFakeLog(), []QueueDef{transient(7)})
	deleted := false
	r.home.o.Deleted = func(seglog.GroupID) bool { return deleted }
	h, err := r.reg.CreateFar(transient(9), homeNode)
	if err != nil {
		t.Fatal(err)
	}
	credit := r.reg.NewCredit()
	var said []string
	all := func() {
		tk, s := &tickets{}, &sink{}
		note := func(err error) { said = append(said, fmt.Sprint(err)) }
		h.Publish([]Publish{{Message: text("a"), Ticket: tk, Seq: 3, Credit: credit}})
		c := h.Attach(unlimited(0), s, func(_ queue.ConsumerID, err error) { note(err) })
		h.Detach(c, func() { note(nil) })
		h.Get(h.Getter(ConsumerSpec{}, s), false, func(_ Delivery, _ uint64, _ bool, err error) { note(err) })
		h.Count(func(_, _ uint64, err error) { note(err) })
		h.Purge(func(_ uint64, err error) { note(err) })
		h.Seal(false, false, func(_ uint64, err error) { note(err) })
		h.Explain(func(x Explanation) { note(errors.New(x.BlockedBy)) })
		h.Consumers(func([]ConsumerInfo) { note(nil) })
		h.Barrier(tk, 4)
		r.step()
		said = append(said, fmt.Sprint(tk.got))
	}
	all()
	want(t, "answers", len(said), 9)
	want(t, "outcomes", said[8], fmt.Sprint([]outcome{{3, 3, Unknown}, {4, 4, Unknown}}))
	want(t, "counted here", h.Nacks(), Nacks{Unknown: 1}) // 4 is no publish
	want(t, "counted at home", len(slices.Collect(r.home.Nacked())), 0)
	deleted, said = true, nil
	all()
	want(t, "answers", len(said), 9)
	want(t, "outcomes", said[8], fmt.Sprint([]outcome{{3, 3, Gone}, {4, 4, Gone}}))
	want(t, "attach", strings.Contains(strings.Join(said, ";"), "no queue 'transient'"), true)
	want(t, "in flight", credit.InFlight(), int64(0))
	if _, err := r.home.Create(transient(9)); err != nil {
		t.Fatal(err)
	}
	tk := &tickets{}
	publish(h, tk, false, "b")
	r.step()
	want(t, "now it is there", tk.got, []outcome{{1, 1, Accepted}})
}

// Publishes wait when the home has enough of them, but not what stands behind them.
func TestFarWindow(t *testing.T) {
	r := newFarRig(t, newFakeLog(), []QueueDef{durable(7)}, func(_ *replicaOptions, o *Options) { o.PeerCredit = 1000 })
	h, tk := r.queue(7), &tickets{}
	put := func() { publish(h, tk, true, string(make([]byte, 300)), string(make([]byte, 300)), "x") }
	put()
	r.stepBoth()
	want(t, "published", r.atHome(7).Stats().Published, uint64(3))
	put()
	r.stepBoth()
	want(t, "beyond the window", r.atHome(7).Stats().Published, uint64(3))
	counted := false
	h.Count(func(uint64, uint64, error) { counted = true })
	r.stepBoth()
	want(t, "with a count behind them", []any{r.atHome(7).Stats().Published, counted}, []any{uint64(6), true})
	put()
	r.stepBoth()
	want(t, "again", r.atHome(7).Stats().Published, uint64(6))
	r.settle()
	want(t, "when the disk has them", r.atHome(7).Stats().Published, uint64(9))
	want(t, "at home", r.home.pool.used.Load(), int64(0))
}

// Credit overtakes the attach of its consumer. Should the link break when what came before the attach is refused, and the attach itself is
// still to be taken, the credit is good for it.
func TestFarCreditBehindAnAttachThatWaits(t *testing.T) {
	r := newFarRig(t, newFakeLog(), []QueueDef{durable(7)})
	h, s, tk := r.queue(7), &sink{}, &tickets{}
	r.net.budget = 0
	publish(h, tk, true, "a")
	r.step() // it is taken, and there is no room to send it
	id := h.Attach(ConsumerSpec{Credit: 1}, s, func(_ queue.ConsumerID, err error) { want(t, "attached", err, nil) })
	h.Credit(id, 0, true)
	r.net.cut(entryNode, homeNode)
	r.entry.Shard(0).Step()
	r.net.budget = 1 << 20
	r.net.connect(entryNode, homeNode)
	r.settle()
	want(t, "outcome", tk.got, []outcome{{1, 1, Refused}})
	want(t, "drained", s.drained, []uint32{1})
}
