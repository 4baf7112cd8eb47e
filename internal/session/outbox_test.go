package session

import (
	"testing"
	"testing/synctest"

	"holdfast/internal/broker"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
	"holdfast/internal/wire"
)

// collector is a consumer that keeps what it gets.
type collector chan broker.Delivery

func (c collector) Deliver(ds []broker.Delivery) {
	for _, d := range ds {
		c <- d
	}
}
func (collector) Cancelled(error) {}
func (collector) Drained(uint32)  {}
func (collector) Wake()           {}

// What will never be written keeps nothing on the disk, and nobody waits for it,
// whether it was put before the end or after it.
func TestTheEndLetsGoOfEverything(t *testing.T) {
	r := newRig(t, spills)
	r.spilled(t, "one", "two", "three", "four")
	got := make(collector, 4)
	for h := range r.queues.All() {
		h.Attach(queuehost.ConsumerSpec{NoAck: true, Credit: queuehost.Unlimited}, got, func(queue.ConsumerID, error) {})
	}
	o := &outbox{wake: make(chan struct{}, 1)}
	h := &holder{ch: &channel{number: 1}}
	put := func() (tagged chan struct{}) {
		tagged = make(chan struct{})
		o.deliver(h, []broker.Delivery{<-got})
		o.got(h, <-got, 0, tagged)
		o.confirm(h.ch)
		o.method(h.ch, &wire.BasicQosOk{})
		return tagged
	}
	before := put()
	if n := r.spill.Stats().Blocks; n == 0 || len(o.batch.items) != 3 || len(o.batch.confirms) != 1 {
		t.Fatalf("%d blocks, %d items, %d confirms", n, len(o.batch.items), len(o.batch.confirms))
	}
	o.close()
	after := put()
	for when, tagged := range map[string]chan struct{}{"before": before, "after": after} {
		select {
		case <-tagged:
		default:
			t.Errorf("who waits for a tag since %s the end waits for ever", when)
		}
	}
	if b := &o.batch; len(b.items)+len(b.raw)+len(b.confirms) != 0 {
		t.Errorf("a closed outbox takes %d items, %d bytes, %d confirms", len(b.items), len(b.raw), len(b.confirms))
	}
	r.noBlocks(t, 0)
}

// Who is to wait until the client has read waits until there is room again, no
// longer and no less, and not at all after the end.
func TestRoomOfTheOutbox(t *testing.T) {
	o := &outbox{wake: make(chan struct{}, 1)}
	waits := func(room <-chan struct{}) bool {
		select {
		case <-room:
			return false
		default:
			return room != nil
		}
	}
	answer := func(n int) {
		o.encoded(itemRaw, nil, func(dst []byte) []byte { return append(dst, make([]byte, n)...) })
	}
	answer(fullBytes - 1)
	if waits(o.full()) {
		t.Error("it is full too early")
	}
	answer(11)
	room := o.full()
	o.written(10)
	if !waits(room) || !waits(o.full()) {
		t.Error("there is room too early")
	}
	o.written(1)
	if waits(room) || waits(o.full()) {
		t.Error("there is room, and who waits is not told")
	}
	o.written(1) // once is enough
	o.got(&holder{}, broker.Delivery{Message: build(10)}, 0, nil)
	if room = o.full(); !waits(room) {
		t.Error("it is not full a second time")
	}
	o.close()
	if waits(room) || waits(o.full()) {
		t.Error("the end lets somebody wait")
	}
}

// Who goes on with what another began to write sleeps when that is done.
func TestTheWriterSleepsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &outbox{wake: make(chan struct{}, 1)}
		o.park(true)
		<-o.wake
		rounds, b := 0, batch{}
		go func() {
			for o.swap(&b, true) {
				if rounds++; rounds == 1 && len(b.items) > 0 || rounds > 1 && len(b.items) != 1 {
					t.Errorf("round %d has %d items", rounds, len(b.items))
					return
				}
				b.reset()
			}
		}()
		for i := range 3 {
			synctest.Wait()
			if rounds != i+1 || !o.parked {
				t.Fatalf("%d rounds for %d; the writer sleeps: %v", rounds, i+1, o.parked)
			}
			o.heartbeat()
		}
		synctest.Wait()
		o.close()
	})
}

// A burst's memory is kept for the next one, until there has been none for long.
func TestMemoryOfABurst(t *testing.T) {
	b := &batch{}
	burst := func() {
		b.items = append(b.items, make([]item, 100)...)
		b.reset()
	}
	small := func(n int) {
		for range n {
			b.items = append(b.items, item{ch: &channel{}, holder: &holder{}})
			b.confirms = append(b.confirms, &channel{})
			b.raw = append(b.raw, 1)
			b.reset()
		}
	}
	burst()
	small(64)
	if cap(b.items) < 100 {
		t.Error("a burst's memory is not kept")
	}
	if len(b.items)+len(b.raw)+len(b.confirms) != 0 || b.items[:1][0].holder != nil || b.confirms[:1][0] != nil {
		t.Error("what was written is held")
	}
	burst()
	small(64)
	if cap(b.items) < 100 {
		t.Error("the memory of a second burst is not kept")
	}
	small(2)
	if cap(b.items) >= 100 {
		t.Error("a burst's memory is kept for ever")
	}
}
