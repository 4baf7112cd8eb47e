package queuehost

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"holdfast/internal/amqperr"
	"holdfast/internal/bytecodec"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/wire"
)

func testSpec() ConsumerSpec {
	return ConsumerSpec{
		Tag: "tag", Prefetch: 3, NoAck: true, Wake: true, Credit: Unlimited, Priority: -5,
		Node: 9, Connection: 1 << 40, Channel: 65535, Arguments: wire.NewTable(map[string]any{"x-priority": int32(-5)}),
	}
}

func TestFarMessagesAsTheyAreRead(t *testing.T) {
	h := farHead{farPublish, life{3, 1 << 50}, 77, 9}
	c := newCut(append(h.append(nil), "rest"...))
	got, ok := c.head()
	want(t, "head", []any{got, ok, string(c.Rest)}, []any{h, true, "rest"})

	asks := []ask{
		{kind: askAttach, after: 5, req: 1, consumer: 2, resume: 8, spec: testSpec()},
		{kind: askGetter, req: 2, consumer: 3},
		{kind: askSeal, req: 3, flag: true, flag2: true},
		{kind: askCredit, consumer: 4, n: Unlimited, flag: true},
		{kind: askBarrier, after: 1 << 60, req: 1 << 60},
	}
	for _, a := range asks {
		c := newCut(a.append(nil))
		want(t, "ask", c.ask(), a)
		want(t, "ended", c.ended(), true)
	}

	for _, o := range []op{
		{kind: opSettle, how: queue.Discard, consumer: 7, first: 5, last: 1 << 60},
		{kind: opSettle, how: Return, consumer: 7, first: 5, last: 5},
		{kind: opSettle, how: Decline, consumer: 7, first: 6, last: 7},
		{kind: opCredit, consumer: 7, n: 9, flag: true},
		{kind: opCredit, consumer: 8, n: Unlimited},
	} {
		c := newCut(appendUrgent(nil, &o))
		want(t, "urgent", c.urgent(), o)
		want(t, "ended", c.ended(), true)
	}

	for _, e := range []error{
		nil, errQueueAbsent, errQueueDeleted, errors.New("any"), amqperr.NoQueue("/", "q"), amqperr.QueueUnavailable("/", "q", "any"), amqperr.Shutdown(),
	} {
		ev := event{kind: eventAttached, consumer: 1 << 40, req: 2, n: 3, err: e}
		c := newCut(ev.append(nil, nil, 0))
		got := c.event()
		want(t, "ended", c.ended(), true)
		if e != nil && got.err.Error() != e.Error() || !reflect.DeepEqual(got, ev) {
			t.Fatalf("event with error %v: %v", e, got)
		}
		if errors.Is(got.err, amqperr.ErrNoQueue) != errors.Is(e, amqperr.ErrNoQueue) {
			t.Errorf("it is not the same any more: %v", e)
		}
	}

	d := Delivery{ID: 1 << 50, Redelivered: true, Count: 20}
	ev := event{kind: eventGot, consumer: 4, req: 5, n: 6, ok: true, d: d}
	c = newCut(ev.append(nil, []byte("head"), 2))
	got2 := c.event()
	got2.d = Delivery{}
	chunks := [][]byte{[]byte("of another"), []byte("a"), []byte("b")}
	c.delivery(&got2.d, &chunks)
	d.Message = message.Message{Head: []byte("head"), Chunks: [][]byte{[]byte("a"), []byte("b")}}
	ev.d = d
	want(t, "got", got2, ev)
	want(t, "chunks left", len(chunks), 0)

	for _, a := range []answer{
		{kind: answerCount, req: 1, n: 5, err: amqperr.QueueInUse("/", "q")},
		{kind: answerTotals, req: 1 << 60, n: 5, m: 1 << 60},
		{kind: answerListed, req: 3, listed: []ConsumerInfo{{ID: 4, Spec: testSpec(), Unacked: 9, Is: SingleActive}, {ID: 5}}},
		{kind: answerListed, req: 3},
		{kind: answerBarrier, n: uint64(Gone)},
		{kind: answerExplained, explained: Explanation{Stats: Stats{Delayed: 1 << 50}, BlockedBy: "disk", Lines: []string{"one"}}},
		{kind: answerExplained, explained: Explanation{
			Stats: Stats{Ready: 1, Unacked: 2, Consumers: 3, Published: 4, Delivered: 5, Acked: 6, Redelivered: 7,
				Gets: 8, GetsEmpty: 9, BodiesInMemory: 10, BodiesSpilled: 11, Unstable: 12},
			OldestUnacked: time.Hour, BlockedBy: "disk", Lines: []string{"one", "", "two"},
		}},
	} {
		c := newCut(a.append(nil))
		want(t, "answer", c.answer(), a)
		want(t, "ended", c.ended(), true)
	}

	r := outcomes{first: 3, last: 1 << 60, o: Unknown}
	c = newCut(r.append(nil))
	want(t, "outcomes", c.outcomes(), r)
}

func TestPublishesAsTheyAreRead(t *testing.T) {
	tk := &tickets{}
	ps := []Publish{
		{Message: text("a"), Persistent: true, Ticket: tk},
		{Message: text(""), Carried: true},
		{Message: message.Message{Head: []byte("big"), Chunks: [][]byte{[]byte("1"), []byte("2")}}, Ticket: tk},
		{Message: text("s"), Screen: &Screen{Exchange: 1<<64 - 1, Window: queue.Most(0), Keys: 1}},
		{Message: text("t"), Carried: true, Persistent: true, Screen: &Screen{Exchange: 7, Keys: 1 << 40}},
	}
	var b []byte
	for i := range ps {
		b = appendPublish(b, &ps[i])
	}
	chunks := ps[2].Message.Chunks
	c := newCut(b)
	for i := range ps {
		var p Publish
		c.publish(&p, &chunks)
		want(t, "head", string(p.Message.Head), string(ps[i].Message.Head))
		want(t, "flags", []bool{p.Persistent, !p.Unhurried, p.Carried}, []bool{ps[i].Persistent, ps[i].Ticket != nil, ps[i].Carried})
		want(t, "screen", p.Screen, ps[i].Screen)
		want(t, "chunks", len(p.Message.Chunks), len(ps[i].Message.Chunks))
	}
	want(t, "ended", c.ended(), true)
	c = newCut(b)
	for i := range ps {
		size, chunked := c.skipPublish()
		want(t, "size of one that is left out", size, int64(len(ps[i].Message.Head)))
		want(t, "in chunks", chunked, len(ps[i].Message.Chunks) > 0)
	}
	want(t, "all are left out", c.ended(), true)
	for _, s := range []*Screen{{Exchange: 0, Keys: 1}, {Exchange: 1, Keys: 0}} {
		c := newCut(appendPublish(nil, &Publish{Message: text("a"), Screen: s}))
		c.publish(new(Publish), &chunks)
		want(t, "a screen that makes no sense", c.Bad(), true)
	}
	c = newCut(b)
	var p Publish
	few := [][]byte{[]byte("1")}
	for range ps {
		c.publish(&p, &few)
	}
	want(t, "with a chunk missing", c.Bad(), true)
}

// FuzzFarMessages gives any bytes to both sides: nothing panics, and nothing is
// taken for a message that cannot be written the same way again.
func FuzzFarMessages(f *testing.F) {
	r := newFarRig(f, newFakeLog(), []QueueDef{transient(7)})
	l := life{1, r.reg.home(homeNode).epoch}
	for kind := range farAnswer + 2 {
		f.Add(farHead{kind, l, 7, 0}.append(nil))
		f.Add(append(farHead{kind, l, 7, 0}.append(nil), 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
	}
	spec := testSpec()
	a := ask{kind: askAttach, req: 1, consumer: 1, spec: spec}
	f.Add(a.append(farHead{farAsk, l, 7, 0}.append(nil)))
	x := answer{kind: answerListed, req: 1, listed: []ConsumerInfo{{ID: 1, Spec: spec}}}
	f.Add(x.append(farHead{farAnswer, l, 7, 0}.append(nil)))
	for _, by := range []*Screen{nil, {Exchange: 3, Keys: 5}} {
		p := Publish{Message: text("body"), Persistent: true, Screen: by}
		f.Add(appendPublish(bytecodec.AppendUints(farHead{farPublish, l, 7, 0}.append(nil), 0, 1), &p))
		f.Add(appendPublish(bytecodec.AppendUints(farHead{farBehind, l, 7, 0}.append(nil), 1, 0, 1), &p))
	}
	o := op{kind: opSettle, consumer: 1, first: 1, last: 9}
	f.Add(appendUrgent(bytecodec.AppendUints(farHead{farUrgent, l, 7, 0}.append(nil), 1), &o))
	f.Fuzz(func(t *testing.T, msg []byte) {
		r := newFarRig(t, newFakeLog(), []QueueDef{transient(7)})
		h := r.queue(7)
		s := &sink{}
		h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
		g := h.Getter(ConsumerSpec{}, s)
		tk := &tickets{}
		publish(h, tk, false, "a", "b")
		r.step()
		gets := 0
		h.Get(g, false, func(Delivery, uint64, bool, error) { gets++ })
		h.Count(func(uint64, uint64, error) { gets++ })
		r.entry.Shard(0).Step()
		r.home.Receive(entryNode, msg)
		r.reg.Receive(homeNode, msg)
		r.step()
		r.net.cut(entryNode, homeNode)
		r.step()
		want(t, "answers", gets, 2)
		want(t, "in flight", []int64{r.reg.pool.used.Load()}, []int64{0})

		c := newCut(msg)
		if head, ok := c.head(); ok {
			again := newCut(head.append(nil))
			if same, ok := again.head(); !ok || same != head {
				t.Fatalf("%v is read back as %v", head, same)
			}
		}
		for _, read := range []func(*cut) func([]byte) []byte{
			func(c *cut) func([]byte) []byte { v := c.ask(); return v.append },
			func(c *cut) func([]byte) []byte { v := c.answer(); return v.append },
			func(c *cut) func([]byte) []byte { v := c.outcomes(); return v.append },
			func(c *cut) func([]byte) []byte {
				v := c.urgent()
				return func(dst []byte) []byte { return appendUrgent(dst, &v) }
			},
			func(c *cut) func([]byte) []byte {
				v := c.event()
				v.ok = v.ok && v.kind != eventGot
				return func(dst []byte) []byte { return v.append(dst, nil, 0) }
			},
		} {
			c := newCut(c.Rest)
			if write := read(&c); c.ended() {
				b := write(nil)
				back := newCut(b)
				if again := read(&back)(nil); !back.ended() || string(again) != string(b) {
					t.Fatalf("%x is read back as %x", b, again)
				}
			}
		}
	})
}
