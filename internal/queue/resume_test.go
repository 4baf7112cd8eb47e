package queue

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// sentKey names one delivery.
type sentKey struct {
	consumer ConsumerID
	id       uint64
}

// single returns a Deliver of one of the messages of e, as it would stand alone: what does not belong to the message
// is left out.
func single(e *Effect, n Number) Effect {
	x := *e
	x.Delivery += uint64(n - e.First)
	x.First, x.Last = n, n
	x.Command, x.Left = 0, 0
	return x
}

// remember notes the deliveries of an entry as they were sent.
func (mod *model) remember(fx *Effects) {
	for i := range fx.List {
		e := &fx.List[i]
		if e.Kind != Deliver {
			continue
		}
		for n := e.First; n <= e.Last; n++ {
			x := single(e, n)
			mod.sent[sentKey{x.Consumer, x.Delivery}] = x
		}
	}
}

// compareRedeliver checks that Redeliver gives exactly what a consumer holds above an id, as it was sent at first,
// in order, in as few effects as that takes.
func compareRedeliver(t *testing.T, m *Machine, mod *model, con ConsumerID, above uint64) {
	t.Helper()
	fx := &Effects{command: 7}
	// What stands in the list already is left alone, whatever it is.
	fx.List = append(fx.List, Effect{Kind: Deliver, Consumer: con, First: 1, Last: 1, Delivery: above})
	earlier := fx.List[0]
	m.Redeliver(con, above, fx)
	if !reflect.DeepEqual(fx.List[0], earlier) {
		t.Errorf("an earlier effect became %+v", fx.List[0])
	}

	var want []Effect
	c := mod.consumer(con)
	if c != nil {
		for _, x := range mod.heldBy(c) {
			if x.id > above {
				want = append(want, mod.sent[sentKey{con, x.id}])
			}
		}
	}
	var got []Effect
	list := fx.List[1:]
	for i := range list {
		e := &list[i]
		if e.Kind != Deliver || e.Last < e.First || e.Command != 0 {
			t.Errorf("redelivered: %+v", *e)
			return
		}
		left := uint64(0)
		if c.getter {
			left = uint64(len(mod.ready()))
		}
		if e.Left != left {
			t.Errorf("redelivered with %d left, want %d", e.Left, left)
		}
		for n := e.First; n <= e.Last; n++ {
			got = append(got, single(e, n))
		}
		if i == 0 || c.getter || len(e.Chunks) > 0 {
			continue
		}
		p := &list[i-1]
		if p.Last+1 == e.First && p.attr == e.attr && p.Delivery+uint64(e.First-p.First) == e.Delivery {
			t.Errorf("redelivered apart: %+v and %+v", *p, *e)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("redelivered to %d above %d:\n%+v\nwant\n%+v", con, above, got, want)
	}
}

// compareResume compares what a new leader asks: the sessions, their consumers, and what these hold.
func compareResume(t *testing.T, m *Machine, mod *model) {
	t.Helper()
	var sessions, wantSessions []SessionInfo
	var refs, wantRefs []ConsumerRef
	m.Sessions(func(s SessionInfo) {
		sessions = append(sessions, s)
		m.ConsumersOf(s.ID, func(c ConsumerRef) { refs = append(refs, c) })
	})
	last := ConsumerID(0)
	for _, id := range sorted(mod.sessions) {
		s := mod.sessions[id]
		wantSessions = append(wantSessions, SessionInfo{id, s.node, s.incarnation, s.suspect, s.epoch, s.lastSeq, s.closed})
		for _, c := range mod.consumers {
			last = max(last, c.id)
			if c.session == id {
				wantRefs = append(wantRefs, ConsumerRef{c.id, c.outer, c.getter, c.cancelled, c.delivered, uint64(mod.count(c)), c.timeout})
			}
		}
	}
	if !slices.Equal(sessions, wantSessions) || !slices.Equal(refs, wantRefs) {
		t.Errorf("sessions\n%+v, consumers %+v\nwant\n%+v, consumers %+v", sessions, refs, wantSessions, wantRefs)
	}
	if m.LastConsumer() != last {
		t.Errorf("last consumer %d, want %d", m.LastConsumer(), last)
	}
	before := m.AppendSnapshot(nil)
	for _, c := range mod.consumers {
		compareRedeliver(t, m, mod, c.id, 0)
		if c.delivered > 0 {
			compareRedeliver(t, m, mod, c.id, c.delivered-min(c.delivered, uint64(mod.now)%5))
		}
	}
	compareRedeliver(t, m, mod, last+1, 0)
	if !bytes.Equal(before, m.AppendSnapshot(nil)) {
		t.Errorf("what only asks has changed the state")
	}
}

// Redeliver gives all that is held above any id, also where checkouts are many and far apart, so that they lie in several
// pages, some of them squeezed.
func TestRedeliverEverywhere(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	for range 20 {
		rig := newRig(attach(1, false))
		n := uint64(1 + r.IntN(2000))
		for left := n; left > 0; {
			k := min(left, 1+r.Uint64N(400))
			rig.apply(Command{Kind: Enqueue, Count: uint32(k), Persistent: true})
			left -= k
		}
		held := make([]bool, n+1)
		for id := range held {
			held[id] = id > 0
		}
		for range r.IntN(300) {
			first := 1 + r.Uint64N(n)
			last := min(n, first+r.Uint64N(30))
			rig.apply(Command{Kind: Settle, Session: 1, Consumer: 1, First: first, Last: last})
			for id := first; id <= last; id++ {
				held[id] = false
			}
		}
		for _, above := range []uint64{0, 1, 62, 63, 64, 65, 127, 128, n - 1, n, n + 1, r.Uint64N(n + 1), r.Uint64N(n + 1), ^uint64(0)} {
			fx := &Effects{}
			rig.m.Redeliver(1, above, fx)
			at := 0
			for id := uint64(1); id <= n; id++ {
				if !held[id] || id <= above {
					continue
				}
				if at == len(fx.List) {
					t.Fatalf("of %d, above %d: %d is missing", n, above, id)
				}
				e := &fx.List[at]
				if offset := id - e.Delivery; id < e.Delivery || e.First+Number(offset) != Number(id) {
					t.Fatalf("of %d, above %d: %d comes as %v from %d on", n, above, id, e.Numbers(), e.Delivery)
				}
				if e.Last == Number(id) {
					at++
				} else if !held[id+1] {
					t.Fatalf("of %d, above %d: %d comes and is not held", n, above, id+1)
				}
			}
			if at != len(fx.List) {
				t.Fatalf("of %d, above %d: too much: %+v", n, above, fx.List[at:])
			}
		}
	}
}

// What a new leader asks costs no memory, but for the list of effects.
func TestResumeAllocatesNothing(t *testing.T) {
	r := filled(10_000, true)
	r.apply(attach(1, false))
	fx := &Effects{}
	n := 0
	if got := testing.AllocsPerRun(100, func() {
		fx.Reset()
		r.m.Redeliver(1, 100, fx)
		r.m.Sessions(func(s SessionInfo) { r.m.ConsumersOf(s.ID, func(ConsumerRef) { n++ }) })
	}); got > 1 {
		t.Errorf("%v allocations", got)
	}
}

// Of a million held, the ones above an id are found without a look at those below.
func BenchmarkRedeliver(b *testing.B) {
	r := filled(1_000_000, true)
	r.apply(attach(1, false))
	fx := &Effects{}
	for _, n := range []uint64{1, 1000, 1_000_000} {
		b.Run(fmt.Sprintf("messages=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				fx.Reset()
				r.m.Redeliver(1, 1_000_000-n, fx)
			}
			perMessage(b, int(n))
		})
	}
}
