package queuehost

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"holdfast/internal/amqperr"
	"holdfast/internal/bytecodec"
	"holdfast/internal/clock"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/wire"
)

// loneEntry is a node's entry of a quorum queue whose members are on nodes 2 and 3; the test is those nodes.
type loneEntry struct {
	t     *testing.T
	clock *clock.Manual
	node  *replica.Node
	reg   *Registry
	h     *Handle
	room  int // messages that the path of bodies takes
	sent  []sentTo
}

// sentTo is a message to another node.
type sentTo struct {
	node uint64
	head farHead
	body cut
}

func newLoneEntry(t *testing.T) *loneEntry {
	x := &loneEntry{t: t, clock: clock.NewManual(testTime), room: 1 << 20}
	log := newFakeLog()
	x.node = replica.Open(replica.Options{Log: log, Shards: 1, Clock: x.clock})
	x.reg = New(Options{Log: log, Clock: x.clock, Node: x.node, Link: x, Stepped: true, Incarnation: 1})
	var err error
	if x.h, err = x.reg.CreateQuorum(durable(7), []Member{{ID: 2, Node: 2}, {ID: 3, Node: 3}}); err != nil {
		t.Fatal(err)
	}
	x.node.Prepare()
	x.reg.LinkUp(2, 1)
	x.reg.LinkUp(3, 1)
	x.step()
	return x
}

func (x *loneEntry) Self() uint64 { return 1 }

func (x *loneEntry) Send(node uint64, bulk bool, add func([]byte) []byte) bool {
	if bulk {
		if x.room == 0 {
			return false
		}
		x.room--
	}
	c := newCut(add(nil))
	head, ok := c.head()
	if !ok {
		x.t.Fatal("a message without a head")
	}
	x.sent = append(x.sent, sentTo{node, head, c})
	return true
}

func (x *loneEntry) step() {
	for x.node.Shard(0).Step() {
	}
}

// pass lets time pass.
func (x *loneEntry) pass(d time.Duration) {
	x.clock.Advance(d)
	x.reg.Tick()
	x.step()
}

// asked returns the try that was begun last, and forgets what was sent before it.
func (x *loneEntry) asked() sentTo {
	x.t.Helper()
	for i := len(x.sent) - 1; i >= 0; i-- {
		if m := x.sent[i]; m.head.kind == farResume {
			x.sent = x.sent[i+1:]
			return m
		}
	}
	x.t.Fatal("nobody was asked to resume the session")
	return sentTo{}
}

// tries returns how many have begun, of what is known to be sent.
func (x *loneEntry) tries() (n int) {
	for _, m := range x.sent {
		if m.head.kind == farResume {
			n++
		}
	}
	return n
}

// answer answers a try.
func (x *loneEntry) answer(m sentTo, kind farKind, values ...uint64) {
	head := m.head
	head.kind = kind
	if kind == farResumed {
		room := farHead{kind: farRoom, life: head.life}
		x.reg.Receive(m.node, bytecodec.AppendUints(room.append(nil), 0, 1<<20))
	}
	x.reg.Receive(m.node, bytecodec.AppendUints(head.append(nil), values...))
	x.step()
}

// lose breaks the links, first that to a node.
func (x *loneEntry) lose(node uint64) {
	x.reg.LinkDown(node, io.EOF)
	x.reg.LinkDown(5-node, io.EOF)
	x.step()
}

// A big message whose time is over while its chunks are being sent leaves none of them to the next one.
func TestChunksOfAPublishThatWaitedTooLong(t *testing.T) {
	x := newLoneEntry(t)
	big := func(b byte) message.Message {
		m := message.Message{Head: []byte{b}}
		for range 4 {
			m.Chunks = append(m.Chunks, bytes.Repeat([]byte{b}, 10))
		}
		return m
	}
	tk := &tickets{}
	x.h.Publish([]Publish{{Message: big('a'), Ticket: tk, Seq: 1}})
	x.step()
	x.room = 2
	x.answer(x.asked(), farResumed, 1, 0)
	x.pass(14 * time.Second)
	x.h.Publish([]Publish{{Message: big('b'), Ticket: tk, Seq: 2}})
	x.step()
	if len(x.sent) != 2 {
		t.Fatalf("%d chunks were sent, not 2", len(x.sent))
	}
	x.pass(time.Second)
	if fmt.Sprint(tk.got) != fmt.Sprint([]outcome{{1, 1, Unknown}}) {
		t.Fatalf("told %v", tk.got)
	}
	if n := x.h.Nacks(); n != (Nacks{Unknown: 1}) {
		t.Fatalf("counted %+v", n)
	}
	x.room = 100
	x.reg.Writable(2)
	x.pass(100 * time.Millisecond)
	x.answer(x.asked(), farResumed, 1, 0)
	var body []byte
	for _, m := range x.sent {
		if m.head.kind == farChunk {
			body = append(body, m.body.Rest...)
		}
	}
	if want := bytes.Repeat([]byte("b"), 40); !bytes.Equal(body, want) {
		t.Errorf("the leader has been sent %s, not %s", body, want)
	}
}

// R540: a transaction, or a big message, whose time is over when a part of it is with the leader, is ended there, though nothing else is to be said to it.
func TestWhatIsLeftOfATransactionThatWaitedTooLong(t *testing.T) {
	for name, put := range map[string]func(*Handle, Ticket){
		"a transaction": func(h *Handle, tk Ticket) { transact(h, tk, 1, nil, lots("a", 3, 2*messageSize)...) },
		"a big message": func(h *Handle, tk Ticket) {
			h.Publish([]Publish{{Message: message.Message{Head: []byte("a"), Chunks: [][]byte{{1}, {2}}}, Ticket: tk, Seq: 1}})
		},
		"a message": func(h *Handle, tk Ticket) { publish(h, tk, true, "a") },
	} {
		for _, broken := range []bool{false, true} {
			x := newLoneEntry(t)
			levelTwo(nil, &x.reg.o)
			tk := &tickets{}
			put(x.h, tk)
			x.step()
			first := x.asked()
			x.room = 3
			x.answer(first, farResumed, 1, 0)
			if broken {
				x.lose(first.node)
			}
			x.pass(x.reg.o.Wait)
			if len(tk.got) != 1 || tk.got[0].o != Unknown {
				t.Fatalf("%s: told %v", name, tk.got)
			}
			x.sent, x.room = nil, 100
			if broken {
				x.reg.LinkUp(2, 2)
				x.reg.LinkUp(3, 2)
			}
			x.pass(100 * time.Millisecond)
			tries := x.tries()
			if left := name == "a transaction" || broken && name == "a big message"; !left && tries > 0 {
				t.Errorf("%s, link broken %v: tells the leader %+v", name, broken, x.sent)
				continue
			} else if !left {
				continue
			}
			m := x.asked()
			if epoch := m.body.Uint(); epoch != first.body.Uint()+1 {
				t.Errorf("%s: epoch %d is opened", name, epoch)
			}
			x.answer(m, farResumed, 1, 0)
			x.sent = nil
			x.reg.LinkDown(m.node, io.EOF)
			x.pass(time.Second)
			x.reg.LinkUp(m.node, 3)
			x.pass(time.Second)
			if x.tries() > 0 {
				t.Errorf("%s: tells the leader %+v once it has ended", name, x.sent)
			}
		}
	}
}

// R499: nor is the time over of what was sent to a leader that has an alarm.
func TestPublishesWaitWithPatienceForALeaderWithAnAlarm(t *testing.T) {
	x := newLoneEntry(t)
	tk := &tickets{}
	publish(x.h, tk, true, "a")
	x.step()
	try := x.asked()
	x.answer(try, farResumed, 1, 0)
	x.reg.SetAlarmed(try.node, true)
	for range 5 {
		x.pass(x.reg.o.Wait)
	}
	if len(tk.got) != 0 {
		t.Fatalf("told %v under the alarm", tk.got)
	}
	x.reg.SetAlarmed(try.node, false)
	x.pass(x.reg.o.Wait - 1)
	if len(tk.got) != 0 {
		t.Fatalf("told %v soon after it", tk.got)
	}
	x.pass(time.Second)
	if fmt.Sprint(tk.got) != fmt.Sprint([]outcome{{1, 1, Unknown}}) {
		t.Fatalf("told %v", tk.got)
	}
}

// A leader that does not answer is not asked for ever: another member may know of the next one.
func TestALeaderThatDoesNotAnswer(t *testing.T) {
	x := newLoneEntry(t)
	publish(x.h, &tickets{}, true, "a")
	x.step()
	first := x.asked()
	other := 5 - first.node
	x.answer(first, farElsewhere, other)
	if m := x.asked(); m.node != other {
		t.Fatalf("node %d was asked, not %d, which leads", m.node, other)
	}
	asked := map[uint64]bool{}
	for range 2 {
		x.pass(time.Duration(tryMost))
		asked[x.asked().node] = true
	}
	if !asked[first.node] {
		t.Errorf("only node %d was asked", other)
	}
}

// A queue whose deletion nobody waits for any more does not stay sealed.
func TestSealThatIsAnsweredTooLate(t *testing.T) {
	x := newLoneEntry(t)
	var told []error
	x.h.Seal(false, false, func(_ uint64, err error) { told = append(told, err) })
	x.step()
	x.answer(x.asked(), farResumed, 1, 0)
	x.pass(15 * time.Second)
	if len(told) != 1 || told[0] == nil {
		t.Fatalf("told %v", told)
	}
	x.pass(100 * time.Millisecond)
	var asks []askKind
	for _, m := range x.sent {
		if m.head.kind == farAsk {
			asks = append(asks, m.body.ask().kind)
		}
	}
	if fmt.Sprint(asks) != fmt.Sprint([]askKind{askSeal, askUnseal}) {
		t.Errorf("the leader was asked for %v", asks)
	}
}

// R646: a get whose time is over may have got a message nevertheless, which nobody has heard of. Its getter says what it has as soon as that is possible, so
// that the message goes back, though nobody here has anything else to say to the queue.
func TestGetThatNobodyWaitsForAnyMore(t *testing.T) {
	for name, breaks := range map[string]func(x *loneEntry, at *sentTo){
		"before it is late": func(x *loneEntry, at *sentTo) {
			x.answer(*at, farResumed, 1, 0)
			x.lose(at.node)
			x.pass(x.reg.o.Wait)
		},
		"after that": func(x *loneEntry, at *sentTo) {
			x.answer(*at, farResumed, 1, 0)
			x.pass(x.reg.o.Wait)
			x.lose(at.node)
		},
		"before it was sent": func(x *loneEntry, at *sentTo) {
			x.lose(at.node)
			x.pass(x.reg.o.Wait)
		},
	} {
		x := newLoneEntry(t)
		var told []error
		x.h.Get(x.h.Getter(ConsumerSpec{}, discard{}), false, func(_ Delivery, _ uint64, ok bool, err error) { told = append(told, err) })
		x.step()
		first := x.asked()
		breaks(x, &first)
		if len(told) != 1 || told[0] == nil {
			t.Fatalf("the link breaks %s: told %v", name, told)
		}
		x.sent = nil
		x.reg.LinkUp(2, 2)
		x.reg.LinkUp(3, 2)
		x.pass(time.Second)
		if name == "before it was sent" {
			if x.tries() > 0 {
				t.Errorf("the link breaks %s: tells the leader %+v", name, x.sent)
			}
			continue
		}
		x.answer(x.asked(), farResumed, 1, 0)
		var asks []askKind
		for _, m := range x.sent {
			if m.head.kind == farAsk {
				asks = append(asks, m.body.ask().kind)
			}
		}
		if fmt.Sprint(asks) != fmt.Sprint([]askKind{askGetter}) {
			t.Errorf("the link breaks %s: the leader is asked for %v", name, asks)
		}
	}
}

// A consumer that a queue refuses, since it is being deleted, may have left when it hears of that.
func TestConsumerThatIsRefusedAndHasLeft(t *testing.T) {
	x := newLoneEntry(t)
	var answers []error
	left := false
	id := x.h.Attach(unlimited(1), &sink{}, func(_ queue.ConsumerID, err error) { answers = append(answers, err) })
	x.step()
	m := x.asked()
	x.answer(m, farResumed, 1, 0)
	x.h.Detach(id, func() { left = true })
	x.step()
	head := m.head
	head.kind = farEvent
	var asks []ask
	for _, m := range x.sent {
		if m.head.kind == farAsk {
			asks = append(asks, m.body.ask())
		}
	}
	if len(asks) != 2 {
		t.Fatalf("asked for %+v", asks)
	}
	for _, e := range []event{{kind: eventDetach, consumer: id, req: asks[1].req}, {kind: eventAttached, consumer: id, req: asks[0].req, err: errQueueDeleted}} {
		x.reg.Receive(m.node, e.append(head.append(nil), nil, 0))
		x.step()
	}
	if len(answers) != 1 || answers[0] == nil || !left {
		t.Errorf("answers %v, left %v", answers, left)
	}
}

// Who consumes from a queue that has no leader, and is not its consumer yet, is answered, and not told of an end before.
func TestConsumeWithoutALeader(t *testing.T) {
	x := newLoneEntry(t)
	publish(x.h, &tickets{}, true, "a")
	x.step()
	x.pass(10 * time.Second)
	c := &sink{}
	spec := unlimited(1)
	spec.Arguments = wire.NewTable(map[string]any{cancelArgument: true})
	var answers []error
	x.h.Attach(spec, c, func(_ queue.ConsumerID, err error) { answers = append(answers, err) })
	x.step()
	x.pass(6 * time.Second)
	if len(answers) > 0 || c.cancelled != nil {
		t.Fatalf("answered %v, cancelled %v", answers, c.cancelled)
	}
	x.pass(10 * time.Second)
	if len(answers) != 1 || answers[0] == nil || c.cancelled != nil {
		t.Errorf("answered %v, cancelled %v", answers, c.cancelled)
	}
}

// A consumer that is cancelled before it could be attached again hears nothing of what was asked for it, and is not attached.
func TestACancelledConsumerIsNotAttachedAgain(t *testing.T) {
	for _, known := range []bool{true, false} { // that it was attached
		x := newLoneEntry(t)
		c := &sink{}
		var id queue.ConsumerID
		attached := 0
		id = x.h.Attach(unlimited(1), c, func(queue.ConsumerID, error) { attached++ })
		x.step()
		m := x.asked()
		x.answer(m, farResumed, 1, 0)
		tell := func(e event) {
			head := m.head
			head.kind = farEvent
			x.reg.Receive(m.node, e.append(head.append(nil), nil, 0))
			x.step()
		}
		if known {
			tell(event{kind: eventAttached, consumer: id, req: 1})
			want(t, "attached", attached, 1)
		}
		x.reg.LinkDown(m.node, io.EOF)
		x.step()
		x.reg.LinkUp(m.node, 1)
		x.room = 0
		for range 3 {
			x.h.Credit(id, 1, true)
		}
		left := 0
		x.h.Cancel(id, func() { left++ })
		x.step()
		m = x.asked()
		x.answer(m, farResumed, 1, 0)
		for range 16 {
			x.pass(time.Second)
		}
		want(t, "answers to the cancellation", left, 1)
		c.events = nil
		x.room = 100
		x.reg.Writable(m.node)
		x.step()
		for _, s := range x.sent {
			if a := s.body; s.head.kind == farAsk {
				if a.Uint(); askKind(a.Byte()) == askAttach {
					t.Error("the consumer is attached again")
				}
			}
		}
		tell(event{kind: eventAttached, consumer: id, req: 99, err: amqperr.QueueInUse("/", "q")}) // an answer of before
		want(t, "what it hears", fmt.Sprint(c.events, c.cancelled), "[] <nil>")
	}
}

// A new leader cannot tell whether a consumer that was ended before it led has held something for too long, or was cancelled by its client: the
// answer may be lost. Who has asked for that is not told of a timeout.
func TestCancelledAndTakenForTooSlow(t *testing.T) {
	for _, asks := range []bool{true, false} {
		x := newLoneEntry(t)
		c := &sink{}
		var id queue.ConsumerID
		id = x.h.Attach(unlimited(1), c, func(queue.ConsumerID, error) {})
		x.step()
		m := x.asked()
		x.answer(m, farResumed, 1, 0)
		tell := func(e event) {
			head := m.head
			head.kind = farEvent
			x.reg.Receive(m.node, e.append(head.append(nil), nil, 0))
			x.step()
		}
		tell(event{kind: eventAttached, consumer: id, req: 1})
		left := 0
		if asks {
			x.h.Cancel(id, func() { left++ })
			x.step()
		}
		x.reg.LinkDown(m.node, io.EOF)
		x.step()
		x.reg.LinkUp(m.node, 1)
		x.step()
		m = x.asked()
		x.answer(m, farResumed, 1, 0)
		tell(event{kind: eventCancelled, consumer: id, err: amqperr.DeliveryTimeout(1, 0)})
		if asks {
			want(t, "cancelled", c.cancelled, nil)
			tell(event{kind: eventCancel, consumer: id, req: 2})
			want(t, "answers to the cancellation", left, 1)
		} else if !IsDeliveryTimeout(c.cancelled) {
			t.Errorf("cancelled: %v", c.cancelled)
		}
	}
}

// Credit that waits for room behind an attach of again is sent however long that takes.
func TestCreditWaitsForRoom(t *testing.T) {
	x := newLoneEntry(t)
	id := x.h.Attach(unlimited(1), &sink{}, func(queue.ConsumerID, error) {})
	x.step()
	m := x.asked()
	x.answer(m, farResumed, 1, 0)
	head := m.head
	head.kind = farEvent
	x.reg.Receive(m.node, (&event{kind: eventAttached, consumer: id, req: 1}).append(head.append(nil), nil, 0))
	x.step()
	x.reg.LinkDown(m.node, io.EOF)
	x.step()
	x.reg.LinkUp(m.node, 1)
	x.step()
	x.room = 1
	m = x.asked()
	x.answer(m, farResumed, 1, 0)
	want(t, "room", x.room, 0)
	x.h.Credit(id, 1, true)
	x.step()
	for range 20 {
		x.pass(time.Second)
	}
	x.sent, x.room = nil, 100
	x.reg.Writable(m.node)
	x.step()
	for _, s := range x.sent {
		if a := s.body; s.head.kind == farAsk {
			if a.Uint(); askKind(a.Byte()) == askCredit {
				return
			}
		}
	}
	t.Error("the credit was not sent")
}
