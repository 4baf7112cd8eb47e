package queuehost

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/amqperr"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/seglog"
)

// counts settles and sums what is in the queue.
func counts(r *rig, id seglog.GroupID) []uint64 {
	st := r.queue(id).Stats()
	return []uint64{st.Ready, st.Unacked, st.Consumers}
}

// R96, R246: what was confirmed is there after a crash, transient messages are not, what was acked and stable is not.
func TestReplayAfterACrash(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	h := r.queue(7)
	s, tk := &sink{}, &tickets{}
	publish(h, tk, true, "a", "b", "c")
	publish(h, nil, false, "t")
	c := h.Attach(unlimited(2), s, func(queue.ConsumerID, error) {})
	r.settle()
	h.Settle(c, ids(1, 1), queue.Ack)
	r.settle()
	publish(h, tk, true, "lost")
	r.step() // not stable
	want(t, "confirms", tk.got, []outcome{{1, 3, Accepted}})

	r2 := newRig(t, r.log.crashed(), []QueueDef{durable(7)})
	r2.settle()
	want(t, "after the crash", counts(r2, 7), []uint64{2, 0, 0})
	want(t, "live", r2.log.live[7][0], seglog.Range{First: 2, Last: 3}) // 4 is transient: not known to the log
	s2 := &sink{}
	r2.queue(7).Attach(unlimited(0), s2, func(queue.ConsumerID, error) {})
	r2.settle()
	want(t, "deliveries", len(s2.got), 2)
	for _, d := range s2.got {
		if !d.Redelivered || d.Load == nil {
			t.Fatalf("delivery %+v", d)
		}
	}
}

// R34: after an unclean stop a queue that had handed out anything marks all as redelivered; after a clean one only what was out.
func TestRedeliveredIsHonest(t *testing.T) {
	for _, clean := range []bool{true, false} {
		r := newRig(t, newFakeLog(), []QueueDef{durable(7), durable(8)})
		for _, id := range []seglog.GroupID{7, 8} {
			publish(r.queue(id), nil, true, "a", "b")
		}
		r.queue(7).Attach(unlimited(1), &sink{}, func(queue.ConsumerID, error) {})
		r.settle()
		log := r.log.crashed()
		log.clean = clean
		r2 := newRig(t, log, []QueueDef{durable(7), durable(8)})
		var got []bool
		for _, id := range []seglog.GroupID{7, 8} {
			s := &sink{}
			r2.queue(id).Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
			r2.settle()
			for _, d := range s.got {
				got = append(got, d.Redelivered)
			}
		}
		want(t, "redelivered", got, []bool{true, !clean, false, false})
	}
}

// Lesson 4: an idle queue writes nothing, not even when it starts.
func TestIdleQueuesWriteNothing(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7), {ID: 8, Durable: true, AutoDelete: true}})
	r.settle()
	want(t, "records", len(r.log.records), 0)
	c := r.queue(7).Attach(unlimited(0), &sink{}, func(queue.ConsumerID, error) {})
	r.settle()
	r.queue(7).Detach(c, nil)
	r.settle()
	n := len(r.log.records)
	for range 3 {
		r = newRig(t, r.log.crashed(), []QueueDef{durable(7)})
		r.settle()
		want(t, "records", len(r.log.records), n)
	}
}

func TestRecoverComesFirst(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{{ID: 7, Durable: true, AutoDelete: true}})
	o := &owner{}
	r.queue(7).Attach(unlimited(0), &sink{}, func(queue.ConsumerID, error) {})
	publish(r.queue(7), nil, true, "a")
	r.settle()
	r2 := newRig(t, r.log.crashed(), []QueueDef{{ID: 7, Durable: true, AutoDelete: true}})
	r2.reg.SetOwner(o)
	publish(r2.queue(7), nil, true, "b")
	r2.settle()
	var kinds []string
	for _, rec := range r2.log.records {
		cmds, err := queue.DecodeCommands(nil, rec.Meta)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cmds {
			kinds = append(kinds, c.Kind.String())
		}
	}
	want(t, "commands", strings.Join(kinds, " "), "configure session-open attach enqueue recover enqueue")
	want(t, "unused", len(o.unused), 0)
	want(t, "counts", counts(r2, 7), []uint64{2, 0, 0})
}

func TestSnapshotEqualsReplay(t *testing.T) {
	defs := []QueueDef{durable(7)}
	r := newRig(t, newFakeLog(), defs, func(o *replicaOptions, _ *Options) { o.SnapshotEntries = 5 })
	h := r.queue(7)
	s := &sink{}
	c := h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	for i := range uint64(50) {
		publish(h, nil, i%3 != 0, "x")
		if i%4 == 3 {
			h.Settle(c, ids(i, i), queue.Ack)
		}
		r.settle()
	}
	snapshots := 0
	for _, rec := range r.log.records {
		if rec.Kind == seglog.KindSnapshot {
			snapshots++
		}
	}
	if snapshots < 5 {
		t.Fatalf("%d snapshots", snapshots)
	}
	whole := r.log.crashed()
	whole.records = slices.DeleteFunc(slices.Clone(whole.records), func(r seglog.Replayed) bool { return r.Kind == seglog.KindSnapshot })
	whole.stable = len(whole.records)
	state := func(l *fakeLog) string {
		r := newRig(t, l, defs)
		r.settle()
		return string(r.queue(7).host.m.AppendSnapshot(nil))
	}
	if a, b := state(r.log.crashed()), state(whole); a != b {
		t.Fatal("a snapshot and the entries after it give another state than all entries")
	}
}

func TestSnapshotOnDemand(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	r.node.NeedSnapshots([]seglog.GroupID{7, 99})
	r.settle()
	want(t, "records of an empty group", len(r.log.records), 0)
	publish(r.queue(7), nil, true, "a")
	r.settle()
	r.node.NeedSnapshots([]seglog.GroupID{7})
	r.settle()
	last := r.log.records[len(r.log.records)-1]
	want(t, "record", []any{last.Kind, last.Index}, []any{seglog.KindSnapshot, uint64(1)})
}

// Lesson 49: what nobody knows is kept.
func TestOrphansAreKeptUntilDiscarded(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7), durable(8)})
	publish(r.queue(7), nil, true, "a")
	publish(r.queue(8), nil, true, "a")
	r.settle()
	r2 := newRig(t, r.log.crashed(), []QueueDef{durable(8)})
	r2.settle()
	if _, set := r2.log.live[7]; set {
		t.Fatal("the orphan's items were given up")
	}
	want(t, "orphans", len(r2.reg.Orphans()), 1)
	want(t, "orphan", r2.reg.Orphans()[0].ID, seglog.GroupID(7))
	if r2.reg.Discard(8) == nil {
		t.Fatal("a queue in use was discarded")
	}
	if err := r2.reg.Discard(7); err != nil {
		t.Fatal(err)
	}
	r2.settle()
	last := r2.log.records[len(r2.log.records)-1]
	want(t, "record", []any{last.Kind, last.Group}, []any{seglog.KindDrop, seglog.GroupID(7)})
	want(t, "orphans", len(r2.reg.Orphans()), 0)
}

func checkUnavailable(t *testing.T, r *rig, h *Handle, reason string) {
	t.Helper()
	tk := &tickets{}
	publish(h, tk, true, "a")
	var errs []error
	h.Attach(unlimited(0), &sink{}, func(_ queue.ConsumerID, err error) { errs = append(errs, err) })
	h.Get(h.Getter(ConsumerSpec{}, &sink{}), false, func(_ Delivery, _ uint64, _ bool, err error) { errs = append(errs, err) })
	h.Purge(func(_ uint64, err error) { errs = append(errs, err) })
	h.Seal(false, false, func(_ uint64, err error) { errs = append(errs, err) })
	r.settle()
	want(t, "publish", tk.got, []outcome{{1, 1, Refused}})
	want(t, "counted", h.Nacks(), Nacks{Refused: 1})
	errs = append(errs, h.Unavailable())
	want(t, "answers", len(errs), 5)
	for _, err := range errs {
		var e *amqperr.Error
		if !errors.As(err, &e) || e.Code != amqperr.NotFound || !strings.Contains(e.Text, reason) {
			t.Fatalf("answer: %v", err)
		}
	}
}

// A queue whose log is damaged refuses everything, with the reason, until it is given up.
func TestQuarantinedQueueRefuses(t *testing.T) {
	l := newFakeLog()
	l.hits = []seglog.Hit{{Group: 7, Reason: "index gap"}}
	r := newRig(t, l, []QueueDef{durable(7), durable(8)})
	checkUnavailable(t, r, r.queue(7), "index gap")
	publish(r.queue(8), nil, true, "a")
	r.settle()
	want(t, "the other queue", counts(r, 8), []uint64{1, 0, 0})
	h := r.queue(7)
	if err := r.reg.Discard(7); err != nil {
		t.Fatal(err)
	}
	tk := &tickets{}
	publish(h, tk, true, "a")
	r.settle()
	want(t, "afterwards", tk.got, []outcome{{1, 1, Gone}})
	want(t, "record", r.log.records[len(r.log.records)-1].Kind, seglog.KindDrop)
}

// Where the log's lists of groups are lost too, a queue without any record counts as hit; one made later does not.
func TestHitOfUnknownGroups(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	publish(r.queue(7), nil, true, "a")
	r.settle()
	l := r.log.crashed()
	l.hits = []seglog.Hit{{Group: 0, Reason: "lists lost"}}
	r2 := newRig(t, l, []QueueDef{durable(7), durable(8), transient(9)})
	h, err := r2.reg.Create(durable(10))
	if err != nil {
		t.Fatal(err)
	}
	checkUnavailable(t, r2, r2.queue(8), "lists lost")
	for _, h := range []*Handle{r2.queue(7), r2.queue(9), h} {
		if err := h.Unavailable(); err != nil {
			t.Fatalf("queue %d: %v", h.ID(), err)
		}
	}
	want(t, "orphans", len(r2.reg.Orphans()), 0)
	want(t, "told to the log", r2.log.hits[1:], []seglog.Hit{{Group: 8, Reason: "lists lost"}})
}

func TestDamageFoundWhileRunning(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	h := r.queue(7)
	s := &sink{}
	h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	publish(h, nil, true, "a")
	r.settle()
	r.reg.Hit(seglog.Hit{Group: 7, Reason: "bad checksum"})
	r.settle()
	if s.cancelled == nil {
		t.Fatal("the consumer was not cancelled")
	}
	checkUnavailable(t, r, h, "bad checksum")
	n := len(r.log.records)
	r.node.NeedSnapshots([]seglog.GroupID{7})
	r.settle()
	want(t, "records", len(r.log.records), n)
}

// A queue some of whose messages are not in the log any more is quarantined at the start; without that the node would end
// when somebody is to get one. Transient messages need not be there.
func TestMissingMessagesQuarantine(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7), durable(8)})
	for _, id := range []seglog.GroupID{7, 8} {
		publish(r.queue(id), nil, true, "a", "b", "c")
		publish(r.queue(id), nil, false, "t")
		for _, persistent := range []bool{true, false} {
			big := message.Message{Head: []byte("head"), Chunks: [][]byte{[]byte("chunk"), []byte("chunk")}}
			r.queue(id).Publish([]Publish{{Message: big, Persistent: persistent}})
		}
	}
	r.settle()
	l := r.log.crashed()
	delete(l.items[7], 2)
	r2 := newRig(t, l, []QueueDef{durable(7), durable(8)})
	checkUnavailable(t, r2, r2.queue(7), "not in the log")
	r2.settle()
	want(t, "the other queue", counts(r2, 8), []uint64{4, 0, 0})
}

func TestUnreadableEntryQuarantines(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	publish(r.queue(7), nil, true, "a")
	r.settle()
	l := r.log.crashed()
	l.records[0].Meta = []byte{250, 1, 2, 3}
	r2 := newRig(t, l, []QueueDef{durable(7)})
	checkUnavailable(t, r2, r2.queue(7), "")
}
