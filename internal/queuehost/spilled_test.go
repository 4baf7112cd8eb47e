package queuehost

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/spill"
	"holdfast/internal/vfs"
)

// spillRig is queues with a store whose goroutine is the test.
type spillRig struct {
	*rig
	disk  *vfs.Mem
	store *spill.Store
	read  *Reader
}

// newSpillRig has room for limit bytes of bodies, and sends blocks of block
// bytes to the disk, most bytes at a time.
func newSpillRig(t testing.TB, limit, block, most int64, defs ...QueueDef) *spillRig {
	r := &spillRig{disk: vfs.NewMem(), read: NewReader(nil)}
	r.rig = newRig(t, newFakeLog(), defs, func(ro *replicaOptions, o *Options) {
		var err error
		r.store, err = spill.Open(r.disk, "spill", spill.Options{
			FileSize: 16 << 10, PunchSize: 4 << 10, Clock: o.Clock, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		o.Spill, o.TailCache = r.store, limit
	})
	for _, l := range r.reg.lanes {
		l.spill.most, l.spill.block = most, block
	}
	return r
}

// rest steps the queues and the store until nothing is left to do.
func (r *spillRig) rest() {
	for r.step(); r.store.Step() || r.node.Shard(0).Step(); {
		r.step()
	}
}

// text reads a delivery.
func (r *spillRig) text(d *Delivery) string {
	r.t.Helper()
	m, chunks := d.Message, d.Message.Chunks
	var out strings.Builder
	if d.Load != nil {
		var err error
		if m, err = d.Load.Load(r.read); err != nil {
			r.t.Fatal(err)
		}
		out.Write(m.Head)
		for i := range d.Load.Chunks() {
			c, err := d.Load.Chunk(r.read, i)
			if err != nil {
				r.t.Fatal(err)
			}
			out.Write(c)
		}
		return out.String()
	}
	out.Write(m.Head)
	for _, c := range chunks {
		out.Write(c)
	}
	return out.String()
}

// empty wants no trace of any message.
func (r *spillRig) empty() {
	r.t.Helper()
	for i, l := range r.reg.lanes {
		if l.cache.cost != 0 || l.spill.cost != 0 || l.spill.out.len() != 0 || l.cache.oldest != nil || l.kept.len() != 0 {
			r.t.Fatalf("lane %d: cost %d, leaving %d in %d blocks, %d credits kept", i, l.cache.cost, l.spill.cost, l.spill.out.len(), l.kept.len())
		}
	}
	for h := range r.reg.All() {
		if s := h.Stats(); s.BodiesInMemory != 0 || s.BodiesSpilled != 0 {
			r.t.Fatalf("queue %d: %+v", h.ID(), s)
		}
	}
	if s := r.store.Stats(); s.Blocks != 0 || s.DiskBytes > 1<<10 {
		r.t.Fatalf("the store has %+v", s)
	}
}

// An old backlog is on disk, the newest of it in memory; a queue that keeps up
// never has to do with the disk; what is settled takes no space.
func TestBacklogIsSpilled(t *testing.T) {
	for _, def := range []QueueDef{transient(7), durable(7)} {
		r := newSpillRig(t, 10_000, 2000, 1<<20, def)
		h := r.queue(7)
		s := &sink{}
		h.Attach(ConsumerSpec{NoAck: true, Credit: 300}, s, func(queue.ConsumerID, error) {})
		const n = 1300
		for i := range n {
			publish(h, nil, false, fmt.Sprintf("%0100d", i))
			r.step()
			if i == 299 {
				want(t, "jobs for the disk of a queue that keeps up", r.store.Step(), false)
			}
		}
		r.rest()
		st := h.Stats()
		if st.BodiesInMemory > 10_000 || st.BodiesInMemory < 5000 || st.BodiesSpilled < 90_000 {
			t.Fatalf("%d bytes in memory, %d on disk", st.BodiesInMemory, st.BodiesSpilled)
		}
		want(t, "items in the log", len(r.log.items[7]), 0)
		h.Credit(1, n, false)
		r.rest()
		loaded := 0
		for i := range s.got {
			if s.got[i].Load != nil {
				loaded++
			}
			want(t, "body", r.text(&s.got[i]), fmt.Sprintf("%0100d", i))
		}
		want(t, "deliveries", len(s.got), n)
		if loaded < 900 || loaded > 960 {
			t.Fatalf("%d loaded", loaded)
		}
		if reads := r.store.Stats().Reads; reads > 60 {
			t.Fatalf("%d reads for %d messages", reads, loaded)
		}
		r.rest()
		r.empty()
	}
}

// A disk that does not follow holds back publishers, and nobody else; a full one
// loses nothing.
func TestSlowDiskHoldsBackPublishers(t *testing.T) {
	r := newSpillRig(t, 10_000, 2000, 4000, transient(7), durable(8))
	credit := r.reg.NewCredit()
	put := func(n int) {
		for range n {
			tk := &tickets{}
			r.queue(7).Publish([]Publish{{Message: text(strings.Repeat("x", 100)), Credit: credit, Ticket: tk, Seq: 1}})
			r.step()
			want(t, "outcome", tk.got, []outcome{{1, 1, Accepted}})
		}
	}
	r.disk.Inject(vfs.Fault{Op: vfs.OpWrite, Err: syscall.ENOSPC, Forever: true})
	put(100)
	want(t, "credit charged", credit.InFlight(), int64(0))
	put(100)
	r.rest()
	held := credit.InFlight()
	if held == 0 {
		t.Fatal("nobody is held back")
	}
	// What is on disk already does not wait behind what cannot go there.
	publish(r.queue(8), nil, true, strings.Repeat("p", 1000))
	r.settle()
	want(t, "bytes of persistent bodies in memory", r.queue(8).Stats().BodiesInMemory, uint64(0))
	r.disk.ClearFaults()
	r.clock.Advance(time.Second)
	r.rest()
	want(t, "credit charged", credit.InFlight(), int64(0))

	// A consumer frees the publishers as well.
	r.disk.Inject(vfs.Fault{Op: vfs.OpWrite, Err: syscall.ENOSPC, Forever: true})
	put(200)
	if credit.InFlight() == 0 {
		t.Fatal("nobody is held back")
	}
	s := &sink{}
	r.queue(7).Attach(ConsumerSpec{NoAck: true, Credit: Unlimited}, s, func(queue.ConsumerID, error) {})
	r.step()
	want(t, "deliveries", len(s.got), 400)
	want(t, "credit charged", credit.InFlight(), int64(0))
	for i := range s.got {
		want(t, "body", len(r.text(&s.got[i])), 100)
	}
	r.rest()
	r.empty()
}

// What is on its way to a disk that does not answer takes memory, also when it has
// been consumed meanwhile: there is no more of it than before.
func TestWhatWaitsForTheDiskIsBounded(t *testing.T) {
	r := newSpillRig(t, 10_000, 2000, 4000, transient(7))
	h := r.queue(7)
	s := &sink{}
	h.Attach(ConsumerSpec{NoAck: true}, s, func(queue.ConsumerID, error) {})
	for i := range 20 {
		for range 200 {
			publish(h, nil, false, strings.Repeat("x", 100))
		}
		r.step() // the store does nothing
		h.Credit(1, 200, false)
		r.step()
		want(t, "deliveries", len(s.got), 200*(i+1))
		waits := 0
		for _, o := range r.reg.lanes[0].spill.out.list {
			waits += len(o.job.Items) * 100
		}
		if waits == 0 || waits > 4000+2000 {
			t.Fatalf("round %d: %d bytes wait for the disk", i, waits)
		}
	}
	r.rest()
	r.empty()
}

// Deleting or purging a queue takes its blocks with it, those under way too;
// what is being delivered can be read all the same.
func TestSpilledBodiesGoWithTheQueue(t *testing.T) {
	for _, purge := range []bool{true, false} {
		r := newSpillRig(t, 5000, 2000, 1<<20, transient(7), transient(9))
		h := r.queue(7)
		for i := range 200 {
			publish(h, nil, false, fmt.Sprintf("%0100d", i))
		}
		r.rest()
		for range 50 {
			publish(r.queue(9), nil, false, strings.Repeat("y", 100)) // pushes more out
		}
		r.step()
		s := &sink{}
		h.Attach(unlimited(1), s, func(queue.ConsumerID, error) {})
		r.step()
		want(t, "deliveries", len(s.got), 1)
		if purge {
			var n uint64
			h.Purge(func(k uint64, _ error) { n = k })
			r.step()
			want(t, "purged", n, uint64(199))
		} else {
			r.reg.Drop(7, nil, nil)
			r.step()
		}
		want(t, "the delivery under way", r.text(&s.got[0]), fmt.Sprintf("%0100d", 0))
		if purge {
			h.Settle(1, ids(1, 1), queue.Ack)
		}
		r.queue(9).Purge(func(uint64, error) {})
		r.rest()
		r.empty()
	}
}

// What is settled after its block was written and before the queue hears of it
// leaves nothing on disk.
func TestBlockThatComesTooLate(t *testing.T) {
	r := newSpillRig(t, 1, 2000, 1<<20, transient(7))
	h := r.queue(7)
	for range 10 {
		publish(h, nil, false, strings.Repeat("x", 100))
	}
	r.step()
	want(t, "bytes on disk", r.store.Stats().Written, 0)
	// The ticket is called between the packing, which takes in what has come, and
	// the purge.
	publish(h, (*lateDisk)(r.store), false, "y")
	h.Purge(func(uint64, error) {})
	r.rest()
	if n := r.store.Stats().Writes; n == 0 {
		t.Fatal("no block was written")
	}
	r.empty()
}

// lateDisk is a ticket that has the store write what waits.
type lateDisk spill.Store

func (d *lateDisk) Settled(uint64, uint64, Outcome) {
	for (*spill.Store)(d).Step() {
	}
}

// Messages that lie far apart are no neighbours, however small they are.
func TestSparseMessagesAreSpilled(t *testing.T) {
	r := newSpillRig(t, 1<<30, 1<<20, 1<<30, durable(8))
	h := r.queue(8)
	const n = spill.MaxSpan/pageSize + 100
	for range n {
		ps := make([]Publish, pageSize)
		for i := range ps {
			ps[i] = Publish{Message: text("m"), Persistent: i > 0}
		}
		h.Publish(ps)
		r.step()
	}
	r.reg.lanes[0].cache.limit = 1
	publish(h, nil, false, "m")
	r.rest()
	if s := r.store.Stats(); s.Blocks < 2 || h.Stats().BodiesSpilled < n {
		t.Fatalf("%d blocks, %d bytes", s.Blocks, h.Stats().BodiesSpilled)
	}
	h.Purge(func(uint64, error) {})
	r.settle()
	r.rest()
	r.empty()
}

// What has become stable may leave memory at once, not with the next message.
func TestStableBodiesLeaveMemory(t *testing.T) {
	r := newSpillRig(t, 100, 2000, 1<<20, durable(8))
	publish(r.queue(8), nil, true, strings.Repeat("p", 1000))
	r.step()
	want(t, "bytes in memory", r.queue(8).Stats().BodiesInMemory, uint64(1000))
	r.log.sync()
	r.step()
	want(t, "bytes in memory", r.queue(8).Stats().BodiesInMemory, uint64(0))
}

// item is a message of the model.
type modelMessage struct {
	text           string
	holder         *sink // who has it
	id             uint64
	delivered, end bool
	durable        bool
}

// Random publishes, deliveries, settlements, requeues and purges with hardly
// any memory, tiny blocks and a disk that is slow, full or fails: every message
// comes with its body, and nothing is left at the end.
func TestSpillAgainstAModel(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		spillModel(t, seed)
	}
}

func spillModel(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 11))
	r := newSpillRig(t, 1+rng.Int64N(4000), 1+rng.Int64N(3000), 1+rng.Int64N(4000), transient(7), durable(8))
	fatal := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("seed %d: %s", seed, fmt.Sprintf(format, args...))
	}
	queues := []*Handle{r.queue(7), r.queue(8)}
	all := [][]*modelMessage{nil, nil} // by queue, in order
	sinks := []*sink{nil, nil}
	consumers := []queue.ConsumerID{0, 0}
	credit := r.reg.NewCredit()
	by := map[string]*modelMessage{}
	var later []Delivery // not read yet, of messages that may be gone
	var laterText []string
	var left []*sink // detached; what was held back for the disk may still come to them

	body := func(q, n int) string {
		return fmt.Sprintf("%d/%d/%s", q, n, strings.Repeat("b", rng.IntN(300)))
	}
	take := func(q int) {
		s := sinks[q]
		if s == nil {
			return
		}
		for _, d := range s.got {
			m := by[string(d.Message.Head)]
			switch {
			case d.Load == nil:
			case d.Load.big != nil && d.Load.big.head != nil:
				m = by[string(d.Load.big.head)]
			default:
				m = all[q][d.Load.head.number-1]
			}
			if m.end || m.holder != nil || m.delivered && !d.Redelivered {
				fatal("message %.10s comes again: end %v, redelivered %v", m.text, m.end, d.Redelivered)
			}
			m.holder, m.id, m.delivered = s, d.ID, true
			switch {
			case m.durable && d.Load != nil:
				d.Load = nil // in the log, which is a fake
			case rng.IntN(3) == 0:
				later, laterText = append(later, d), append(laterText, m.text)
			default:
				if got := r.text(&d); got != m.text {
					fatal("got %.20q, want %.20q", got, m.text)
				}
			}
		}
		s.reset()
	}
	step := func() {
		r.step()
		if rng.IntN(2) == 0 {
			r.log.sync()
			r.step()
		}
		take(0)
		take(1)
	}
	attach := func(q int) {
		sinks[q] = &sink{}
		consumers[q] = queues[q].Attach(unlimited(uint32(1+rng.IntN(60))), sinks[q], func(queue.ConsumerID, error) {})
	}
	for range 400 {
		q := rng.IntN(2)
		switch k := rng.IntN(20); {
		case k < 7:
			persistent := rng.IntN(3) == 0
			ps := make([]Publish, 1+rng.IntN(50))
			for i := range ps {
				m := &modelMessage{text: body(q, len(all[q])), durable: q == 1 && persistent}
				by[m.text] = m
				all[q] = append(all[q], m)
				ps[i] = Publish{Message: text(m.text), Persistent: persistent, Credit: credit}
				if rng.IntN(40) == 0 && !m.durable {
					var chunks [][]byte
					for range 1 + rng.IntN(4) {
						chunks = append(chunks, []byte(strings.Repeat("c", 1+rng.IntN(2000))))
					}
					ps[i].Message = message.Message{Head: []byte(m.text), Chunks: chunks}
					m.text += string(slices.Concat(chunks...))
				}
			}
			queues[q].Publish(ps)
		case k < 13:
			var held []*modelMessage
			for _, m := range all[q] {
				if m.holder != nil {
					held = append(held, m)
				}
			}
			how := []queue.Settlement{queue.Ack, queue.Ack, queue.Requeue, queue.Discard}[rng.IntN(4)]
			rng.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
			for _, m := range held[:rng.IntN(len(held)+1)] {
				queues[q].Settle(consumers[q], ids(m.id, m.id), how)
				m.holder = nil
				m.end = how != queue.Requeue
			}
			step()
		case k == 13:
			r.settle() // so that what is ready is known
			take(0)
			take(1)
			ready := uint64(0)
			for _, m := range all[q] {
				if m.holder == nil && !m.end {
					ready++
					m.end = true
				}
			}
			queues[q].Purge(func(n uint64, err error) {
				if n != ready || err != nil {
					fatal("%d purged, %v; want %d", n, err, ready)
				}
			})
			step()
		case k == 14 && sinks[q] != nil:
			queues[q].Detach(consumers[q], nil)
			r.step()
			take(q)
			for _, m := range all[q] {
				m.holder = nil
			}
			left, sinks[q] = append(left, sinks[q]), nil
		case k == 15:
			r.disk.Inject(vfs.Fault{Op: vfs.OpWrite, Err: []error{syscall.ENOSPC, syscall.EIO}[rng.IntN(2)], N: 1 + rng.IntN(5), Forever: true})
		case k == 16:
			r.disk.ClearFaults()
			r.clock.Advance(time.Second)
		case k == 17 && len(later) > 0:
			i := rng.IntN(len(later))
			if rng.IntN(4) == 0 && later[i].Load != nil {
				later[i].Load.Drop()
			} else if got := r.text(&later[i]); got != laterText[i] {
				fatal("got %.20q, want %.20q", got, laterText[i])
			}
			later, laterText = slices.Delete(later, i, i+1), slices.Delete(laterText, i, i+1)
		default:
			for range rng.IntN(6) {
				r.store.Step()
			}
		}
		if sinks[q] == nil && rng.IntN(3) == 0 {
			attach(q)
		}
		if rng.IntN(3) > 0 {
			step()
		}
		l := r.reg.lanes[0]
		if most := l.cache.limit + 3*l.spill.most + 10_000; !l.stuck() && l.cache.cost > most {
			fatal("%d bytes in memory", l.cache.cost)
		}
	}
	r.disk.ClearFaults()
	for q := range queues {
		if sinks[q] == nil {
			attach(q)
		}
	}
	for range 10_000 {
		r.clock.Advance(time.Second)
		r.log.sync()
		r.rest()
		take(0)
		take(1)
		left := false
		for q := range queues {
			for _, m := range all[q] {
				left = left || !m.end
				if m.holder != nil {
					queues[q].Settle(consumers[q], ids(m.id, m.id), queue.Ack)
					m.holder, m.end = nil, true
				}
			}
		}
		if !left {
			break
		}
	}
	r.settle()
	r.rest()
	for q := range queues {
		for _, m := range all[q] {
			if !m.end {
				fatal("message %.10s did not come", m.text)
			}
		}
	}
	for i := range later {
		if got := r.text(&later[i]); got != laterText[i] {
			fatal("got %.20q, want %.20q", got, laterText[i])
		}
	}
	for _, s := range left {
		for i := range s.got {
			if l := s.got[i].Load; l != nil && l.head.log == nil {
				l.Drop()
			}
		}
	}
	r.rest()
	if n := credit.InFlight(); n != 0 {
		fatal("%d bytes of credit are missing", n)
	}
	for _, s := range r.reg.lanes {
		if s.spill.cost != 0 {
			fatal("%d bytes are leaving", s.spill.cost)
		}
	}
	r.empty()
}
