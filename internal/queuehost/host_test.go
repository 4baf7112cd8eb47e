package queuehost

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"holdfast/internal/amqperr"
	"holdfast/internal/clock"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

var testTime = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func TestDirectPublishIsConfirmedAndDelivered(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{transient(7)})
	h := r.queue(7)
	s, tk := &sink{}, &tickets{}
	var attached []string
	h.Attach(unlimited(0), s, func(id queue.ConsumerID, err error) {
		attached = append(attached, fmt.Sprint(id, err, len(s.got)))
	})
	publish(h, tk, true, "a", "b", "c")
	r.step()
	want(t, "attach answered before the first delivery", attached, []string{"1 <nil> 0"})
	want(t, "deliveries", s.bodies(), []string{"a", "b", "c"})
	want(t, "confirms", tk.got, []outcome{{1, 3, Accepted}})
	want(t, "records in the log", len(r.log.records), 0)
	want(t, "batches of deliveries", s.batches, 1)
}

// R84, R85, R179: persistent messages are confirmed when they are on disk, all with one sync, and only then; a transient one at once.
// R203 R241: what is written is not confirmed before it is stable, which is told apart.
func TestPersistentConfirmWaitsForTheDisk(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	h := r.queue(7)
	p, tr := &tickets{}, &tickets{}
	publish(h, p, true, "a", "b")
	publish(h, tr, false, "c")
	publish(h, p, true, "d")
	r.step()
	want(t, "transient confirms", tr.got, []outcome{{1, 1, Accepted}})
	want(t, "persistent confirms before the sync", len(p.got), 0)
	want(t, "syncs asked for", r.log.syncs, 1)
	want(t, "items in the log", len(r.log.items[7]), 3)
	want(t, "waiting", h.Stats().Unstable, uint64(3))
	r.settle()
	want(t, "persistent confirms", p.got, []outcome{{1, 2, Accepted}, {1, 1, Accepted}})
	want(t, "waiting", h.Stats().Unstable, uint64(0))
}

func TestNobodyWaitsNoSync(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	publish(r.queue(7), nil, true, "a")
	publish(r.queue(7), &tickets{}, false, "b")
	r.step()
	want(t, "syncs asked for", r.log.syncs, 0)
	want(t, "records", len(r.log.records), 1)
}

// The first hand-out of a persistent message since the start waits for the disk, later ones do not.
func TestFirstHandOutWaitsForTheDisk(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	h := r.queue(7)
	s := &sink{}
	h.Attach(unlimited(0), s, func(queue.ConsumerID, error) { s.events = append(s.events, "attached") })
	publish(h, nil, true, "a")
	r.step()
	publish(h, nil, false, "b")
	r.step()
	h.Credit(1, 0, true)
	r.step()
	want(t, "before the sync", s.events, []string{"attached"})
	if r.log.syncs == 0 {
		t.Fatal("no sync was asked for")
	}
	var x Explanation
	h.Explain(func(e Explanation) { x = e })
	r.step()
	want(t, "explained", x.BlockedBy, "disk")
	r.settle()
	want(t, "after it", s.events, []string{"attached", "deliver a", "deliver b", "drained"})
	h.Credit(1, Unlimited, false)
	publish(h, nil, true, "c")
	r.step()
	want(t, "the next one", s.bodies(), []string{"a", "b", "c"})
}

func TestTransientHandOutDoesNotWait(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	s := &sink{}
	r.queue(7).Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	publish(r.queue(7), &tickets{}, false, "a")
	r.step()
	want(t, "deliveries", s.bodies(), []string{"a"})
	want(t, "syncs asked for", r.log.syncs, 0)
}

func TestEachPublishersOrderHolds(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	h := r.queue(7)
	var all []string
	for i := range 3000 {
		name := fmt.Sprintf("%d/%d", i%3, i/3)
		publish(h, nil, i%7 != 0, name)
		all = append(all, name)
		if i%500 == 0 {
			r.step()
		}
	}
	r.settle()
	s := &sink{}
	h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	r.settle()
	want(t, "order", s.bodies(), all)
}

func TestEntriesAreBounded(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	ps := make([]Publish, 10000)
	tk := &tickets{}
	for i := range ps {
		ps[i] = Publish{Message: text("x"), Persistent: true, Ticket: tk, Seq: uint64(i)}
	}
	r.queue(7).Publish(ps)
	r.settle()
	want(t, "entries", len(r.log.records), 10)
	want(t, "ready", r.queue(7).Stats().Ready, uint64(10000))
	for i := range ps {
		ps[i].Message.Head = make([]byte, 1<<10)
	}
	r.queue(7).Publish(ps[:1000])
	r.settle()
	want(t, "entries", len(r.log.records), 10+4)
	n := uint64(0)
	for _, o := range tk.got {
		n += o.last - o.first + 1
	}
	want(t, "confirmed", n, uint64(11000))
}

// What comes in while a large batch is packed over several rounds is not forgotten.
func TestCommandsBetweenRounds(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{transient(7)})
	ps := make([]Publish, 5000)
	for i := range ps {
		ps[i].Message = text("x")
	}
	h := r.queue(7)
	h.Publish(ps)
	r.node.Shard(0).Step()
	publish(h, nil, false, "y")
	r.step()
	want(t, "ready", h.Stats().Ready, uint64(5001))
}

func TestGet(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	h := r.queue(7)
	g := h.Getter(ConsumerSpec{}, &sink{})
	var got []string
	get := func(noAck bool) {
		h.Get(g, noAck, func(d Delivery, left uint64, ok bool, err error) {
			got = append(got, fmt.Sprint(string(d.Message.Head), " id ", d.ID, " left ", left, " ", ok, " ", err))
		})
	}
	get(false)
	r.step()
	want(t, "empty", got, []string{" id 0 left 0 false <nil>"})
	want(t, "records for a get on an empty queue", len(r.log.records), 0)
	got = nil
	publish(h, nil, true, "a", "b", "c")
	get(false)
	get(true)
	get(false)
	get(false)
	r.settle()
	want(t, "gets", got, []string{
		"a id 1 left 2 true <nil>", "b id 0 left 1 true <nil>", "c id 3 left 0 true <nil>", " id 0 left 0 false <nil>",
	})
	n := len(r.log.records)
	get(false)
	r.step()
	want(t, "records for a get on an empty queue", len(r.log.records), n)
	st := h.Stats()
	want(t, "unacked", st.Unacked, uint64(2))
	want(t, "gets", []uint64{st.Gets, st.GetsEmpty}, []uint64{3, 3})
	h.Detach(g, nil)
	r.step()
	want(t, "ready after detach", h.Stats().Ready, uint64(2))
}

func TestNoAckSettlesAtAssignment(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	h := r.queue(7)
	s := &sink{}
	h.Attach(ConsumerSpec{NoAck: true, Credit: 2}, s, func(queue.ConsumerID, error) {})
	publish(h, nil, true, "a", "b", "c")
	r.settle()
	want(t, "deliveries", s.bodies(), []string{"a", "b"})
	want(t, "released", r.log.released[7], []seglog.Range{{First: 1, Last: 2}})
	want(t, "unacked", h.Stats().Unacked, uint64(0))
	h.Credit(1, 5, false)
	r.settle()
	want(t, "deliveries", s.bodies(), []string{"a", "b", "c"})
	want(t, "bytes in memory", h.Stats().BodiesInMemory, uint64(0))
}

// R5, R27: what is requeued comes back to its place, marked.
func TestSettle(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	h := r.queue(7)
	s := &sink{}
	c := h.Attach(unlimited(3), s, func(queue.ConsumerID, error) {})
	publish(h, nil, true, "1", "2", "3", "4", "5")
	r.settle()
	want(t, "prefetch", s.bodies(), []string{"1", "2", "3"})
	h.Settle(c, ids(2, 2), queue.Requeue)
	r.settle()
	want(t, "after the requeue", s.bodies(), []string{"1", "2", "3", "2*"})
	h.Settle(c, ids(1, 1), queue.Ack)
	h.Settle(c, ids(3, 3), queue.Discard)
	h.Settle(c, ids(1, 1), queue.Ack) // again: ignored
	r.settle()
	want(t, "after the ack", s.bodies(), []string{"1", "2", "3", "2*", "4", "5"})
	want(t, "released", r.log.released[7], []seglog.Range{{First: 1, Last: 1}, {First: 3, Last: 3}})
	st := h.Stats()
	want(t, "acked, redelivered", []uint64{st.Acked, st.Redelivered}, []uint64{1, 1})
}

func TestAcksOneByOneAreOneCommand(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	h := r.queue(7)
	s := &sink{}
	c := h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	for i := range 1000 {
		publish(h, nil, true, fmt.Sprint(i))
	}
	r.settle()
	for i := range uint64(1000) {
		h.Settle(c, ids(i+1, i+1), queue.Ack)
	}
	r.settle()
	last := r.log.records[len(r.log.records)-1]
	cmds, err := queue.DecodeCommands(nil, last.Meta)
	if err != nil || len(cmds) != 1 {
		t.Fatalf("%d commands, %v", len(cmds), err)
	}
	want(t, "unacked", h.Stats().Unacked, uint64(0))
}

// A consumer does not wait behind a publisher that is faster than it: acks go first.
func TestSettlementsOvertakePublishes(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{transient(7)})
	h := r.queue(7)
	s := &sink{}
	c := h.Attach(unlimited(1), s, func(queue.ConsumerID, error) {})
	publish(h, nil, false, "a", "b")
	r.step()
	for range 5 {
		h.Publish(make([]Publish, maxMessages))
	}
	r.node.Shard(0).Step()
	h.Settle(c, ids(1, 1), queue.Ack)
	r.node.Shard(0).Step()
	want(t, "deliveries", s.bodies(), []string{"a", "b"})
	r.step()
	want(t, "published", h.Stats().Published, uint64(2+5*maxMessages))
}

// Acks that come in while many others are packed over several rounds are not forgotten.
func TestAcksBetweenRounds(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{transient(7)})
	h := r.queue(7)
	c := h.Attach(unlimited(0), &sink{}, func(queue.ConsumerID, error) {})
	ps := make([]Publish, 10001)
	for i := range ps {
		ps[i].Message = text("x")
	}
	h.Publish(ps)
	r.step()
	for i := uint64(1); i < 10000; i += 2 { // nothing to join
		h.Settle(c, ids(i, i), queue.Ack)
	}
	r.node.Shard(0).Step()
	h.Settle(c, ids(10001, 10001), queue.Ack)
	r.step()
	want(t, "acked", h.Stats().Acked, uint64(5001))
}

// What has to see the machine as it is has its turn though acks never stop.
func TestAcksDoNotStarveOthers(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{transient(7)})
	h := r.queue(7)
	c := h.Attach(unlimited(0), &sink{}, func(queue.ConsumerID, error) {})
	publish(h, nil, false, "1", "2", "3", "4", "5")
	r.step()
	answered := false
	h.Explain(func(Explanation) { answered = true })
	detached := false
	for i := range uint64(3) {
		h.Settle(c, ids(i+1, i+1), queue.Ack)
		r.node.Shard(0).Step()
	}
	want(t, "explained", answered, true)
	h.Seal(false, false, func(uint64, error) {})
	h.Settle(c, ids(4, 4), queue.Ack)
	h.Detach(c, func() { detached = true })
	r.step()
	want(t, "detached", detached, true)
	st := h.Stats()
	want(t, "the ack came before the detach", []uint64{st.Ready, st.Acked}, []uint64{1, 4})
}

// Credit given right behind an Attach is not lost, though credit goes first.
func TestCreditBehindAttach(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{transient(7)})
	h := r.queue(7)
	s := &sink{}
	publish(h, nil, false, "a", "b", "c")
	c := h.Attach(ConsumerSpec{}, s, func(queue.ConsumerID, error) {})
	h.Credit(c, 1, false)
	h.Credit(c, 5, true)
	r.step()
	want(t, "deliveries", s.bodies(), []string{"a", "b", "c"})
	want(t, "drained", s.drained, []uint32{3})
}

func TestWakeAndDrain(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{transient(7)})
	h := r.queue(7)
	s := &sink{}
	c := h.Attach(ConsumerSpec{Wake: true}, s, func(queue.ConsumerID, error) {})
	r.step()
	publish(h, nil, false, "a", "b")
	r.step()
	want(t, "wakes", s.wakes, 1)
	h.Credit(c, 1, false)
	r.step()
	want(t, "deliveries", s.bodies(), []string{"a"})
	want(t, "wakes", s.wakes, 2)
	h.Credit(c, 10, true)
	r.step()
	want(t, "deliveries", s.bodies(), []string{"a", "b"})
	want(t, "drained", s.drained, []uint32{9})
}

func TestExclusiveConsumerIsAlone(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{transient(7)})
	h := r.queue(7)
	var errs []error
	note := func(_ queue.ConsumerID, err error) { errs = append(errs, err) }
	h.Attach(ConsumerSpec{Exclusive: true, Credit: Unlimited}, &sink{}, note)
	h.Attach(unlimited(0), &sink{}, note)
	r.step()
	var e *amqperr.Error
	if errs[0] != nil || !errors.As(errs[1], &e) || e.Code != amqperr.AccessRefused {
		t.Fatalf("answers: %v", errs)
	}
}

func TestCancelKeepsCheckouts(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{transient(7)})
	h := r.queue(7)
	s := &sink{}
	c := h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	publish(h, nil, false, "a")
	h.Cancel(c, func() { s.events = append(s.events, "cancelled") })
	publish(h, nil, false, "b")
	r.step()
	want(t, "events", s.events, []string{"deliver a", "cancelled"})
	h.Settle(c, ids(1, 1), queue.Ack)
	r.step()
	st := h.Stats()
	want(t, "ready, unacked, acked", []uint64{st.Ready, st.Unacked, st.Acked}, []uint64{1, 0, 1})
}

func TestDetachReturnsCheckouts(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{transient(7)})
	h := r.queue(7)
	s := &sink{}
	c := h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	publish(h, nil, false, "a", "b")
	detached := false
	h.Detach(c, func() { detached = true })
	r.step()
	want(t, "detached", detached, true)
	s2 := &sink{}
	h.Attach(unlimited(0), s2, func(queue.ConsumerID, error) {})
	r.step()
	want(t, "redelivered", s2.bodies(), []string{"a*", "b*"})
	want(t, "count", s2.got[0].Count, uint32(1))
}

// A detach never overtakes an acknowledgement that was handed in before it, however many wait.
func TestDetachBehindManyAcks(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{transient(7)})
	h := r.queue(7)
	c := h.Attach(unlimited(0), &sink{}, func(queue.ConsumerID, error) {})
	const messages = 3 * replica.MaxEntryCommands
	for range messages {
		publish(h, nil, false, "m")
	}
	r.step()
	for id := uint64(1); id <= messages; id += 2 { // no two of them are neighbours
		h.Settle(c, ids(id, id), queue.Ack)
	}
	r.node.Shard(0).Step() // some are left over
	h.Settle(c, ids(2, 2), queue.Ack)
	h.Detach(c, nil)
	r.step()
	want(t, "ready", h.Stats().Ready, uint64(messages/2-1))
}

func TestPurge(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	h := r.queue(7)
	var n []uint64
	count := func(c uint64, err error) { n = append(n, c) }
	h.Purge(count)
	r.step()
	want(t, "records", len(r.log.records), 0)
	publish(h, nil, true, "a", "b")
	h.Purge(count)
	r.settle()
	want(t, "purged", n, []uint64{0, 2})
	want(t, "released", r.log.released[7], []seglog.Range{{First: 1, Last: 2}})
}

func TestBigMessageTravelsInChunks(t *testing.T) {
	for _, def := range []QueueDef{durable(7), transient(7)} {
		r := newRig(t, newFakeLog(), []QueueDef{def})
		h := r.queue(7)
		big := message.Message{Head: []byte("head")}
		for i := range 5 {
			c := make([]byte, message.ChunkSize)
			c[0] = byte(i)
			big.Chunks = append(big.Chunks, c)
		}
		tk := &tickets{}
		h.Publish([]Publish{
			{Message: text("before"), Persistent: true, Ticket: tk, Seq: 1},
			{Message: big, Persistent: true, Ticket: tk, Seq: 2},
			{Message: big, Persistent: true, Ticket: tk, Seq: 3},
			{Message: text("after"), Persistent: true, Ticket: tk, Seq: 4},
		})
		s := &sink{}
		h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
		r.settle()
		want(t, "order", s.bodies(), []string{"before", "head", "head", "after"})
		want(t, "chunks", len(s.got[2].Message.Chunks), 5)
		for i, c := range s.got[2].Message.Chunks {
			want(t, "chunk", int(c[0]), i)
		}
		if def.Durable {
			want(t, "items", len(r.log.items[7]), 14)
			for _, rec := range r.log.records {
				want(t, "kind", rec.Kind, seglog.KindEntry)
			}
		}
		h.Settle(1, ids(1, 4), queue.Ack)
		r.settle()
		want(t, "bytes in memory", h.Stats().BodiesInMemory, uint64(0))
		n := uint64(0)
		for _, rg := range r.log.released[7] {
			n += rg.Last - rg.First + 1
		}
		if def.Durable {
			want(t, "released", n, uint64(14))
		}
	}
}

func TestOverduePublishIsUnknown(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	h := r.queue(7)
	tk := &tickets{}
	publish(h, tk, true, "a")
	h.Publish([]Publish{{Message: text("b"), Persistent: true, Credit: r.reg.NewCredit()}}) // nobody waits for it
	h.Barrier(tk, 2)
	r.step()
	r.queue(7).host.Overdue(1)
	want(t, "outcomes", tk.got, []outcome{{1, 1, Unknown}, {2, 2, Unknown}})
	r.queue(7).host.Overdue(1) // once more, and it counts once
	r.settle()
	want(t, "outcomes", tk.got, []outcome{{1, 1, Unknown}, {2, 2, Unknown}})
	want(t, "counted", h.Nacks(), Nacks{Unknown: 2}) // a barrier is no publish
	want(t, "nacked", len(slices.Collect(r.reg.Nacked())), 1)
}

// R499: while an alarm is on where a queue is served, the time of publishes to it does not run; afterwards it begins anew.
func TestPublishesWaitWithPatienceUnderAnAlarm(t *testing.T) {
	clk := clock.NewManual(time.Unix(0, 0))
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)}, func(_ *replicaOptions, o *Options) { o.Clock = clk })
	h, wait := r.queue(7), r.reg.o.Wait
	tk := &tickets{}
	publish(h, tk, true, "a")
	r.step()
	self := r.reg.self()
	r.reg.SetAlarmed(self+1, true)
	r.reg.SetAlarmed(self, true)
	for range 3 {
		clk.Advance(wait)
		h.host.Overdue(1)
	}
	want(t, "under the alarm", len(tk.got), 0)
	r.reg.SetAlarmed(self, false)
	clk.Advance(wait - 1)
	h.host.Overdue(1)
	want(t, "soon after it", len(tk.got), 0)
	now := clk.Mono()
	want(t, "counts from the end", r.reg.waited(self, 0, now), int64(wait)-1)
	want(t, "or from the publish", r.reg.waited(self, now-1, now), 1)
	want(t, "another node", r.reg.waited(self+1, 0, now), 0)
	want(t, "and any other", r.reg.waited(self+2, 5, now), now-5)
	clk.Advance(1)
	h.host.Overdue(1)
	want(t, "in the end", tk.got, []outcome{{1, 1, Unknown}})
	r.reg.SetAlarmed(self+1, false)
	clk.Advance(wait)
	r.reg.SetAlarmed(self, false)
	want(t, "nothing is kept", r.reg.alarmed.with.Load() == nil, true)
}

func TestTailCacheIsBounded(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7), durable(8)}, func(_ *replicaOptions, o *Options) { o.TailCache = 4 << 10 })
	body := string(make([]byte, 100))
	for i := range 400 {
		publish(r.queue(seglog.GroupID(7+i%2)), nil, true, body)
		r.settle()
	}
	for i, l := range r.reg.lanes {
		if l.cache.cost > l.cache.limit {
			t.Fatalf("lane %d: %d of the cache is used", i, l.cache.cost)
		}
	}
	n := r.queue(7).Stats().BodiesInMemory + r.queue(8).Stats().BodiesInMemory
	if n == 0 || n > 4<<10+uint64(len(body)*pageSize) {
		t.Fatalf("%d bytes in memory", n)
	}
	s := &sink{}
	r.queue(7).Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	r.settle()
	loads := 0
	for _, d := range s.got {
		if d.Load != nil {
			loads++
		}
	}
	want(t, "deliveries", len(s.got), 200)
	if loads == 0 || loads == 200 {
		t.Fatalf("%d of 200 deliveries to be loaded", loads)
	}
	for range 100 {
		publish(r.queue(7), nil, true, body)
		r.settle()
	}
	want(t, "bytes in memory of a queue that gave way to another", r.queue(8).Stats().BodiesInMemory, uint64(0))
}
