package queuehost

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/clock"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

var farSeeds = flag.Int("far.seeds", 300, "seeds of the random test of queues on another node")

// world is three nodes: the queues run on one, clients are on all. Everything
// is stepped by hand, in an order that the seed makes.
type world struct {
	t     *testing.T
	seed  uint64
	rng   *rand.Rand
	clock *clock.Manual
	net   *memNet
	log   *fakeLog
	nodes map[uint64]*replica.Node

	publishers []*simPublisher
	consumers  []*simConsumer
	asked      int // callbacks that have to come
	answered   int
	cuts       map[uint64]int // of links to the home, by entry
	purged     map[seglog.GroupID]bool
	seals      map[seglog.GroupID]*simSeal
	outcomes   map[string]Outcome
	told       map[string]bool
	seen       map[string]bool // delivered for the first time
	done       map[string]bool // settled for good, as far as a client can tell
	sure       map[string]bool // and there is no way it could not be
}

var simNodes = []uint64{1, homeNode, 3}
var simQueues = []QueueDef{transient(7), durable(8)}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), clock: clock.NewManual(testTime),
		net: newMemNet(), log: newFakeLog(), nodes: map[uint64]*replica.Node{},
		cuts: map[uint64]int{}, purged: map[seglog.GroupID]bool{}, seals: map[seglog.GroupID]*simSeal{},
		outcomes: map[string]Outcome{}, told: map[string]bool{}, seen: map[string]bool{}, done: map[string]bool{}, sure: map[string]bool{},
	}
	w.net.budget = 200 + w.rng.IntN(3000)
	for _, id := range simNodes {
		log := newFakeLog()
		if id == homeNode {
			log = w.log
		}
		n := replica.Open(replica.Options{Log: log, Shards: 1, Clock: w.clock})
		r := New(Options{
			Log: log, Node: n, Clock: w.clock, Link: w.net.link(id), Incarnation: 1,
			PeerCredit: 500 + w.rng.Int64N(20000), ConnectionCredit: 1 << 20,
		})
		w.nodes[id], w.net.regs[id] = n, r
		for _, def := range simQueues {
			var err error
			if id == homeNode {
				_, err = r.Create(def)
			} else {
				_, err = r.CreateFar(def, homeNode)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		n.Prepare()
	}
	for _, id := range simNodes {
		if id != homeNode {
			w.net.connect(id, homeNode)
		}
	}
	for _, id := range simNodes {
		for _, def := range simQueues {
			for range 2 {
				w.publishers = append(w.publishers, &simPublisher{
					w: w, node: id, h: w.handle(id, def.ID), credit: w.net.regs[id].NewCredit(),
					name: fmt.Sprintf("%d", len(w.publishers)),
				})
			}
		}
	}
	return w
}

func (w *world) handle(node uint64, id seglog.GroupID) *Handle { return w.net.regs[node].Get(id) }

func (w *world) failf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d: %s", w.seed, fmt.Sprintf(format, args...))
}

// once returns what is to be called when a callback comes: it comes once.
func (w *world) once(what string) func() {
	w.asked++
	called := false
	return func() {
		if called {
			w.failf("%s is answered twice", what)
		}
		called = true
		w.answered++
	}
}

type simPublisher struct {
	w      *world
	node   uint64
	h      *Handle
	credit *Credit
	name   string
	seq    uint64
}

func (p *simPublisher) body(seq uint64) string { return fmt.Sprintf("%s.%d", p.name, seq) }

// Settled implements Ticket.
func (p *simPublisher) Settled(first, last uint64, o Outcome) {
	for seq := first; seq <= last; seq++ {
		b := p.body(seq)
		if p.w.told[b] {
			p.w.failf("publish %s is told %v after %v", b, o, p.w.outcomes[b])
		}
		p.w.told[b] = true
		p.w.outcomes[b] = o
		p.w.answered++
	}
}

func (p *simPublisher) publish() {
	w := p.w
	if !p.credit.Enough() {
		return
	}
	ps := make([]Publish, 1+w.rng.IntN(6))
	for i := range ps {
		p.seq++
		q := &ps[i]
		*q = Publish{
			Message:    message.Message{Head: []byte(p.body(p.seq) + " " + strings.Repeat("x", w.rng.IntN(100)))},
			Persistent: w.rng.IntN(2) == 0, Seq: p.seq, Credit: p.credit,
		}
		if w.rng.IntN(12) == 0 {
			for range 1 + w.rng.IntN(3) {
				q.Message.Chunks = append(q.Message.Chunks, []byte(strings.Repeat(p.name, 40)))
			}
			q.Message.Head = fmt.Appendf(q.Message.Head, " %d", len(q.Message.Chunks))
		}
		if w.rng.IntN(8) > 0 {
			q.Ticket = p
			w.asked++
		}
	}
	p.h.Publish(ps)
}

type simConsumer struct {
	w      *world
	node   uint64
	h      *Handle
	spec   ConsumerSpec
	getter bool
	id     queue.ConsumerID

	attached, leaving, ended bool
	held                     []simHeld
	last                     map[string]uint64 // by publisher: of those delivered for the first time
	nextID                   uint64
}

type simHeld struct {
	id   uint64
	body string
}

// heard checks a delivery and notes it.
func (c *simConsumer) heard(d *Delivery) (body string) {
	w := c.w
	if c.ended || !c.attached && !c.getter {
		w.failf("a delivery to a consumer that is not there")
	}
	fields := strings.Fields(string(d.Message.Head))
	body = fields[0]
	if n := len(d.Message.Chunks); n > 0 && fields[len(fields)-1] != fmt.Sprint(n) {
		w.failf("%s comes with %d chunks", d.Message.Head, n)
	}
	name, _, _ := strings.Cut(body, ".")
	for _, chunk := range d.Message.Chunks {
		if string(chunk) != strings.Repeat(name, 40) {
			w.failf("%s has chunk %q", body, chunk)
		}
	}
	if w.told[body] && w.outcomes[body] == Refused {
		w.failf("%s was refused and is delivered", body)
	}
	// One that was under way to a consumer that leaves may come behind its redelivery.
	if !d.Redelivered {
		if w.seen[body] {
			w.failf("%s is delivered twice and not marked", body)
		}
		w.seen[body] = true
		var seq uint64
		fmt.Sscanf(body[len(name)+1:], "%d", &seq)
		if seq <= c.last[name] {
			w.failf("%s comes after number %d", body, c.last[name])
		}
		c.last[name] = seq
	}
	return body
}

func (c *simConsumer) Deliver(ds []Delivery) {
	for i := range ds {
		body := c.heard(&ds[i])
		if ds[i].ID != c.nextID+1 {
			c.w.failf("delivery %d follows %d", ds[i].ID, c.nextID)
		}
		c.nextID++
		if c.spec.NoAck {
			c.w.done[body] = true
			continue
		}
		c.held = append(c.held, simHeld{ds[i].ID, body})
	}
}

func (c *simConsumer) Cancelled(error) {
	if c.ended {
		c.w.failf("a consumer is cancelled that has left")
	}
	c.ended = true
	c.held = nil
}
func (c *simConsumer) Drained(uint32) {}
func (c *simConsumer) Wake()          {}

func (w *world) attach() {
	node := simNodes[w.rng.IntN(len(simNodes))]
	c := &simConsumer{w: w, node: node, h: w.handle(node, simQueues[w.rng.IntN(2)].ID), last: map[string]uint64{}}
	c.spec = ConsumerSpec{
		Prefetch: uint32(w.rng.IntN(6)), Credit: uint32(w.rng.IntN(10)), NoAck: w.rng.IntN(4) == 0,
		Wake: w.rng.IntN(2) == 0, Exclusive: w.rng.IntN(12) == 0,
	}
	if w.rng.IntN(4) == 0 {
		c.spec.Credit = Unlimited
	}
	w.consumers = append(w.consumers, c)
	if w.rng.IntN(4) == 0 {
		c.getter = true
		c.id = c.h.Getter(ConsumerSpec{}, c)
		return
	}
	done := w.once("attach")
	c.id = c.h.Attach(c.spec, c, func(_ queue.ConsumerID, err error) {
		done()
		c.attached = err == nil
		c.ended = err != nil
	})
}

// act lets a consumer do something.
func (w *world) act(c *simConsumer) {
	if c.ended || c.leaving {
		return
	}
	switch k := w.rng.IntN(10); {
	case k < 4 && len(c.held) > 0:
		n := 1 + w.rng.IntN(len(c.held))
		how := queue.Settlement(w.rng.IntN(3))
		var rs []queue.Range
		for _, h := range c.held[:n] {
			rs = append(rs, queue.Range{First: h.id, Last: h.id})
			if how != queue.Requeue {
				w.done[h.body] = true
				if w.cuts[c.node] == 0 && c.node == homeNode {
					w.sure[h.body] = true
				}
			}
		}
		c.held = slices.Clone(c.held[n:])
		c.h.Settle(c.id, rs, how)
	case c.getter:
		done, noAck := w.once("get"), w.rng.IntN(3) == 0
		c.h.Get(c.id, noAck, func(d Delivery, _ uint64, ok bool, err error) {
			done()
			if !ok || err != nil {
				return
			}
			if noAck != (d.ID == 0) {
				w.failf("a get with no-ack %v has id %d", noAck, d.ID)
			}
			if body := c.heard(&d); noAck {
				w.done[body] = true
			} else {
				c.held = append(c.held, simHeld{d.ID, body})
			}
		})
	case k < 7:
		c.h.Credit(c.id, uint32(w.rng.IntN(10)), w.rng.IntN(5) == 0)
	case k == 7:
		c.h.Cancel(c.id, w.once("cancel"))
	case k == 8:
		c.leave()
	}
}

func (c *simConsumer) leave() {
	c.leaving = true
	done := c.w.once("detach")
	c.h.Detach(c.id, func() {
		done()
		c.ended = true
	})
}

func (w *world) ask() {
	node := simNodes[w.rng.IntN(len(simNodes))]
	id := simQueues[w.rng.IntN(2)].ID
	h := w.handle(node, id)
	switch w.rng.IntN(8) {
	case 0:
		done := w.once("count")
		h.Count(func(uint64, uint64, error) { done() })
	case 1:
		done := w.once("explain")
		h.Explain(func(Explanation) { done() })
	case 2:
		done := w.once("consumers")
		h.Consumers(func([]ConsumerInfo) { done() })
	case 3:
		w.asked++
		h.Barrier(&onceTicket{w: w}, 5)
	case 4:
		if w.rng.IntN(10) == 0 {
			w.purged[id] = true
			done := w.once("purge")
			h.Purge(func(uint64, error) { done() })
		}
	case 5:
		if w.seals[id] == nil {
			seal := &simSeal{h}
			w.seals[id] = seal
			done := w.once("seal")
			h.Seal(w.rng.IntN(2) == 0, false, func(_ uint64, err error) {
				done()
				if err != nil && w.seals[id] == seal {
					w.seals[id] = nil
				}
			})
		}
	default:
		if seal := w.seals[id]; seal != nil {
			w.seals[id] = nil
			seal.h.Unseal()
		}
	}
}

// simSeal is a seal that has to be taken back through the handle it was made with.
type simSeal struct{ h *Handle }

type onceTicket struct {
	w    *world
	told bool
}

func (t *onceTicket) Settled(first, last uint64, _ Outcome) {
	if t.told || first != 5 || last != 5 {
		t.w.failf("a barrier is settled twice, or as %d", first)
	}
	t.told = true
	t.w.answered++
}

// cut breaks a link, in one of the ways in which the two sides can see it.
func (w *world) cut() {
	entry := []uint64{1, 3}[w.rng.IntN(2)]
	w.cuts[entry]++
	a, b := entry, uint64(homeNode)
	if w.rng.IntN(2) == 0 {
		a, b = b, a
	}
	switch w.rng.IntN(4) {
	case 0: // only one side notices, and what is under way arrives
		w.net.set(a, b, false)
		w.net.set(a, b, true)
		return
	case 1: // the one that notices first goes on for a while
		w.net.lose(a, b)
		w.net.set(a, b, false)
		for range w.rng.IntN(6) {
			w.move()
		}
	}
	w.net.lose(a, b)
	w.net.set(a, b, false)
	w.net.set(b, a, false)
	for range w.rng.IntN(20) {
		w.random(false)
	}
	w.net.connect(a, b)
}

// move lets something go on by itself.
func (w *world) move() {
	switch k := w.rng.IntN(12); {
	case k < 5:
		w.nodes[simNodes[w.rng.IntN(3)]].Shard(0).Step()
	case k < 11:
		entry := []uint64{1, 3}[w.rng.IntN(2)]
		r := route{entry, homeNode, w.rng.IntN(2) == 0}
		if w.rng.IntN(2) == 0 {
			r.from, r.to = r.to, r.from
		}
		if w.net.up[[2]uint64{r.to, r.from}] {
			w.net.deliver(r)
		}
	default:
		w.log.sync()
	}
}

func (w *world) random(mayCut bool) {
	switch k := w.rng.IntN(40); {
	case k < 6:
		w.publishers[w.rng.IntN(len(w.publishers))].publish()
	case k < 8:
		w.attach()
	case k < 16:
		if len(w.consumers) > 0 {
			w.act(w.consumers[w.rng.IntN(len(w.consumers))])
		}
	case k < 18:
		w.ask()
	case k == 18 && mayCut:
		if w.rng.IntN(3) == 0 {
			w.cut()
		}
	default:
		w.move()
	}
}

// settle lets everything come to an end.
func (w *world) settle() {
	for more := true; more; {
		more = false
		for _, id := range simNodes {
			for w.nodes[id].Shard(0).Step() {
				more = true
			}
		}
		if w.net.deliverAll(simNodes...) {
			more = true
		}
		if len(w.log.batches) > 0 {
			w.log.sync()
			more = true
		}
	}
}

func (w *world) finish() {
	for _, seal := range w.seals {
		if seal != nil {
			seal.h.Unseal()
		}
	}
	w.settle()
	for _, c := range w.consumers {
		if !c.ended && !c.leaving {
			c.leave()
		}
	}
	w.settle()
	if w.asked != w.answered {
		w.failf("%d callbacks of %d have come", w.answered, w.asked)
	}
	for _, p := range w.publishers {
		if n, m := p.credit.InFlight(), p.credit.inbox.Load(); n != 0 || m != 0 {
			w.failf("publisher %s of node %d has %d in flight, %d in inboxes", p.name, p.node, n, m)
		}
	}
	for _, id := range simNodes {
		if n := w.net.regs[id].pool.used.Load(); n != 0 {
			w.failf("node %d has %d in flight", id, n)
		}
	}
	for _, c := range w.consumers {
		if !c.ended {
			w.failf("a consumer has not left")
		}
	}
	for _, def := range simQueues {
		w.check(def.ID)
	}
}

// check looks at what is left in a queue.
func (w *world) check(id seglog.GroupID) {
	h := w.handle(homeNode, id)
	if n := h.Stats(); n.Unacked != 0 || n.Consumers != 0 {
		w.failf("queue %d: %d unacked, %d consumers", id, n.Unacked, n.Consumers)
	}
	c := &simConsumer{w: w, node: homeNode, h: h, attached: true, spec: ConsumerSpec{}, last: map[string]uint64{}}
	h.Attach(unlimited(0), c, func(queue.ConsumerID, error) {})
	w.settle()
	left := map[string]bool{}
	last := map[string]uint64{}
	for _, m := range c.held {
		if left[m.body] {
			w.failf("%s is in the queue twice", m.body)
		}
		if w.sure[m.body] {
			w.failf("%s was settled and is there", m.body)
		}
		left[m.body] = true
		name, number, _ := strings.Cut(m.body, ".")
		var seq uint64
		fmt.Sscanf(number, "%d", &seq)
		if seq <= last[name] {
			w.failf("%s is in the queue behind number %d", m.body, last[name])
		}
		last[name] = seq
	}
	for _, p := range w.publishers {
		for seq := uint64(1); seq <= p.seq && p.h.ID() == id; seq++ {
			b := p.body(seq)
			if w.told[b] && w.outcomes[b] == Accepted && !left[b] && !w.done[b] && !w.purged[id] {
				w.failf("%s was accepted and is lost", b)
			}
		}
	}
}

func TestFarRandomly(t *testing.T) {
	before := runtime.NumGoroutine()
	lots := map[Outcome]int{}
	for seed := range uint64(*farSeeds) {
		w := newWorld(t, seed)
		for range 1500 {
			w.random(seed%4 != 0)
		}
		w.finish()
		for _, o := range w.outcomes {
			lots[o]++
		}
	}
	if now := runtime.NumGoroutine(); now > before {
		t.Fatalf("%d goroutines are left, %d were there", now, before)
	}
	for _, o := range []Outcome{Accepted, Refused, Unknown} {
		if *farSeeds >= 300 && lots[o] == 0 {
			t.Fatalf("nothing was %v", o)
		}
	}
	t.Log(slices.Sorted(maps.Keys(lots)), lots)
}
