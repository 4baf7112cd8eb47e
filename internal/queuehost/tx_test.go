package queuehost

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/vfs"
	"holdfast/internal/wire"
)

func levelTwo(_ *replica.Options, o *Options) { o.Level = func() uint16 { return 2 } }

// transact puts a transaction of messages and settlements into a queue.
func transact(h *Handle, tk Ticket, seq uint64, settled []Settled, bodies ...string) {
	t := &Transaction{Settled: settled, Ticket: tk, Seq: seq, Credit: h.registry().NewCredit()}
	for _, b := range bodies {
		t.Publishes = append(t.Publishes, Publish{Message: text(b), Persistent: true, Credit: t.Credit})
	}
	h.PutTransaction(t)
	h.Go(false)
}

// lots makes n bodies of a size.
func lots(name string, n, size int) (bodies []string) {
	for i := range n {
		bodies = append(bodies, fmt.Sprintf("%s%d %s", name, i, strings.Repeat("x", size)))
	}
	return bodies
}

// A transaction has one outcome, when all of it is there and on disk; its messages come in their order, and then its settlements. R531
func TestTransaction(t *testing.T) {
	for _, def := range []QueueDef{transient(7), durable(7)} {
		for _, newRig := range []func(testing.TB, *fakeLog, []QueueDef, ...rigOptions) *rig{newRig, newFarRig} {
			r := newRig(t, newFakeLog(), []QueueDef{def}, levelTwo)
			h, tk, s := r.queue(7), &tickets{}, &sink{}
			id := h.Attach(unlimited(2), s, func(queue.ConsumerID, error) {})
			publish(h, nil, true, "a", "b", "c")
			r.settle()
			syncs := r.log.syncs
			transact(h, tk, 5, []Settled{{id, ids(1, 1), queue.Ack}, {id, ids(2, 2), Return}}, "d", "e")
			r.step()
			if def.Durable {
				want(t, "outcome before the sync", len(tk.got), 0)
				want(t, "syncs", r.log.syncs, syncs+1)
			}
			r.settle()
			want(t, "outcome", tk.got, []outcome{{5, 5, Accepted}})
			want(t, "deliveries", s.bodies(), []string{"a", "b", "c", "b*"})
			h.Settle(id, ids(3, 4), queue.Ack)
			r.settle()
			want(t, "and then", s.bodies()[4:], []string{"d", "e"})
			transact(h, tk, 6, []Settled{{id, ids(5, 6), queue.Ack}})
			r.settle()
			want(t, "settlements alone", tk.got[1:], []outcome{{6, 6, Accepted}})
			want(t, "unacked", r.host(7).stats.read().Unacked, uint64(0))
			transact(h, tk, 7, nil)
			r.settle()
			want(t, "nothing", tk.got[2:], []outcome{{7, 7, Accepted}})
		}
	}
}

// One that takes many entries is nobody's until the last of them. R530
func TestTransactionOfManyEntries(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)}, levelTwo)
	h, tk, s := r.queue(7), &tickets{}, &sink{}
	id := h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	publish(h, nil, true, lots("a", 3000, 10)...)
	r.settle()
	s.reset()
	records := len(r.log.records)
	var one []queue.Range
	for i := uint64(1); i <= 3000; i += 2 {
		one = append(one, queue.Range{First: i, Last: i})
	}
	h.PutTransaction(&Transaction{
		Publishes: func() (ps []Publish) {
			for i, b := range lots("t", 2500, 400) {
				ps = append(ps, Publish{Message: text(b), Persistent: i%3 > 0})
				if i == 1200 {
					ps[i].Message.Chunks = [][]byte{make([]byte, 200<<10), make([]byte, 200<<10)}
				}
			}
			return ps
		}(),
		Settled: []Settled{{id, one, queue.Ack}}, Ticket: tk, Seq: 1,
	})
	h.Go(false)
	publish(h, nil, true, "b")
	for r.node.Shard(0).Step() && len(s.got) == 0 {
		want(t, "unacked", h.Stats().Unacked, uint64(3000))
		want(t, "ready", h.Stats().Ready, uint64(0))
	}
	if n := len(r.log.records) - records; n < 5 {
		t.Fatalf("%d entries", n)
	}
	r.settle()
	want(t, "outcome", tk.got, []outcome{{1, 1, Accepted}})
	want(t, "deliveries", len(s.got), 2501)
	want(t, "the last", string(s.got[2500].Message.Head), "b")
	want(t, "chunks", len(s.got[1200].Message.Chunks), 2)
	want(t, "unacked", h.Stats().Unacked, uint64(1500+2501))
}

// What a limit would refuse a message of does not happen at all. R532
func TestTransactionIsRefusedAsAWhole(t *testing.T) {
	def := set(durable(7), queue.Settings{MaxLength: queue.Most(3), Overflow: queue.OverflowReject})
	for _, newRig := range []func(testing.TB, *fakeLog, []QueueDef, ...rigOptions) *rig{newRig, newFarRig} {
		r := newRig(t, newFakeLog(), []QueueDef{def}, levelTwo)
		h, tk, s := r.queue(7), &tickets{}, &sink{}
		id := h.Attach(unlimited(1), s, func(queue.ConsumerID, error) {})
		publish(h, nil, true, "a", "b")
		r.settle()
		transact(h, tk, 1, []Settled{{id, ids(1, 1), queue.Ack}}, "c", "d", "e")
		transact(h, tk, 2, nil, "f", "g")
		r.settle()
		want(t, "outcomes", tk.got, []outcome{{1, 1, Refused}, {2, 2, Accepted}})
		h.Settle(id, ids(1, 1), queue.Ack)
		for i := uint64(2); i < 5; i++ {
			r.settle()
			h.Settle(id, ids(i, i), queue.Ack)
		}
		r.settle()
		want(t, "deliveries", s.bodies(), []string{"a", "b", "f", "g"})
		want(t, "in memory", r.host(7).bodies.bytes, int64(0))
	}
}

// R544: what settles a delivery that was taken away meanwhile does not happen at all, wherever it comes from.
func TestTransactionAboutWhatWasTakenAway(t *testing.T) {
	hereAndThere(t, []QueueDef{durable(7)}, func(t *testing.T, r *rig, pass func(time.Duration)) {
		h, tk := r.queue(7), &tickets{}
		spec := unlimited(0)
		spec.Arguments = wire.NewTable(map[string]any{timeoutArgument: int64(10_000)})
		id := h.Attach(spec, &sink{}, func(queue.ConsumerID, error) {})
		publish(h, nil, true, "a", "b")
		r.settle()
		pass(6 * time.Second)
		publish(h, nil, true, "c")
		r.settle()
		pass(6 * time.Second)
		want(t, "unacked", h.Stats().Unacked, uint64(1))
		transact(h, tk, 1, []Settled{{id, ids(1, 3), queue.Ack}}, "d")
		transact(h, tk, 2, []Settled{{id, ids(2, 2), queue.Ack}, {id, ids(3, 3), queue.Ack}}, "e")
		r.settle()
		want(t, "outcomes", tk.got, []outcome{{1, 1, Refused}, {2, 2, Refused}})
		want(t, "ready and unacked", []uint64{h.Stats().Ready, h.Stats().Unacked}, []uint64{2, 1})
		transact(h, tk, 3, []Settled{{id, ids(3, 3), queue.Ack}}, "f")
		r.settle()
		want(t, "what it holds still", tk.got[2:], []outcome{{3, 3, Accepted}})
		want(t, "ready and unacked in the end", []uint64{h.Stats().Ready, h.Stats().Unacked}, []uint64{3, 0})
	})
}

// R545: the key of a message that a transaction acknowledges is free for one that it publishes.
func TestTransactionThatReplacesAMessage(t *testing.T) {
	def := set(durable(7), queue.Settings{Deduplicate: queue.MessageIDKey})
	hereAndThere(t, []QueueDef{def}, func(t *testing.T, r *rig, _ func(time.Duration)) {
		h, tk := r.queue(7), &tickets{}
		id := h.Attach(unlimited(1), &sink{}, func(queue.ConsumerID, error) {})
		keyed := func() Publish { return Publish{Message: body("a", wire.PropertySet{MessageID: "k"}), Persistent: true} }
		h.Put([]Publish{keyed()})
		h.Go(false)
		r.settle()
		put := func(seq uint64, how queue.Settlement, ps ...Publish) {
			h.PutTransaction(&Transaction{Publishes: ps, Settled: []Settled{{id, ids(seq, seq), how}}, Ticket: tk, Seq: seq})
			h.Go(false)
			r.settle()
		}
		put(1, queue.Requeue, keyed())
		put(1, queue.Ack, keyed(), keyed())
		put(1, queue.Ack, keyed())
		put(2, queue.Discard, keyed())
		want(t, "outcomes", tk.got, []outcome{{1, 1, Refused}, {1, 1, Refused}, {1, 1, Accepted}, {2, 2, Accepted}})
		want(t, "messages", []uint64{h.Stats().Ready, h.Stats().Unacked}, []uint64{0, 1})
	})
}

// What a quorum queue keeps in mind of commits that it has refused does not grow, though nothing else could be refused there. R544
func TestRefusedCommitsAreForgotten(t *testing.T) {
	x := newTrioWith(t, 1, func(o *Options) { o.Level = func() uint16 { return 2 } }, func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, durable(7))
	defer x.close(t)
	h, outcomes := x.nodes[0].reg.Get(7), make(outcomeOf, 1)
	attached := make(chan struct{})
	id := h.Attach(unlimited(1), newHolding(), func(queue.ConsumerID, error) { close(attached) })
	<-attached
	for range 200 {
		transact(h, outcomes, 1, []Settled{{id, ids(1000, 1000), queue.Ack}}) // which nobody was given
		want(t, "a commit", <-outcomes, Refused)
		h.Publish([]Publish{{Message: text("x"), Persistent: true, Ticket: outcomes, Seq: 1}})
		want(t, "a message", <-outcomes, Accepted)
	}
	state := make(chan []byte, 1)
	lead := x.leader(7)
	lead.group.Do(func() { state <- lead.m.AppendSnapshot(nil) })
	if n := len(<-state); n > 200 {
		t.Errorf("the state of a queue with messages alike takes %d bytes", n)
	}
}

// A crash at any record leaves all of a transaction or nothing, in each queue by itself. R530
func TestTransactionsAndCrashes(t *testing.T) {
	defs := []QueueDef{durable(7), durable(8)}
	log := newFakeLog()
	log.auto = true
	r := newRig(t, log, defs, levelTwo)
	id := r.queue(7).Getter(unlimited(0), &sink{})
	publish(r.queue(7), nil, true, lots("old", 20, 10)...)
	r.settle()
	for range 20 {
		r.queue(7).Get(id, false, func(Delivery, uint64, bool, error) {})
		r.settle()
	}
	began := len(log.records)
	sizes := []int{1, 700, 2500, 3}
	accepted := map[int]*tickets{}
	for k, n := range sizes {
		accepted[k] = &tickets{}
		first := uint64(1 + 5*k)
		transact(r.queue(7), accepted[k], 1, []Settled{{id, ids(first, first+2), queue.Ack}, {id, ids(first+4, first+4), queue.Ack}}, lots(fmt.Sprintf("tx%d.", k), n, 400)...)
		transact(r.queue(8), accepted[k], 2, nil, lots(fmt.Sprintf("tx%d.", k), 5, 10)...)
		publish(r.queue(7), nil, true, fmt.Sprintf("between%d", k))
		r.settle()
		want(t, "outcomes", len(accepted[k].got), 2)
	}
	for n := began; n <= len(log.records); n++ {
		log.stable = n
		again := newRig(t, log.crashed(), defs, levelTwo)
		again.log.auto = true
		again.settle()
		for q, perTx := range map[int][]int{7: sizes, 8: {5, 5, 5, 5}} {
			there := map[uint64]bool{}
			for _, r := range again.host(defs[q-7].ID).m.Live(nil) {
				for n := r.First; n <= r.Last; n++ {
					there[uint64(n)] = true
				}
			}
			next := uint64(21)
			if q == 8 {
				next = 1
			}
			for k, all := range perTx {
				came := 0
				for i := range uint64(all) {
					if there[next+i] {
						came++
					}
				}
				if next += uint64(all); q == 7 {
					next++ // what was published between
				}
				if came != 0 && came != all {
					t.Fatalf("after %d records queue %d has %d of %d messages of transaction %d", n, q, came, all, k)
				}
				if n == len(log.records) && came == 0 {
					t.Fatalf("transaction %d is not in queue %d", k, q)
				}
				for i := range 5 {
					settled := came > 0 && i != 3
					if q == 7 && there[uint64(1+5*k+i)] == settled {
						t.Fatalf("after %d records %d messages of transaction %d are there, and what it settles is there: %v", n, came, k, !settled)
					}
				}
			}
		}
		if n := again.host(7).m.Uncommitted(); n != 0 {
			t.Fatalf("%d messages of transactions are left", n)
		}
	}
}

// A link that breaks in the middle of a transaction leaves nothing of it, and the next link has nothing of it either. R533
func TestTransactionAndABrokenLink(t *testing.T) {
	halves := 0
	for cut := range 12 {
		r := newFarRig(t, newFakeLog(), []QueueDef{durable(7)}, levelTwo, func(_ *replicaOptions, o *Options) { o.PeerCredit = 3000 })
		h, tk := r.queue(7), &tickets{}
		transact(h, tk, 1, nil, lots("a", 40, 2000)...)
		for range cut {
			r.entry.Shard(0).Step()
			r.net.deliverAll(entryNode, homeNode)
			r.node.Shard(0).Step()
			r.log.sync()
		}
		parts := r.host(7).m.Uncommitted()
		halves += int(min(parts, 1))
		r.net.cut(entryNode, homeNode)
		r.net.connect(entryNode, homeNode)
		transact(h, tk, 2, nil, "b", "c")
		r.settle()
		if len(tk.got) != 2 || tk.got[1] != (outcome{2, 2, Accepted}) {
			t.Fatalf("cut after %d: %v", cut, tk.got)
		}
		ready := r.atHome(7).Stats().Ready
		switch o := tk.got[0].o; {
		case o == Accepted && ready != 42, o == Refused && ready != 2, o == Unknown && ready != 2 && ready != 42:
			t.Fatalf("cut after %d, with %d parts: the outcome is %v, %d messages are ready", cut, parts, o, ready)
		}
		want(t, "parts that are left", r.host(7).m.Uncommitted(), uint64(0))
		want(t, "in flight", []int64{r.reg.pool.used.Load(), r.home.pool.used.Load()}, []int64{0, 0})
	}
	if halves == 0 {
		t.Error("no link broke in the middle")
	}
}

// In a cluster of the first level a transaction is done piece by piece, and its outcome is that of the worst.
func TestTransactionAtTheFirstLevel(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	h, tk, s := r.queue(7), &tickets{}, &sink{}
	id := h.Attach(unlimited(1), s, func(queue.ConsumerID, error) {})
	publish(h, nil, true, "a")
	r.settle()
	transact(h, tk, 9, []Settled{{id, ids(1, 1), queue.Ack}}, "b", "c")
	r.step()
	want(t, "before the sync", len(tk.got), 0)
	r.settle()
	want(t, "outcome", tk.got, []outcome{{9, 9, Accepted}})
	want(t, "deliveries", s.bodies(), []string{"a", "b"})
	for _, rec := range r.log.records {
		cmds, err := queue.DecodeCommands(nil, rec.Meta)
		if err != nil || slices.ContainsFunc(cmds, func(c queue.Command) bool { return c.Kind == queue.Commit || c.Terms != nil }) {
			t.Fatalf("%v, %v", cmds, err)
		}
	}
}
