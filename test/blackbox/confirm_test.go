package blackbox

import (
	"context"
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/raw"
)

// R84 R85 R86 R247 R248: confirms come without a consumer, each number once, in
// sequence or by multiple, and what was confirmed is there.
// R239: the publisher does not wait, and knows of each message what became of it.
func TestConfirms(t *testing.T) { onEachType(t, testConfirms) }

func testConfirms(t *testing.T, kind string) {
	const n = 1000
	s := frames(t)
	setup := open(t)
	q := queueOf(t, setup, kind)
	must(s.Call(1, raw.ConfirmSelect, raw.ConfirmSelectOk, raw.Bits{false}))(t)
	sent := make(chan error, 1)
	go func() {
		var err error
		for i := 0; err == nil && i < n; i++ {
			persistent := []byte{0x10, 0, byte(1 + i%2)}
			err = s.Publish(1, "", q, persistent, []byte(fmt.Sprint(i)))
		}
		sent <- err
	}()
	confirmed := map[uint64]bool{}
	var highest uint64
	for len(confirmed) < n {
		a := must(s.Expect(1, raw.BasicAck))(t)
		tag, multiple := a.U64(), a.U8()&1 == 1
		if tag == 0 || tag > n || confirmed[tag] {
			t.Fatalf("%d confirmed twice or never sent", tag)
		}
		confirmed[tag] = true
		for i := uint64(1); multiple && i < tag; i++ {
			confirmed[i] = true
		}
		highest = max(highest, tag)
	}
	ok(t, <-sent)
	equal(t, "highest", highest, n)
	equal(t, "messages", depth(t, setup, q), n)
}

// R84: confirm.select again changes nothing; the count goes on.
func TestConfirmSelectTwice(t *testing.T) {
	t.Parallel()
	s := frames(t)
	q := privateQueue(t, s)
	for want := range uint64(3) {
		must(s.Call(1, raw.ConfirmSelect, raw.ConfirmSelectOk, raw.Bits{false}))(t)
		ok(t, s.Publish(1, "", q, raw.NoProperties, nil))
		a := must(s.Expect(1, raw.BasicAck))(t)
		equal(t, "tag", a.U64(), want+1)
	}
}

// Confirms and transactions exclude each other on a channel.
func TestConfirmOrTx(t *testing.T) {
	t.Parallel()
	ch := open(t)
	ok(t, ch.Confirm(false))
	refused(t, ch.Tx(), 406)
	ch = open(t)
	ok(t, ch.Tx())
	refused(t, ch.Confirm(false), 406)
}

// R87 R93 T32: fanout to several queues is one confirm.
func TestConfirmOfFanout(t *testing.T) { onEachType(t, testConfirmOfFanout) }

func testConfirmOfFanout(t *testing.T, kind string) {
	ch := confirming(t)
	x := exchange(t, ch, "fanout", nil)
	for range 3 {
		ok(t, ch.QueueBind(queueOf(t, ch, kind), "", x, false, nil))
	}
	ok(t, ch.QueueBind(must(ch.QueueDeclare("", false, true, true, false, nil))(t).Name, "", x, false, nil))
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, 10))
	send(t, ch, x, "", "one", "two")
	for want := range uint64(2) {
		c := <-confirms
		equal(t, "tag", c.DeliveryTag, want+1)
		equal(t, "ack", c.Ack, true)
	}
	settled(t, ch)
	equal(t, "further confirms", len(confirms), 0)
}

// T32: a queue deleted while its publishes are unconfirmed counts as done.
func TestConfirmOfDeletedQueue(t *testing.T) { onEachType(t, testConfirmOfDeletedQueue) }

func testConfirmOfDeletedQueue(t *testing.T, kind string) {
	if kind == "quorum" && pick(t, "quorum-deleted", true, false) {
		t.Skip("some are nacked")
	}
	ch, other := confirming(t), open(t)
	q := queueOf(t, ch, kind)
	var waits []*amqp.DeferredConfirmation
	for i := range 400 {
		d, err := ch.PublishWithDeferredConfirm("", q, false, false, amqp.Publishing{DeliveryMode: 2, Body: make([]byte, 1000)})
		ok(t, err)
		waits = append(waits, d)
		if i == 200 {
			must(other.QueueDelete(q, false, false, false))(t)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), raw.Wait)
	defer cancel()
	for i, d := range waits {
		acked, err := d.WaitContext(ctx)
		ok(t, err)
		if !acked {
			t.Fatalf("publish %d was nacked", i)
		}
	}
}

// R85: a confirm does not wait for a consumer, held messages included.
func TestConfirmBeforeConsumption(t *testing.T) { onEachType(t, testConfirmBeforeConsumption) }

func testConfirmBeforeConsumption(t *testing.T, kind string) {
	ch := open(t)
	q := queueOf(t, ch, kind)
	in := consume(t, ch, q)
	put(t, q, "confirmed while held")
	next(t, in)
	put(t, q, "so is the next")
}

// R95: all four kinds of queue and message are confirmed.
func TestConfirmOfEveryKind(t *testing.T) {
	t.Parallel()
	ch := open(t)
	for _, durable := range []bool{true, false} {
		for _, mode := range []uint8{0, 1, 2} {
			q := must(ch.QueueDeclare(name(t), durable, false, false, false, nil))(t).Name
			removeQueue(t, q)
			publish(t, "", q, amqp.Publishing{DeliveryMode: mode, Body: []byte("x")})
			equal(t, "delivery mode", get(t, ch, q, true).DeliveryMode, mode)
		}
	}
}

// R260: producer and consumer need not be there at the same time, and order
// holds from publish to delivery.
func TestOrder(t *testing.T) { onEachType(t, testOrder) }

func testOrder(t *testing.T, kind string) {
	const n = 2000
	ch := confirming(t)
	q := queueOf(t, ch, kind)
	var last *amqp.DeferredConfirmation
	for i := range n {
		mode := uint8(1 + i%2)
		last = must(ch.PublishWithDeferredConfirm("", q, false, false, amqp.Publishing{DeliveryMode: mode, Body: []byte(fmt.Sprint(i))}))(t)
	}
	last.Wait()
	in := must(open(t).Consume(q, "", true, false, false, false, nil))(t)
	for i := range n {
		equal(t, "body", string(next(t, in).Body), fmt.Sprint(i))
	}
}

// A publisher that keeps sending is slowed down, not disconnected, and nothing
// is lost, when nobody reads the queue.
func TestBacklog(t *testing.T) {
	t.Parallel()
	const n, size = 300, 100_000
	ch := open(t)
	q := must(ch.QueueDeclare(name(t), false, false, false, false, nil))(t).Name
	removeQueue(t, q)
	body := string(make([]byte, size))
	for range n {
		send(t, ch, "", q, body)
	}
	eventually(t, "all there", func() bool { return depth(t, ch, q) == n })
	in := must(ch.Consume(q, "", true, false, false, false, nil))(t)
	for range n {
		equal(t, "size", len(next(t, in).Body), size)
	}
}

// R84: different channels have their own numbers.
func TestConfirmNumbersPerChannel(t *testing.T) {
	t.Parallel()
	s := frames(t)
	ok(t, s.OpenChannel(2))
	q := privateQueue(t, s)
	for _, ch := range []uint16{1, 2} {
		must(s.Call(ch, raw.ConfirmSelect, raw.ConfirmSelectOk, raw.Bits{false}))(t)
		ok(t, s.Publish(ch, "", q, raw.NoProperties, nil))
		a := must(s.Expect(ch, raw.BasicAck))(t)
		equal(t, "tag", a.U64(), 1)
	}
}

// T38: flow can be asked for, not switched off.
func TestChannelFlow(t *testing.T) {
	t.Parallel()
	s := frames(t)
	a := must(s.Call(1, raw.ChannelFlow, raw.ChannelFlowOk, raw.Bits{true}))(t)
	equal(t, "active", a.U8(), 1)
	ok(t, s.Send(1, raw.ChannelFlow, raw.Bits{false}))
	faults(t, s, connFault, 540)
}

// A publish as the last thing before channel or connection close is not lost.
func TestPublishThenClose(t *testing.T) { onEachType(t, testPublishThenClose) }

func testPublishThenClose(t *testing.T, kind string) {
	ch := open(t)
	q := queueOf(t, ch, kind)
	s := frames(t)
	ok(t, s.Publish(1, "", q, raw.NoProperties, []byte("channel")))
	must(s.Call(1, raw.ChannelClose, raw.ChannelCloseOk, uint16(200), "", uint16(0), uint16(0)))(t)
	ok(t, s.OpenChannel(1))
	ok(t, s.Publish(1, "", q, raw.NoProperties, []byte("connection")))
	must(s.Call(0, raw.ConnectionClose, raw.ConnectionCloseOk, uint16(200), "", uint16(0), uint16(0)))(t)
	eventually(t, "both there", func() bool { return depth(t, ch, q) == 2 })
}
