package blackbox

import (
	"fmt"
	"sort"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/raw"
)

// T34 T35: what basic.qos, basic.consume and basic.cancel refuse.
func TestConsumeFaults(t *testing.T) { onEachType(t, testConsumeFaults) }

func testConsumeFaults(t *testing.T, kind string) {
	setup := open(t)
	q := queueOf(t, setup, kind)
	exclusive, shared := queueOf(t, setup, kind), queueOf(t, setup, kind)
	must(setup.Consume(exclusive, "", false, true, false, false, nil))(t)
	consume(t, setup, shared)
	table := raw.Table{}
	for _, c := range []struct {
		name  string
		id    raw.ID
		args  []any
		scope scope
		code  int
	}{
		{"tag in use", raw.BasicConsume, []any{uint16(0), q, "tag", raw.Bits{false, true, false, false}, table}, connFault, 530},
		{"exclusive beside another", raw.BasicConsume, []any{uint16(0), shared, "", raw.Bits{false, true, true, false}, table}, chanFault, 403},
		{"beside an exclusive one", raw.BasicConsume, []any{uint16(0), exclusive, "", raw.Bits{false, true, false, false}, table}, chanFault, 403},
		{"priority is a word", raw.BasicConsume, []any{uint16(0), q, "", raw.Bits{false, true, false, false},
			raw.Fields(raw.Field("x-priority", 'S', raw.Long("high")))}, chanFault, 406},
		{"prefetch size", raw.BasicQos, []any{uint32(1), uint16(0), raw.Bits{false}}, connFault, 540},
		{"recover without requeue", raw.BasicRecover, []any{raw.Bits{false}}, connFault, 540},
	} {
		if c.code == 403 && kind == "quorum" && pick(t, "quorum-exclusive", true, false) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			s := frames(t)
			must(s.Call(1, raw.BasicConsume, raw.BasicConsumeOk, uint16(0), q, "tag", raw.Bits{false, true, false, false}, table))(t)
			ok(t, s.Send(1, c.id, c.args...))
			faults(t, s, c.scope, c.code)
		})
	}
}

// T35: an empty tag is given a name.
func TestGeneratedConsumerTag(t *testing.T) {
	t.Parallel()
	s := frames(t)
	q := privateQueue(t, s)
	seen := map[string]bool{}
	for range 3 {
		a := must(s.Call(1, raw.BasicConsume, raw.BasicConsumeOk, uint16(0), q, "", raw.Bits{false, true, false, false}, raw.Table{}))(t)
		tag := a.Str()
		if !strings.HasPrefix(tag, "amq.ctag-") || seen[tag] {
			t.Fatalf("consumer tag %q", tag)
		}
		seen[tag] = true
	}
}

// T35: the same tag is free on another channel, and free again once cancelled.
func TestConsumerTagScope(t *testing.T) { onEachType(t, testConsumerTagScope) }

func testConsumerTagScope(t *testing.T, kind string) {
	c := dial(t)
	one, two := channel(t, c), channel(t, c)
	q := queueOf(t, one, kind)
	for _, ch := range []*amqp.Channel{one, two} {
		must(ch.Consume(q, "same", false, false, false, false, nil))(t)
		ok(t, ch.Cancel("same", false))
		must(ch.Consume(q, "same", false, false, false, false, nil))(t)
	}
}

// R6: cancel stops new deliveries only; what was delivered can still be acked.
func TestCancel(t *testing.T) { onEachType(t, testCancel) }

func testCancel(t *testing.T, kind string) {
	ch := open(t)
	q := queueOf(t, ch, kind)
	put(t, q, "held")
	in := must(ch.Consume(q, "tag", false, false, false, false, nil))(t)
	held := next(t, in)
	ok(t, ch.Cancel("tag", false))
	put(t, q, "later")
	equal(t, "ready", depth(t, ch, q), 1)
	ok(t, held.Ack(false))
	settled(t, ch)
	equal(t, "ready", depth(t, ch, q), 1)
	equal(t, "body", string(get(t, ch, q, true).Body), "later")
}

// R6: an unknown tag is cancelled without complaint.
func TestCancelUnknown(t *testing.T) {
	t.Parallel()
	s := frames(t)
	a := must(s.Call(1, raw.BasicCancel, raw.BasicCancelOk, "nobody", raw.Bits{false}))(t)
	equal(t, "tag", a.Str(), "nobody")
}

// R6: after cancel-ok nothing more is delivered to that consumer.
func TestNothingAfterCancelOk(t *testing.T) { onEachType(t, testNothingAfterCancelOk) }

func testNothingAfterCancelOk(t *testing.T, kind string) {
	s := frames(t)
	ch := open(t)
	q := queueOf(t, ch, kind)
	for range 100 {
		send(t, ch, "", q, "m")
	}
	eventually(t, "all there", func() bool { return depth(t, ch, q) == 100 })
	must(s.Call(1, raw.BasicQos, raw.BasicQosOk, uint32(0), uint16(10), raw.Bits{false}))(t)
	must(s.Call(1, raw.BasicConsume, raw.BasicConsumeOk, uint16(0), q, "tag", raw.Bits{false, false, false, false}, raw.Table{}))(t)
	ok(t, s.Send(1, raw.BasicCancel, "tag", raw.Bits{false}))
	for {
		f := must(s.ReadFrame())(t)
		if f.Is(raw.BasicCancelOk) {
			break
		}
	}
	// Room again, but nobody to deliver to.
	ok(t, s.Send(1, raw.BasicAck, uint64(0), raw.Bits{true}))
	must(s.Call(1, raw.BasicQos, raw.BasicQosOk, uint32(0), uint16(10), raw.Bits{false}))(t)
	eventually(t, "the rest is ready", func() bool { return depth(t, ch, q) == 90 })
}

// A consumer is told when its queue is deleted, an exclusive one too.
func TestQueueDeletedUnderConsumer(t *testing.T) {
	t.Parallel()
	for what, exclusive := range map[string]bool{"shared": false, "exclusive": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := dial(t)
			ch, other := channel(t, c), channel(t, c)
			q := must(ch.QueueDeclare(name(t), false, false, exclusive, false, nil))(t).Name
			cancelled := ch.NotifyCancel(make(chan string, 1))
			in := must(ch.Consume(q, "tag", false, false, false, false, nil))(t)
			put(t, q, "held")
			held := next(t, in)
			must(other.QueueDelete(q, false, false, false))(t)
			equal(t, "cancelled", <-cancelled, "tag")
			ok(t, held.Ack(false)) // of no use, and no fault
			settled(t, ch)
		})
	}
}

// A client that does not know of consumer cancellation is not told.
func TestCancelNotAnnounced(t *testing.T) {
	t.Parallel()
	s := socket(t)
	must(s.Start())(t)
	must(s.Call(0, raw.ConnectionStartOk, raw.ConnectionTune, raw.Fields(), "PLAIN", raw.Long("\x00guest\x00guest"), "en_US"))(t)
	ok(t, s.Tune(2047, 131072, 0))
	ok(t, s.Open("/"))
	ok(t, s.OpenChannel(1))
	q := privateQueue(t, s)
	must(s.Call(1, raw.BasicConsume, raw.BasicConsumeOk, uint16(0), q, "tag", raw.Bits{false, false, false, false}, raw.Table{}))(t)
	must(s.Call(1, raw.QueueDelete, raw.QueueDeleteOk, uint16(0), q, raw.Bits{false, false, false}))(t)
	must(s.Call(1, raw.BasicQos, raw.BasicQosOk, uint32(0), uint16(1), raw.Bits{false}))(t)
}

// R108: per-consumer prefetch bounds what is held; an ack makes room.
func TestPrefetch(t *testing.T) { onEachType(t, testPrefetch) }

func testPrefetch(t *testing.T, kind string) {
	ch := open(t)
	q := queueOf(t, ch, kind)
	put(t, q, "1", "2", "3", "4", "5")
	ok(t, ch.Qos(2, 0, false))
	in := consume(t, ch, q)
	first, second := next(t, in), next(t, in)
	quietWith(t, ch, in, 2)
	ok(t, second.Ack(false))
	equal(t, "after an ack", string(next(t, in).Body), "3")
	quietWith(t, ch, in, 2)
	ok(t, first.Nack(false, false))
	equal(t, "after a nack", string(next(t, in).Body), "4")
}

// quietWith is quiet that keeps the prefetch.
func quietWith(t *testing.T, ch *amqp.Channel, in <-chan amqp.Delivery, prefetch int) {
	t.Helper()
	ok(t, ch.Qos(prefetch, 0, false))
	if len(in) > 0 {
		t.Fatalf("unexpected delivery %q", (<-in).Body)
	}
}

// T34: a new prefetch counts for later consumers only; each consumer has its
// own.
func TestPrefetchOfLaterConsumers(t *testing.T) { onEachType(t, testPrefetchOfLaterConsumers) }

func testPrefetchOfLaterConsumers(t *testing.T, kind string) {
	ch := open(t)
	one, two := queueOf(t, ch, kind), queueOf(t, ch, kind)
	put(t, one, "1", "2", "3")
	put(t, two, "1", "2", "3")
	ok(t, ch.Qos(1, 0, false))
	first := consume(t, ch, one)
	ok(t, ch.Qos(2, 0, false))
	second := consume(t, ch, two)
	next(t, first)
	bodies(t, second, 2)
	quietWith(t, ch, first, 2)
	quietWith(t, ch, second, 2)
}

// T34: global prefetch bounds the channel, beside the consumers' own.
func TestGlobalPrefetch(t *testing.T) { onEachType(t, testGlobalPrefetch) }

func testGlobalPrefetch(t *testing.T, kind string) {
	ch := open(t)
	one, two := queueOf(t, ch, kind), queueOf(t, ch, kind)
	put(t, one, "1", "2", "3", "4")
	put(t, two, "1", "2", "3", "4")
	ok(t, ch.Qos(3, 0, true))
	if kind == "quorum" && pick(t, "quorum-global-prefetch", true, false) {
		_, err := ch.Consume(one, "", false, false, false, false, nil)
		refused(t, err, 540)
		return
	}
	a, b := consume(t, ch, one), consume(t, ch, two)
	var held []amqp.Delivery
	take := func() {
		t.Helper()
		select {
		case d := <-a:
			held = append(held, d)
		case d := <-b:
			held = append(held, d)
		}
	}
	for range 3 {
		take()
	}
	quiet := func() {
		t.Helper()
		ok(t, ch.Flow(true))
		if len(a)+len(b) > 0 {
			t.Fatal("more than the channel's prefetch")
		}
	}
	quiet()
	ok(t, held[0].Ack(false))
	take()
	quiet()
	ok(t, ch.Qos(4, 0, true)) // counts at once
	take()
	quiet()
}

// R107: consumers without acks have no prefetch.
func TestPrefetchIgnoresNoAck(t *testing.T) { onEachType(t, testPrefetchIgnoresNoAck) }

func testPrefetchIgnoresNoAck(t *testing.T, kind string) {
	ch := open(t)
	q := queueOf(t, ch, kind)
	put(t, q, "1", "2", "3")
	ok(t, ch.Qos(1, 0, false))
	in := must(ch.Consume(q, "", true, false, false, false, nil))(t)
	bodies(t, in, 3)
}

// R110 R258: without prefetch one consumer is given everything.
func TestNoPrefetch(t *testing.T) { onEachType(t, testNoPrefetch) }

func testNoPrefetch(t *testing.T, kind string) {
	ch := open(t)
	q := queueOf(t, ch, kind)
	var want []string
	for i := range 500 {
		want = append(want, fmt.Sprint(i))
		send(t, ch, "", q, want[i])
	}
	in := consume(t, ch, q)
	got := bodies(t, in, 500)
	equal(t, "order", strings.Join(got, " "), strings.Join(want, " "))
	later := open(t)
	other := consume(t, later, q)
	quiet(t, later, other)
}

// R46: consumers with room take turns.
func TestRoundRobin(t *testing.T) { onEachType(t, testRoundRobin) }

func testRoundRobin(t *testing.T, kind string) {
	ch := open(t)
	q := queueOf(t, ch, kind)
	var in []<-chan amqp.Delivery
	for range 3 {
		in = append(in, consume(t, open(t), q))
	}
	for i := range 9 {
		put(t, q, fmt.Sprint(i))
	}
	for k := range 3 {
		equal(t, "share", strings.Join(bodies(t, in[k], 3), " "), fmt.Sprintf("%d %d %d", k, k+3, k+6))
	}
}

// R46: a consumer without room is passed over.
func TestBusyConsumerIsPassedOver(t *testing.T) { onEachType(t, testBusyConsumerIsPassedOver) }

func testBusyConsumerIsPassedOver(t *testing.T, kind string) {
	setup, busy, free := open(t), open(t), open(t)
	q := queueOf(t, setup, kind)
	ok(t, busy.Qos(1, 0, false))
	held := consume(t, busy, q)
	rest := consume(t, free, q)
	for i := range 10 {
		put(t, q, fmt.Sprint(i))
	}
	next(t, held)
	bodies(t, rest, 9)
}

// R7 R11 R12 R19: gets and consumers of several connections share one queue;
// each message goes to exactly one.
func TestGetAndConsumeShareTheQueue(t *testing.T) { onEachType(t, testGetAndConsumeShareTheQueue) }

func testGetAndConsumeShareTheQueue(t *testing.T, kind string) {
	const n = 1000
	setup := confirming(t)
	q := queueOf(t, setup, kind)
	var last *amqp.DeferredConfirmation
	for i := range n {
		last = must(setup.PublishWithDeferredConfirm("", q, false, false, amqp.Publishing{Body: []byte(fmt.Sprint(i))}))(t)
	}
	last.Wait()
	var lock sync.Mutex
	seen := map[string]int{}
	total := 0
	done := make(chan struct{})
	note := func(d amqp.Delivery) {
		lock.Lock()
		defer lock.Unlock()
		seen[string(d.Body)]++
		if total++; total == n {
			close(done)
		}
	}
	var wg sync.WaitGroup
	for range 2 {
		getter, consumer := open(t), open(t)
		ok(t, consumer.Qos(5, 0, false))
		in := consume(t, consumer, q)
		wg.Go(func() {
			for {
				d, there, err := getter.Get(q, false)
				if err != nil || !there {
					return
				}
				note(d)
				_ = d.Ack(false)
			}
		})
		wg.Go(func() {
			for {
				select {
				case d := <-in:
					note(d)
					_ = d.Ack(false)
				case <-done:
					return
				}
			}
		})
	}
	wg.Wait()
	for body, times := range seen {
		equal(t, "deliveries of "+body, times, 1)
	}
	equal(t, "messages seen", len(seen), n)
}

// R1 R92: the message id is the publisher's own; the broker does not remove
// duplicates.
func TestSameMessageID(t *testing.T) { onEachType(t, testSameMessageID) }

func testSameMessageID(t *testing.T, kind string) {
	ch := open(t)
	q := queueOf(t, ch, kind)
	for _, body := range []string{"one", "two"} {
		publish(t, "", q, amqp.Publishing{MessageId: "same", Body: []byte(body)})
	}
	for _, want := range []string{"one", "two"} {
		d := get(t, ch, q, true)
		equal(t, "body", string(d.Body), want)
		equal(t, "id", d.MessageId, "same")
	}
}

// R2 R3: one count of delivery tags per channel, over all consumers and gets;
// a new channel begins at 1.
func TestDeliveryTags(t *testing.T) { onEachType(t, testDeliveryTags) }

func testDeliveryTags(t *testing.T, kind string) {
	c := dial(t)
	ch := channel(t, c)
	one, two, three := queueOf(t, ch, kind), queueOf(t, ch, kind), queueOf(t, ch, kind)
	a, b := consume(t, ch, one), consume(t, ch, two)
	var tags []int
	for range 3 {
		put(t, one, "x")
		tags = append(tags, int(next(t, a).DeliveryTag))
		put(t, two, "x")
		tags = append(tags, int(next(t, b).DeliveryTag))
		put(t, three, "x")
		tags = append(tags, int(get(t, ch, three, true).DeliveryTag))
	}
	equal(t, "in order", sort.IntsAreSorted(tags), true)
	equal(t, "first", tags[0], 1)
	equal(t, "last", tags[8], 9)
	put(t, three, "x")
	equal(t, "on a new channel", get(t, channel(t, c), three, true).DeliveryTag, 1)
}

// R42: basic.get tells what is left.
func TestGetCount(t *testing.T) { onEachType(t, testGetCount) }

func testGetCount(t *testing.T, kind string) {
	ch := open(t)
	q := queueOf(t, ch, kind)
	empty(t, ch, q)
	put(t, q, "1", "2", "3")
	for left := 2; left >= 0; left-- {
		equal(t, "left", get(t, ch, q, true).MessageCount, uint32(left))
	}
}

// T42: direct reply-to.
func TestDirectReplyTo(t *testing.T) {
	t.Parallel()
	const pseudo = "amq.rabbitmq.reply-to"
	server := open(t)
	requests := must(server.QueueDeclare("", false, true, true, false, nil))(t).Name
	in := must(server.Consume(requests, "", true, false, false, false, nil))(t)

	client := open(t)
	replies := must(client.Consume(pseudo, "", true, false, false, false, nil))(t)
	ok(t, client.Publish("", requests, false, false, amqp.Publishing{ReplyTo: pseudo, Body: []byte("question")}))
	d := next(t, in)
	if !strings.HasPrefix(d.ReplyTo, pseudo+".") {
		t.Fatalf("reply-to is %q", d.ReplyTo)
	}
	must(server.QueueDeclarePassive(d.ReplyTo, false, false, false, false, nil))(t) // says whether the client is there
	ok(t, server.Publish("", d.ReplyTo, true, false, amqp.Publishing{Body: []byte("answer")}))
	r := next(t, replies)
	equal(t, "answer", string(r.Body), "answer")
	equal(t, "exchange", r.Exchange, "")

	ok(t, client.Close())
	eventually(t, "the client is known to be gone", func() bool {
		_, err := open(t).QueueDeclarePassive(d.ReplyTo, false, false, false, false, nil)
		return err != nil
	})
	late := confirming(t) // R421
	returns := late.NotifyReturn(make(chan amqp.Return, 1))
	c, err := late.PublishWithDeferredConfirm("", d.ReplyTo, true, false, amqp.Publishing{})
	ok(t, err)
	equal(t, "confirmed", c.Wait(), true)
	equal(t, "returns", len(returns), pick(t, "reply-to-gone", 1, 0))
	for what, do := range map[string]func(ch *amqp.Channel) (error, int){
		"publish without a consumer": func(ch *amqp.Channel) (error, int) {
			fault := closing(ch)
			ok(t, ch.Publish("", requests, false, false, amqp.Publishing{ReplyTo: pseudo}))
			return fault(t), 406
		},
		"consume with acks": func(ch *amqp.Channel) (error, int) {
			_, err := ch.Consume(pseudo, "", false, false, false, false, nil)
			return err, 406
		},
		"consume twice": func(ch *amqp.Channel) (error, int) {
			must(ch.Consume(pseudo, "", true, false, false, false, nil))(t)
			_, err := ch.Consume(pseudo, "", true, false, false, false, nil)
			return err, 406
		},
		"bind": func(ch *amqp.Channel) (error, int) {
			return ch.QueueBind(pseudo, "k", "amq.direct", false, nil), pick(t, "reply-to-bind", 404, 403)
		},
	} {
		t.Run(what, func(t *testing.T) {
			err, code := do(open(t))
			refused(t, err, code)
		})
	}
}
