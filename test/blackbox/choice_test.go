package blackbox

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/raw"
)

// R521: messages go to the consumer of the highest priority that has room, to others only while it has none.
func TestConsumerPriorities(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		q := queueWith(t, open(t), amqp.Table{"x-queue-type": kind})
		in := map[int]<-chan amqp.Delivery{}
		chs := map[int]*amqp.Channel{}
		for _, priority := range []int{0, 10, -5} {
			ch := open(t)
			ok(t, ch.Qos(1, 0, false))
			in[priority] = must(ch.Consume(q, "", false, false, false, false, amqp.Table{"x-priority": priority}))(t)
			chs[priority] = ch
		}
		held := map[int]amqp.Delivery{}
		for i, priority := range []int{10, 0, -5} {
			put(t, q, fmt.Sprint(i))
			held[priority] = next(t, in[priority])
			equal(t, fmt.Sprint("priority ", priority), string(held[priority].Body), fmt.Sprint(i))
		}
		put(t, q, "3", "4") // they wait
		ok(t, held[0].Ack(false))
		equal(t, "who has room", string(next(t, in[0]).Body), "3")
		ok(t, held[10].Ack(false))
		equal(t, "who has room", string(next(t, in[10]).Body), "4")
	})
}

// R521 R596: what the arguments of a consumer can be, and what they cannot.
func TestConsumerArguments(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		q := queueWith(t, open(t), amqp.Table{"x-queue-type": kind})
		failover := 0
		if kind == "quorum" {
			failover = pick(t, "ha-failover", 406, 0)
		}
		for _, c := range []struct {
			args amqp.Table
			code int
		}{
			{amqp.Table{"x-priority": "1"}, 406}, {amqp.Table{"x-priority": 1.5}, 406}, {amqp.Table{"x-priority": -1}, 0},
			{amqp.Table{"x-priority": int64(1) << 40}, 0}, {amqp.Table{"x-unheard-of": 1}, 0},
			{amqp.Table{"x-consumer-timeout": -1}, pick(t, "timeout-arguments", 0, 406)}, {amqp.Table{"x-consumer-timeout": 60_000}, 0},
			{amqp.Table{"x-stream-offset": "first"}, 406},
			{amqp.Table{"x-stream-filter": "a"}, pick(t, "stream-filter", 0, 406)}, {amqp.Table{"x-stream-match-unfiltered": true}, pick(t, "stream-filter", 0, 406)},
			{amqp.Table{"x-cancel-on-ha-failover": true}, failover}, {amqp.Table{"x-priority": int64(-1) << 40}, 0}, {amqp.Table{"x-priority": nil}, 406},
			{amqp.Table{"x-priority": true}, 406}, {amqp.Table{"x-priority": int8(1)}, 0}, {amqp.Table{"x-consumer-timeout": "1"}, pick(t, "timeout-arguments", 0, 406)},
		} {
			_, err := open(t).Consume(q, "", false, false, false, false, c.args)
			if c.code == 0 {
				if err != nil {
					t.Errorf("%v: %v", c.args, err)
				}
				continue
			}
			if e, is := err.(*amqp.Error); !is || e.Code != c.code {
				t.Errorf("%v: %v, wanted %d", c.args, err, c.code)
			}
		}
	})
}

// R522: consumers of one priority take turns.
func TestEqualConsumersTakeTurns(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		q := queueWith(t, open(t), amqp.Table{"x-queue-type": kind})
		one, two := consume(t, open(t), q), consume(t, open(t), q)
		put(t, q, "1", "2", "3", "4", "5", "6")
		a, b := strings.Join(bodies(t, one, 3), " "), strings.Join(bodies(t, two, 3), " ")
		if a != "1 3 5" || b != "2 4 6" {
			t.Errorf("one got %s, the other %s", a, b)
		}
	})
}

// R523: of a single active consumer's queue the next one is the one of the highest priority, then who came first. The active one may go
// on holding what it has.
func TestNextActiveConsumer(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		q := queueWith(t, open(t), amqp.Table{"x-queue-type": kind, "x-single-active-consumer": true})
		in := map[string]<-chan amqp.Delivery{}
		chs := map[string]*amqp.Channel{}
		for _, c := range []struct {
			tag      string
			priority int
		}{{"first", 5}, {"second", 1}, {"third", 3}, {"fourth", 3}} {
			chs[c.tag] = open(t)
			in[c.tag] = must(chs[c.tag].Consume(q, c.tag, false, false, false, false, amqp.Table{"x-priority": c.priority}))(t)
		}
		put(t, q, "1")
		d := next(t, in["first"])
		ok(t, chs["first"].Cancel("first", false))
		put(t, q, "2")
		second, third := "third", "fourth"
		if kind == "quorum" {
			second, third = pick(t, "single-active-priority", "second", second), pick(t, "single-active-priority", "third", third)
		}
		equal(t, "the next one", string(next(t, in[second]).Body), "2")
		ok(t, d.Ack(false)) // it may still settle what it has
		settled(t, chs["first"])
		ok(t, chs[second].Close())
		again := next(t, in[third])
		equal(t, "what is left", string(again.Body), "2")
		equal(t, "redelivered", again.Redelivered, true)
		put(t, q, "3")
		equal(t, "goes on", string(next(t, in[third]).Body), "3")
	})
}

// R523: one of a higher priority takes over at once where the active one holds nothing, else when that has settled what it holds.
func TestHigherPriorityTakesOver(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		if pick(t, "single-active-priority", true, false) {
			t.Skip("the active one stays")
		}
		ch := open(t)
		q := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-single-active-consumer": true})
		low := must(ch.Consume(q, "low", false, false, false, false, nil))(t)
		put(t, q, "1")
		d := next(t, low)
		high := must(open(t).Consume(q, "high", false, false, false, false, amqp.Table{"x-priority": 9}))(t)
		put(t, q, "2")
		quiet(t, ch, low)
		ok(t, d.Ack(false))
		equal(t, "who is active then", string(next(t, high).Body), "2")
		highest := must(open(t).Consume(q, "highest", false, false, false, false, amqp.Table{"x-priority": 10}))(t)
		put(t, q, "3")
		select {
		case d := <-highest:
			t.Fatalf("%s went to one that must wait", d.Body)
		default:
		}
	})
}

// R523: the active one at its limit keeps all others waiting.
func TestActiveConsumerAtItsLimit(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch, other := open(t), open(t)
		q := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-single-active-consumer": true})
		ok(t, ch.Qos(1, 0, false))
		active := consume(t, ch, q)
		waiting := consume(t, other, q)
		put(t, q, "1", "2")
		d := next(t, active)
		quiet(t, other, waiting)
		ok(t, d.Ack(false))
		equal(t, "the active one", string(next(t, active).Body), "2")
	})
}

// R524 T35: who consumes exclusively is alone; nobody may be so beside others.
func TestExclusiveConsumer(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		q := queueWith(t, open(t), amqp.Table{"x-queue-type": kind})
		alone := open(t)
		must(alone.Consume(q, "alone", false, true, false, false, nil))(t)
		_, err := open(t).Consume(q, "", false, false, false, false, nil)
		if kind == "quorum" && pick(t, "quorum-exclusive", true, false) {
			ok(t, err)
			return
		}
		refused(t, err, 403)
		if !strings.HasSuffix(err.(*amqp.Error).Reason, "in exclusive use") {
			t.Error(err)
		}
		ok(t, alone.Cancel("alone", false))
		must(open(t).Consume(q, "", false, false, false, false, nil))(t)
		_, err = open(t).Consume(q, "", false, true, false, false, nil)
		refused(t, err, 403)
	})
}

// R524: nobody is alone where one consumer is active and the others wait.
func TestExclusiveBesideSingleActive(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		q := queueWith(t, open(t), amqp.Table{"x-queue-type": kind, "x-single-active-consumer": true})
		_, err := open(t).Consume(q, "", false, true, false, false, nil)
		if kind == "quorum" && pick(t, "quorum-exclusive", true, false) {
			ok(t, err)
			return
		}
		refused(t, err, 403)
	})
}

// R525: a classic queue has the levels that it was declared with; the highest message goes first, those of one level in their order.
func TestClassicPriorities(t *testing.T) {
	t.Parallel()
	ch := open(t)
	sent := func(q string, list ...uint8) string {
		for i, p := range list {
			publish(t, "", q, amqp.Publishing{DeliveryMode: amqp.Persistent, Priority: p, Body: fmt.Append(nil, i)})
		}
		return emptied(t, q)
	}
	equal(t, "levels to 5", sent(queueWith(t, ch, amqp.Table{"x-max-priority": 5}), 0, 3, 9, 5, 3, 1, 0), "2 3 1 4 5 0 6")
	equal(t, "levels to 1", sent(queueWith(t, ch, amqp.Table{"x-max-priority": 1}), 0, 1, 9), "1 2 0")
	equal(t, "levels to 0", sent(queueWith(t, ch, amqp.Table{"x-max-priority": 0}), 0, 1, 9), "0 1 2")
	equal(t, "no levels", sent(queue(t, ch), 0, 3, 9), "0 1 2")
	equal(t, "levels to 255", sent(queueWith(t, ch, amqp.Table{"x-max-priority": 255}), 0, 100, 255, 200), "2 3 1 0")
}

// R526: a quorum queue has 32 levels; a message without one has the fifth.
func TestQuorumPriorities(t *testing.T) {
	t.Parallel()
	if pick(t, "quorum-priority", true, false) {
		t.Skip("there are none")
	}
	q := queueWith(t, open(t), amqp.Table{"x-queue-type": "quorum"})
	for i, p := range []uint8{0, 4, 5, 31, 40, 3} { // the client sends no priority for 0
		publish(t, "", q, amqp.Publishing{DeliveryMode: amqp.Persistent, Priority: p, Body: fmt.Append(nil, i)})
	}
	equal(t, "order", emptied(t, q), "3 4 2 0 1 5")
}

// R525: what comes back is put in its place.
func TestReturnedKeepsItsPriority(t *testing.T) {
	t.Parallel()
	ch := open(t)
	q := queueWith(t, ch, amqp.Table{"x-max-priority": 5})
	for i, p := range []uint8{1, 5, 5} {
		publish(t, "", q, amqp.Publishing{DeliveryMode: amqp.Persistent, Priority: p, Body: fmt.Append(nil, i)})
	}
	d := get(t, ch, q, false)
	equal(t, "first", string(d.Body), "1")
	equal(t, "priority", d.Priority, 5)
	ok(t, d.Nack(false, true))
	settled(t, ch)
	equal(t, "order", emptied(t, q), "1 2 0")
}

// R527: what a channel acknowledges has its effect before what it publishes afterwards to the same queue, also where both come at once.
// To the leader of a quorum queue, and to another node, acknowledgements have a path of their own.
func TestAckBeforePublish(t *testing.T) {
	t.Parallel()
	q := queue(t, open(t))
	s := frames(t)
	must(s.Call(1, raw.BasicQos, raw.BasicQosOk, uint32(0), uint16(1), raw.Bits{false}))(t)
	for tag, priority := range map[string]uint32{"spare": 0, "first": 10} {
		must(s.Call(1, raw.BasicConsume, raw.BasicConsumeOk, uint16(0), q, tag, raw.Bits{false, false, false, false},
			raw.Fields(raw.Field("x-priority", 'I', priority))))(t)
	}
	ok(t, s.Publish(1, "", q, raw.NoProperties, []byte("x")))
	for range 20 {
		a := must(s.Expect(1, raw.BasicDeliver))(t)
		equal(t, "consumer", a.Str(), "first")
		tag := a.U64()
		for range 2 { // header and body
			must(s.ReadFrame())(t)
		}
		b := raw.AppendFrame(nil, raw.FrameMethod, 1, raw.Method(raw.BasicAck, tag, raw.Bits{false}))
		b = raw.AppendFrame(b, raw.FrameMethod, 1, raw.Method(raw.BasicPublish, uint16(0), "", q, raw.Bits{false, false}))
		b = raw.AppendFrame(b, raw.FrameHeader, 1, raw.Header(1, raw.NoProperties))
		b = raw.AppendFrame(b, raw.FrameBody, 1, []byte("x"))
		_, err := s.Conn.Write(b)
		ok(t, err)
	}
}
