package queuehost

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/vfs"
	"holdfast/internal/wire"
)

// keyedBody is a message with a value of the header that duplicates are found by.
func keyedBody(text string, key any) message.Message {
	return body(text, wire.PropertySet{Headers: wire.Table{}.Append(message.DeduplicationHeader, key)})
}

// each is the outcomes one by one, in order of the numbers.
func (t *tickets) each() string {
	of := map[uint64]Outcome{}
	for _, x := range t.got {
		for n := x.first; n <= x.last; n++ {
			of[n] = x.o
		}
	}
	return fmt.Sprint(of)
}

func fromPublisher(text, who string, sequence int) message.Message {
	h := wire.Table{}.Append(message.PublisherHeader, who).Append(message.SequenceHeader, int64(sequence))
	return body(text, wire.PropertySet{Headers: h})
}

// R430 R433: without a window a duplicate of what is in the queue is refused, and no other message.
func TestDuplicatesOfWhatIsThere(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{set(durable(7), queue.Settings{Deduplicate: queue.HeaderKey})}, newest)
	h, tk, s := r.queue(7), &tickets{}, &sink{}
	plain := body("plain", wire.PropertySet{})
	putBodies(h, tk, true, keyedBody("a", "a"), keyedBody("b", "b"), keyedBody("A", "a"), plain, plain, keyedBody("c", int32(1)), keyedBody("d", "1"))
	r.settle()
	want(t, "outcomes", tk.each(), "map[1:accepted 2:accepted 3:refused 4:accepted 5:accepted 6:accepted 7:accepted]")
	id := h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	r.settle()
	want(t, "deliveries", s.texts(), []string{"a", "b", "plain", "plain", "c", "d"})
	*tk = tickets{}
	putBodies(h, tk, true, keyedBody("A", "a"))
	r.settle()
	want(t, "while it is held", tk.got, []outcome{{1, 1, Refused}})
	h.Settle(id, ids(1, 1), queue.Ack)
	r.settle()
	*tk = tickets{}
	putBodies(h, tk, true, keyedBody("A", "a"))
	r.settle()
	want(t, "when it has left", tk.got, []outcome{{1, 1, Accepted}})
	want(t, "duplicates", r.host(7).reg.Duplicates(), uint64(2))
	r.explains(7, "Duplicates that were not taken since the node started: 2 messages.") // R616
}

// R434: where there are dead letters, a duplicate is one, of the reason maxlen.
func TestDuplicateIsADeadLetter(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{set(durable(7), queue.Settings{Deduplicate: queue.HeaderKey, DeadLetter: queue.DeadLetterHeld})}, newest)
	l, tk := &letters{}, &tickets{}
	r.host(7).reg.SetOwner(l)
	putBodies(r.queue(7), tk, true, keyedBody("a", "a"), keyedBody("b", "a"))
	r.settle()
	want(t, "letters", l.got, []string{"1 b dropped"})
	want(t, "outcomes", tk.each(), "map[1:accepted 2:refused]")
	want(t, "duplicates", r.host(7).reg.Duplicates(), uint64(1))
}

// R435 R436: with a window a duplicate counts as accepted and does not come in, also after a crash, until the time is over.
func TestDuplicatesInAWindow(t *testing.T) {
	def := set(durable(7), queue.Settings{Deduplicate: queue.HeaderKey, Window: queue.Most(5000), WindowBytes: 1 << 20})
	r := newRig(t, newFakeLog(), []QueueDef{def}, newest)
	big := message.Message{Head: keyedBody("big", "big").Head, Chunks: [][]byte{[]byte(strings.Repeat("x", 1000)), []byte("y")}}
	put := func(what string, wantReady int, ms ...message.Message) {
		t.Helper()
		tk := &tickets{}
		putBodies(r.queue(7), tk, true, ms...)
		r.settle()
		want(t, what+": outcomes", tk.each(), [...]string{"", "map[1:accepted]", "map[1:accepted 2:accepted]", "", "map[1:accepted 2:accepted 3:accepted 4:accepted]"}[len(ms)])
		want(t, what+": ready", r.queue(7).Stats().Ready, uint64(wantReady))
	}
	put("at first", 2, keyedBody("a", "a"), keyedBody("A", "a"), big, big)
	r.queue(7).Purge(func(uint64, error) {})
	put("after a purge", 0, keyedBody("A", "a"), big)
	want(t, "duplicates", r.host(7).reg.Duplicates(), uint64(4))
	want(t, "live", len(r.host(7).m.Live(nil)), 0)
	clk := r.clock
	r = newRig(t, r.log.crashed(), []QueueDef{def}, newest)
	r.clock.Advance(time.Duration(clk.Mono() - r.clock.Mono()))
	put("after a crash", 0, keyedBody("A", "a"))
	r.clock.Advance(4 * time.Second)
	put("in time", 0, keyedBody("A", "a"))
	r.clock.Advance(1001 * time.Millisecond)
	put("too late", 1, keyedBody("A", "a"), keyedBody("A", "a"))
}

// R437: a publisher's messages come in once each, also one that was refused and comes again behind later ones.
func TestDuplicatesOfPublishers(t *testing.T) {
	def := set(durable(7), queue.Settings{Deduplicate: queue.PublisherKey, WindowBytes: 1 << 20, MaxLength: queue.Most(2), Overflow: queue.OverflowReject})
	r := newRig(t, newFakeLog(), []QueueDef{def}, newest)
	tk, s := &tickets{}, &sink{}
	putBodies(r.queue(7), tk, true, fromPublisher("1", "p", 1), fromPublisher("1", "p", 1), fromPublisher("2", "p", 2), fromPublisher("3", "p", 3))
	r.settle()
	want(t, "outcomes", tk.each(), "map[1:accepted 2:accepted 3:accepted 4:refused]")
	r.queue(7).Attach(ConsumerSpec{NoAck: true, Credit: Unlimited}, s, func(queue.ConsumerID, error) {})
	r.settle()
	putBodies(r.queue(7), nil, true, fromPublisher("4", "p", 4), fromPublisher("3", "p", 3), fromPublisher("1", "p", 1), fromPublisher("3", "p", 3), fromPublisher("q1", "q", 1))
	r.settle()
	want(t, "deliveries", s.texts(), []string{"1", "2", "4", "3", "q1"})
}

// R438: a queue that does not look for duplicates has no keys in its log.
func TestNoKeysWhereNobodyAsks(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)}, newest)
	putBodies(r.queue(7), nil, true, keyedBody("a", "a"), keyedBody("a", "a"))
	r.settle()
	want(t, "ready", r.queue(7).Stats().Ready, uint64(2))
	for _, rec := range r.log.records {
		cmds, _ := queue.DecodeCommands(nil, rec.Meta)
		for _, c := range cmds {
			if c.Terms != nil && c.Kind == queue.Enqueue {
				t.Errorf("%+v", c)
			}
		}
	}
}

// R436: whoever comes to lead a quorum queue knows what has come.
func TestDuplicatesOverLeaders(t *testing.T) {
	def := set(durable(7), queue.Settings{Deduplicate: queue.HeaderKey, Window: queue.Most(3600_000), WindowBytes: 1 << 20})
	x := newTrioWith(t, 3, func(o *Options) { o.Level = func() uint16 { return 2 } },
		func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, def)
	defer x.close(t)
	h, s := x.nodes[0].reg.Get(7), newHolding()
	outcomes := make(chan Outcome, 1)
	put := func(m message.Message) {
		t.Helper()
		h.Publish([]Publish{{Message: m, Persistent: true, Ticket: outcomeOf(outcomes), Seq: 1}})
		want(t, "outcome", <-outcomes, Accepted)
	}
	for range 3 {
		put(keyedBody("a", "a"))
		put(keyedBody("b", int32(1)))
		x.move(7)
	}
	put(keyedBody("c", "c"))
	h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	s.wait(func() bool { return len(s.got) == 3 })
	var texts []string
	for _, head := range s.got {
		texts = append(texts, head[len(head)-1:])
	}
	want(t, "deliveries", texts, []string{"a", "b", "c"})
}

// R443: what comes from another queue, a dead letter or what a redrive brings back, is a duplicate of nothing.
func TestCarriedMessagesAreNoDuplicates(t *testing.T) {
	for _, window := range []queue.Limit{0, queue.Most(5000)} {
		def := set(durable(7), queue.Settings{Deduplicate: queue.HeaderKey, Window: window, WindowBytes: 1 << 20})
		r := newRig(t, newFakeLog(), []QueueDef{def}, newest)
		tk := &tickets{}
		putBodies(r.queue(7), tk, true, keyedBody("a", "a"))
		r.queue(7).Publish([]Publish{{Message: keyedBody("b", "a"), Persistent: true, Carried: true, Ticket: tk, Seq: 2}})
		r.settle()
		want(t, "outcomes", tk.each(), "map[1:accepted 2:accepted]")
		want(t, "ready", r.queue(7).Stats().Ready, uint64(2))
		want(t, "duplicates", r.host(7).reg.Duplicates(), uint64(0))
	}
}

// R443: what another queue keeps is not dead when it is refused: it is tried again, and would die each time.
func TestCarriedMessagesDoNotDieOfALimit(t *testing.T) {
	def := set(durable(7), queue.Settings{MaxLength: queue.Most(1), Overflow: queue.OverflowRejectDLX, DeadLetter: queue.DeadLetterHeld})
	r := newRig(t, newFakeLog(), []QueueDef{def}, newest)
	l, tk := &letters{}, &tickets{}
	r.host(7).reg.SetOwner(l)
	a, b := keyedBody("a", "a"), keyedBody("b", "b")
	r.queue(7).Publish([]Publish{
		{Message: a, Persistent: true, Ticket: tk, Seq: 1},
		{Message: b, Persistent: true, Carried: true, Ticket: tk, Seq: 2},
		{Message: b, Persistent: true, Ticket: tk, Seq: 3},
	})
	r.settle()
	want(t, "outcomes", tk.each(), "map[1:accepted 2:refused 3:refused]")
	want(t, "letters", l.got, []string{"1 b dropped"})
}

// R567: who acknowledges a message and then publishes finds the room, and the key, that the acknowledgement sets free, on another node as
// well, whichever of the two paths to it is the faster one.
func TestPublishBehindAnAckOnAnotherNode(t *testing.T) {
	def := set(transient(7), queue.Settings{Deduplicate: queue.MessageIDKey})
	r := newFarRig(t, newFakeLog(), []QueueDef{def}, newest)
	h, tk, s := r.queue(7), &tickets{}, &sink{}
	one := body("one", wire.PropertySet{MessageID: "1"})
	id := h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	putBodies(h, tk, false, one)
	r.settle()
	want(t, "deliveries", s.texts(), []string{"one"})
	h.Settle(id, ids(1, 1), queue.Ack)
	h.Publish([]Publish{{Message: one, Ticket: tk, Seq: 2}})
	h.Publish([]Publish{{Message: one, Ticket: tk, Seq: 3}}) // nothing was settled before it
	r.entry.Shard(0).Step()
	for r.net.deliver(route{entryNode, homeNode, true}) {
		for r.node.Shard(0).Step() {
		}
	}
	r.settle()
	want(t, "outcomes", tk.got, []outcome{{1, 1, Accepted}, {2, 2, Accepted}, {3, 3, Refused}})
	want(t, "deliveries behind the ack", s.texts(), []string{"one", "one"})
}

// screenedBody is a message that has come through an exchange which lets nothing through twice.
func screenedBody(text string, key any, by *Screen, tk Ticket, seq uint64) Publish {
	return Publish{Message: keyedBody(text, key), Persistent: true, Screen: by, Ticket: tk, Seq: seq}
}

// R550 R553: what has come through an exchange that lets nothing through twice counts as accepted when it comes again, also when it is carried; through another
// exchange, through none, and without a key it comes in.
func TestScreenedMessages(t *testing.T) {
	for _, def := range []QueueDef{durable(7), set(durable(7), queue.Settings{Deduplicate: queue.MessageIDKey})} {
		r := newRig(t, newFakeLog(), []QueueDef{def}, newest)
		h, tk, s := r.queue(7), &tickets{}, &sink{}
		x, y := &Screen{Exchange: 8, Keys: 10}, &Screen{Exchange: 9, Keys: 10}
		carried := screenedBody("A", "a", x, tk, 3)
		carried.Carried = true
		plain := Publish{Message: body("plain", wire.PropertySet{}), Persistent: true, Screen: x, Ticket: tk, Seq: 6}
		again := plain
		again.Seq = 7
		big := screenedBody("a head", "b", x, tk, 8)
		big.Message.Chunks = [][]byte{[]byte("and "), []byte("more")}
		bigger := big
		bigger.Seq = 9
		h.Publish([]Publish{
			screenedBody("a", "a", x, tk, 1), screenedBody("A", "a", x, tk, 2), carried, screenedBody("other", "a", y, tk, 4),
			screenedBody("direct", "a", nil, tk, 5), plain, again, big, bigger,
		})
		r.settle()
		h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
		r.settle()
		want(t, "outcomes", tk.each(), "map[1:accepted 2:accepted 3:accepted 4:accepted 5:accepted 6:accepted 7:accepted 8:accepted 9:accepted]")
		want(t, "deliveries", len(s.texts()), 6)
		want(t, "the first", s.texts()[:5], []string{"a", "other", "direct", "plain", "plain"})
		want(t, "duplicates", r.host(7).reg.Duplicates(), uint64(3))
	}
}

// R552: a message may say for how long it is to be known again; what makes no sense does not count.
func TestScreenedForAsLongAsTheMessageSays(t *testing.T) {
	for _, c := range []struct {
		header any
		want   queue.Limit
	}{
		{nil, queue.Most(500)}, {int32(20), queue.Most(20)}, {int64(message.MostDelay), queue.Most(message.MostDelay)}, {int32(0), queue.Most(0)}, {int32(-7), queue.Most(0)},
		{int64(message.MostDelay + 1), queue.Most(500)}, {"20", queue.Most(500)}, {1.5, queue.Most(500)},
	} {
		p := wire.NewProperties(wire.PropertySet{Headers: wire.Table{}.Append(message.CacheTTLHeader, c.header)})
		got := (&Screen{Exchange: 3, Window: queue.Most(500), Keys: 9}).of(queue.Key{1}, p)
		want(t, fmt.Sprint(c.header), *got, queue.Screen{Exchange: 3, Key: queue.Key{1}, Window: c.want, Keys: 9})
	}
}

// R622: a message that is confirmed and is to survive a restart is there after it, also where the same had come before and was not to survive it.
func TestPersistentMessageBehindTheSameTransientOne(t *testing.T) {
	x := &Screen{Exchange: 8, Keys: 10}
	id := func(text, id string) message.Message { return body(text, wire.PropertySet{MessageID: id}) }
	for name, c := range map[string]struct {
		set     queue.Settings
		by      *Screen
		message func(text string) message.Message
	}{
		"exchange":  {queue.Settings{}, x, func(text string) message.Message { return keyedBody(text, "a") }},
		"window":    {queue.Settings{Deduplicate: queue.MessageIDKey, Window: queue.Most(60_000), WindowBytes: 1 << 20}, nil, func(text string) message.Message { return id(text, "a") }},
		"publisher": {queue.Settings{Deduplicate: queue.PublisherKey, WindowBytes: 1 << 20}, nil, func(text string) message.Message { return fromPublisher(text, "p", 4) }},
	} {
		def := set(durable(7), c.set)
		r := newRig(t, newFakeLog(), []QueueDef{def}, newest)
		put := func(text string, persistent bool) {
			t.Helper()
			tk := &tickets{}
			r.queue(7).Publish([]Publish{{Message: c.message(text), Persistent: persistent, Screen: c.by, Ticket: tk, Seq: 1}})
			r.settle()
			want(t, name+": outcome of "+text, tk.each(), "map[1:accepted]")
		}
		put("transient", false)
		put("transient again", false)
		put("persistent", true)
		put("persistent again", true)
		want(t, name+": ready", r.queue(7).Stats().Ready, uint64(2))
		r = newRig(t, r.log.crashed(), []QueueDef{def}, newest)
		s := &sink{}
		put("behind the crash", true)
		r.queue(7).Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
		r.settle()
		want(t, name+": deliveries", len(s.got), 1)
	}
}

// R621: what has had its time is forgotten also where nobody uses the queue any more, before a restart and after it, and by few entries.
func TestKeysOfAnIdleQueueAreForgotten(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		r := newRig(t, newFakeLog(), []QueueDef{durable(7)}, newest)
		x := &Screen{Exchange: 8, Keys: 1000, Window: queue.Most(150_000)}
		for i := range 100 {
			r.queue(7).Publish([]Publish{screenedBody("a", int32(i), x, &tickets{}, 1)})
			r.settle()
			r.clock.Advance(100 * time.Millisecond)
		}
		r.queue(7).Purge(func(uint64, error) {})
		r.settle()
		if restarts {
			clk := r.clock
			r = newRig(t, r.log.crashed(), []QueueDef{durable(7)}, newest)
			r.clock.Advance(time.Duration(clk.Mono() - r.clock.Mono()))
			r.settle()
		}
		before := len(r.log.records)
		for range 300 {
			r.clock.Advance(time.Second)
			r.host(7).reg.Tick()
			r.settle()
		}
		n, _ := r.host(7).m.Keys()
		want(t, fmt.Sprintf("restarts %v: keys", restarts), n, 0)
		if entries := len(r.log.records) - before; entries > 3 {
			t.Errorf("restarts %v: %d entries", restarts, entries)
		}
	}
}
