package blackbox

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/raw"
)

// R4 R10 R104: delivered is unacked until the ack; acked is gone for good.
func TestAck(t *testing.T) { onEachType(t, testAck) }

func testAck(t *testing.T, kind string) {
	ch := open(t)
	q := queueOf(t, ch, kind)
	put(t, q, "x")
	d := next(t, consume(t, ch, q))
	equal(t, "redelivered", d.Redelivered, false)
	equal(t, "ready while unacked", depth(t, ch, q), 0)
	ok(t, d.Ack(false))
	settled(t, ch)
	ok(t, ch.Close())
	empty(t, open(t), q)
}

// R9: multiple covers all outstanding tags up to the given one on that channel
// and no others; nack has it too (R106).
func TestMultiple(t *testing.T) { onEachType(t, testMultiple) }

func testMultiple(t *testing.T, kind string) {
	for what, settle := range map[string]func(d amqp.Delivery) error{
		"ack":  func(d amqp.Delivery) error { return d.Ack(true) },
		"nack": func(d amqp.Delivery) error { return d.Nack(true, false) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := dial(t)
			one, two := channel(t, c), channel(t, c)
			q, other := queueOf(t, one, kind), queueOf(t, one, kind)
			put(t, q, "1", "2", "3", "4", "5")
			put(t, other, "other channel")
			next(t, consume(t, two, other))
			in := consume(t, one, q)
			var got []amqp.Delivery
			for range 5 {
				got = append(got, next(t, in))
			}
			ok(t, got[1].Ack(false))
			ok(t, settle(got[3]))
			settled(t, one)
			ok(t, one.Close())
			ok(t, two.Close())
			ch := open(t)
			equal(t, "left", depth(t, ch, q), 1)
			equal(t, "which", string(get(t, ch, q, true).Body), "5")
			equal(t, "other channel's", depth(t, ch, other), 1)
		})
	}
}

// T14 T15: settling what is not there to settle is a fault of the channel.
func TestSettleFaults(t *testing.T) { onEachType(t, testSettleFaults) }

func testSettleFaults(t *testing.T, kind string) {
	setup := open(t)
	type settle struct {
		id   raw.ID
		args []any
	}
	ack := func(tag uint64, multiple bool) settle { return settle{raw.BasicAck, []any{tag, raw.Bits{multiple}}} }
	nack := func(tag uint64, multiple bool) settle {
		return settle{raw.BasicNack, []any{tag, raw.Bits{multiple, true}}}
	}
	reject := func(tag uint64) settle { return settle{raw.BasicReject, []any{tag, raw.Bits{true}}} }
	for _, c := range []struct {
		name  string
		held  int // messages got before, tags from 1
		noAck bool
		do    []settle
		code  int
	}{
		{"ack of nothing", 0, false, []settle{ack(1, false)}, 406},
		{"nack of nothing", 0, false, []settle{nack(1, false)}, 406},
		{"reject of nothing", 0, false, []settle{reject(1)}, 406},
		{"ack twice", 1, false, []settle{ack(1, false), ack(1, false)}, 406},
		{"ack then nack", 1, false, []settle{ack(1, false), nack(1, false)}, 406},
		{"ack after multiple", 3, false, []settle{ack(3, true), ack(2, false)}, 406},
		{"ack of 0", 1, false, []settle{ack(0, false)}, 406},
		{"reject of 0", 1, false, []settle{reject(0)}, 406},
		{"ack of all", 3, false, []settle{ack(0, true)}, 0},
		{"ack of all with nothing held", 0, false, []settle{ack(0, true)}, 0},
		{"nack of all with nothing held", 0, false, []settle{nack(0, true)}, 0},
		{"multiple with nothing held", 0, false, []settle{ack(5, true)}, 406},
		{"multiple beyond the last", 2, false, []settle{ack(3, true)}, 406},
		{"multiple up to one settled already", 3, false, []settle{ack(2, true), ack(2, true)}, 406},
		{"ack of a no-ack get", 3, true, []settle{ack(1, false)}, 406},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := queueOf(t, setup, kind)
			s := frames(t)
			for range c.held {
				put(t, q, "x")
				must(s.Call(1, raw.BasicGet, raw.BasicGetOk, uint16(0), q, raw.Bits{c.noAck}))(t)
				for range 2 {
					must(s.ReadFrame())(t)
				}
			}
			for _, do := range c.do {
				ok(t, s.Send(1, do.id, do.args...))
			}
			if c.code == 0 {
				must(s.Call(1, raw.BasicQos, raw.BasicQosOk, uint32(0), uint16(1), raw.Bits{false}))(t)
				return
			}
			faults(t, s, chanFault, c.code)
		})
	}
}

// T15: tags belong to their channel.
func TestTagOfAnotherChannel(t *testing.T) {
	t.Parallel()
	s := frames(t)
	ok(t, s.OpenChannel(2))
	q := privateQueue(t, s)
	ok(t, s.Publish(1, "", q, raw.NoProperties, []byte("x")))
	must(s.Call(1, raw.BasicGet, raw.BasicGetOk, uint16(0), q, raw.Bits{false}))(t)
	for range 2 {
		must(s.ReadFrame())(t)
	}
	ok(t, s.Send(2, raw.BasicNack, uint64(1), raw.Bits{false, true}))
	a := must(s.Expect(2, raw.ChannelClose))(t)
	equal(t, "code", a.U16(), 406)
}

// R5 R26 R28 R30 R31 R106 R111 R252: the ways back into the queue all give the
// same: the message as it was, in its place, marked as redelivered.
func TestWaysBack(t *testing.T) { onEachType(t, testWaysBack) }

func testWaysBack(t *testing.T, kind string) {
	inPlace := kind == "classic" || pick(t, "quorum-returned", false, true)
	ways := map[string]func(t *testing.T, c *amqp.Connection, ch *amqp.Channel, d amqp.Delivery){
		"nack":             func(t *testing.T, _ *amqp.Connection, _ *amqp.Channel, d amqp.Delivery) { ok(t, d.Nack(false, true)) },
		"nack multiple":    func(t *testing.T, _ *amqp.Connection, _ *amqp.Channel, d amqp.Delivery) { ok(t, d.Nack(true, true)) },
		"reject":           func(t *testing.T, _ *amqp.Connection, _ *amqp.Channel, d amqp.Delivery) { ok(t, d.Reject(true)) },
		"recover":          func(t *testing.T, _ *amqp.Connection, ch *amqp.Channel, _ amqp.Delivery) { ok(t, ch.Recover(true)) },
		"channel close":    func(t *testing.T, _ *amqp.Connection, ch *amqp.Channel, _ amqp.Delivery) { ok(t, ch.Close()) },
		"connection close": func(t *testing.T, c *amqp.Connection, _ *amqp.Channel, _ amqp.Delivery) { ok(t, c.Close()) },
	}
	message := amqp.Publishing{
		Headers:     amqp.Table{"h": "v", "n": int64(7), "t": amqp.Table{"deep": true}},
		ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: 2, Priority: 4, CorrelationId: "c", ReplyTo: "r",
		MessageId: "m", Timestamp: time.Unix(1700000000, 0), Type: "t", UserId: "guest", AppId: "a",
		Body: []byte("body"),
	}
	for what, back := range ways {
		for _, take := range []string{"get", "consume"} {
			t.Run(what+" after "+take, func(t *testing.T) {
				t.Parallel()
				setup := open(t)
				q, x := queueOf(t, setup, kind), exchange(t, setup, "direct", nil)
				ok(t, setup.QueueBind(q, "k", x, false, nil))
				publish(t, x, "k", message)
				put(t, q, "second")
				c := dial(t)
				ch := channel(t, c)
				var d amqp.Delivery
				if take == "get" {
					d = get(t, ch, q, false)
				} else {
					ok(t, ch.Qos(1, 0, false))
					in := must(ch.Consume(q, "tag", false, false, false, false, nil))(t)
					d = next(t, in)
					ok(t, ch.Cancel("tag", false))
				}
				ok(t, setup.QueueUnbind(q, "k", x, nil)) // coming back is not routed again
				back(t, c, ch, d)
				eventually(t, "both ready", func() bool { return depth(t, setup, q) == 2 })
				r := get(t, setup, q, true)
				if !inPlace && !r.Redelivered {
					r = get(t, setup, q, true) // it comes behind the other one
				}
				equal(t, "redelivered", r.Redelivered, true)
				equal(t, "exchange", r.Exchange, x)
				equal(t, "key", r.RoutingKey, "k")
				for _, z := range []*amqp.Delivery{&d, &r} {
					delete(z.Headers, "x-acquired-count") // of a quorum queue: what it counts is no part of the message
					delete(z.Headers, "x-delivery-count")
					z.Acknowledger, z.DeliveryTag, z.Redelivered, z.MessageCount, z.ConsumerTag = nil, 0, false, 0, ""
				}
				equal(t, "message", fmt.Sprintf("%+v", r), fmt.Sprintf("%+v", d))
				if !inPlace {
					return
				}
				r = get(t, setup, q, true)
				equal(t, "the one behind", string(r.Body), "second")
				equal(t, "redelivered", r.Redelivered, false)
			})
		}
	}
}

// R27 T17: what comes back takes its old place.
func TestReturnedTakesItsPlace(t *testing.T) { onEachType(t, testReturnedTakesItsPlace) }

func testReturnedTakesItsPlace(t *testing.T, kind string) {
	if kind == "quorum" && pick(t, "quorum-returned", true, false) {
		t.Skip("it has no place")
	}
	setup, ch := open(t), open(t)
	q := queueOf(t, setup, kind)
	put(t, q, "1", "2", "3", "4", "5")
	ok(t, ch.Qos(3, 0, false))
	in := consume(t, ch, q)
	var held []amqp.Delivery
	for range 3 {
		held = append(held, next(t, in))
	}
	ok(t, held[1].Reject(true))
	// Room for one: number 2 again, ahead of 4.
	again := next(t, in)
	equal(t, "after reject", string(again.Body), "2")
	equal(t, "redelivered", again.Redelivered, true)
	ok(t, ch.Close())
	eventually(t, "all ready", func() bool { return depth(t, setup, q) == 5 })
	for i, want := range []string{"1", "2", "3", "4", "5"} {
		d := get(t, setup, q, true)
		equal(t, "order", string(d.Body), want)
		equal(t, "redelivered "+want, d.Redelivered, i < 3)
	}
}

// R27: any set returned in any order comes out in the order of the queue.
func TestReturnedInAnyOrder(t *testing.T) { onEachType(t, testReturnedInAnyOrder) }

func testReturnedInAnyOrder(t *testing.T, kind string) {
	if kind == "quorum" && pick(t, "quorum-returned", true, false) {
		t.Skip("it has no place")
	}
	ch := open(t)
	q := queueOf(t, ch, kind)
	const n = 50
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint(i))
	}
	put(t, q, want...)
	var held []amqp.Delivery
	for range n {
		held = append(held, get(t, ch, q, false))
	}
	for _, i := range rand.Perm(n) {
		ok(t, held[i].Nack(false, true))
	}
	eventually(t, "all ready", func() bool { return depth(t, ch, q) == n })
	var got []string
	for range n {
		got = append(got, string(get(t, ch, q, true).Body))
	}
	equal(t, "order", strings.Join(got, " "), strings.Join(want, " "))
}

// R24: acks in any order leave the right count after each.
func TestAcksInAnyOrder(t *testing.T) { onEachType(t, testAcksInAnyOrder) }

func testAcksInAnyOrder(t *testing.T, kind string) {
	if kind == "quorum" && pick(t, "quorum-late-acks", true, false) {
		t.Skip("more come back when the channel ends")
	}
	const n = 100
	ch := open(t)
	q := queueOf(t, ch, kind)
	for range n {
		send(t, ch, "", q, "x")
	}
	in := consume(t, ch, q)
	var held []amqp.Delivery
	for range n {
		held = append(held, next(t, in))
	}
	for k, i := range rand.Perm(n)[:n/2] {
		switch k % 3 {
		case 0:
			ok(t, held[i].Nack(false, false))
		default:
			ok(t, held[i].Ack(false))
		}
	}
	settled(t, ch)
	ok(t, ch.Close())
	other := open(t)
	eventually(t, "the other half is back", func() bool { return depth(t, other, q) == n/2 })
}

// R33: a message held for long on a living connection stays held.
func TestHeldIsNotStolen(t *testing.T) { onEachType(t, testHeldIsNotStolen) }

func testHeldIsNotStolen(t *testing.T, kind string) {
	ch, other := open(t), open(t)
	q := queueOf(t, ch, kind)
	put(t, q, "held")
	d := get(t, ch, q, false)
	in := consume(t, other, q)
	time.Sleep(3 * time.Second)
	quiet(t, other, in)
	ok(t, d.Ack(false))
	settled(t, ch)
	quiet(t, other, in)
}

// R251: redelivered tells a second try; requeue goes to another consumer
// too.
func TestRequeueGoesToAnother(t *testing.T) { onEachType(t, testRequeueGoesToAnother) }

func testRequeueGoesToAnother(t *testing.T, kind string) {
	setup := open(t)
	q := queueOf(t, setup, kind)
	first, second := open(t), open(t)
	in := consume(t, first, q)
	put(t, q, "x")
	d := next(t, in)
	other := consume(t, second, q)
	ok(t, first.Cancel(d.ConsumerTag, false))
	ok(t, d.Nack(false, true))
	r := next(t, other)
	equal(t, "redelivered", r.Redelivered, true)
	ok(t, r.Ack(false))
}

// R253: rejected without requeue is dropped.
func TestRejectDrops(t *testing.T) { onEachType(t, testRejectDrops) }

func testRejectDrops(t *testing.T, kind string) {
	ch := open(t)
	q := queueOf(t, ch, kind)
	put(t, q, "1", "2")
	ok(t, get(t, ch, q, false).Reject(false))
	ok(t, get(t, ch, q, false).Nack(false, false))
	settled(t, ch)
	ok(t, ch.Close())
	empty(t, open(t), q)
}

// R107 R244: no-ack is gone once delivered.
func TestNoAckIsGone(t *testing.T) { onEachType(t, testNoAckIsGone) }

func testNoAckIsGone(t *testing.T, kind string) {
	c := dial(t)
	ch := channel(t, c)
	q := queueOf(t, ch, kind)
	put(t, q, "1", "2", "3")
	get(t, ch, q, true)
	bodies(t, must(ch.Consume(q, "", true, false, false, false, nil))(t), 2)
	ok(t, c.Close())
	empty(t, open(t), q)
}

// T37: recover with several consumers; recover without an answer.
func TestRecover(t *testing.T) { onEachType(t, testRecover) }

func testRecover(t *testing.T, kind string) {
	ch := open(t)
	q := queueOf(t, ch, kind)
	put(t, q, "1", "2", "3")
	in, also := consume(t, ch, q), consume(t, ch, q)
	seen := map[string]int{}
	take := func(redelivered bool) {
		t.Helper()
		var d amqp.Delivery
		select {
		case d = <-in:
		case d = <-also:
		case <-time.After(raw.Wait):
			t.Fatal("no delivery")
		}
		equal(t, "redelivered", d.Redelivered, redelivered)
		seen[string(d.Body)]++
	}
	for range 3 {
		take(false)
	}
	equal(t, "seen", fmt.Sprint(seen), "map[1:1 2:1 3:1]")
	ok(t, ch.Recover(true))
	for seen["1"] < 2 || seen["2"] < 2 || seen["3"] < 2 { // what comes again before the answer goes back once more
		take(true)
	}
}

// T37: the deprecated recover-async requeues and answers nothing.
func TestRecoverAsync(t *testing.T) {
	t.Parallel()
	s := frames(t)
	q := privateQueue(t, s)
	ok(t, s.Publish(1, "", q, raw.NoProperties, []byte("x")))
	get := func() bool {
		a := must(s.Call(1, raw.BasicGet, raw.BasicGetOk, uint16(0), q, raw.Bits{false}))(t)
		a.U64()
		for range 2 {
			must(s.ReadFrame())(t)
		}
		return a.U8() == 1
	}
	equal(t, "redelivered", get(), false)
	ok(t, s.Send(1, raw.BasicRecoverAsync, raw.Bits{true}))
	equal(t, "redelivered", get(), true)
}

// R42: purge takes the ready ones only.
func TestPurge(t *testing.T) { onEachType(t, testPurge) }

func testPurge(t *testing.T, kind string) {
	ch, other := open(t), open(t)
	q := queueOf(t, ch, kind)
	put(t, q, "held", "2", "3")
	d := get(t, ch, q, false)
	equal(t, "purged", must(other.QueuePurge(q, false))(t), 2)
	equal(t, "again", must(other.QueuePurge(q, false))(t), 0)
	ok(t, d.Nack(false, true))
	eventually(t, "the held one is back", func() bool { return depth(t, ch, q) == 1 })
}

// R26: a large message survives the ways back, from memory or disk.
func TestLargeMessageReturns(t *testing.T) { onEachType(t, testLargeMessageReturns) }

func testLargeMessageReturns(t *testing.T, kind string) {
	ch := open(t)
	q := queueOf(t, ch, kind)
	body := make([]byte, 3<<20+7)
	for i := range body {
		body[i] = byte(rand.Uint32())
	}
	publish(t, "", q, amqp.Publishing{DeliveryMode: 2, Body: body})
	for i := range 3 {
		d := get(t, ch, q, false)
		equal(t, "redelivered", d.Redelivered, i > 0)
		equal(t, "body whole", bytes.Equal(d.Body, body), true)
		ok(t, d.Nack(false, true))
		settled(t, ch)
	}
}
