package broker

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/message"
	"holdfast/internal/queuehost"
	"holdfast/internal/wire"
)

// thread is a node's end of a link to another one that has room for all.
type thread struct {
	self  uint64
	lines [2]chan []byte
}

func newThread(self uint64) *thread {
	return &thread{self, [2]chan []byte{make(chan []byte, 10000), make(chan []byte, 10000)}}
}

func (l *thread) Self() uint64 { return l.self }

func (l *thread) Send(_ uint64, bulk bool, add func([]byte) []byte) bool {
	line := l.lines[0]
	if bulk {
		line = l.lines[1]
	}
	if len(line) == cap(line) {
		panic("the test sends more than it has room for")
	}
	line <- add(nil)
	return true
}

// twoNodes are brokers with consumers of direct replies: nodes 1 and 2 of a cluster of four, each with a catalog of its own.
func twoNodes(t *testing.T) (one, two *rig) {
	ends := [2]*thread{newThread(1), newThread(2)}
	var rigs [2]*rig
	for i, end := range ends {
		r := newRigWith(t, queuehost.Options{
			Clock: clock.System(), Link: end, Level: func() uint16 { return 2 },
			Reply: func(vhost, name []byte) *queuehost.Handle { return rigs[i].ReplyQueue(vhost, name) },
		})
		r.inCluster()
		for id := uint64(1); id <= 4; id++ {
			r.must(catalog.SetLevels(id, catalog.Levels{Least: 1, Most: 2}))
		}
		r.must(catalog.RaiseLevel(2))
		r.node, r.self = end.self, end.self
		rigs[i] = r
	}
	one, two = rigs[0], rigs[1]
	var carried sync.WaitGroup
	for i, end := range ends {
		for _, line := range end.lines {
			carried.Go(func() {
				for msg := range line {
					rigs[1-i].queues.Receive(end.self, msg)
				}
			})
		}
	}
	one.queues.LinkUp(2, 1)
	two.queues.LinkUp(1, 1)
	t.Cleanup(func() { // before the queues end
		one.queues.LinkDown(2, nil)
		two.queues.LinkDown(1, nil)
	})
	return one, two
}

// asks consumes direct replies and returns the name by which they reach it.
func (c *client) asks(channel uint16) (name string, got *receiver, s *Subscription) {
	c.t.Helper()
	got = &receiver{}
	s, err := c.Consume(Consume{Queue: ReplyTo, Tag: "t", Channel: channel, NoAck: true, Credit: Unlimited, Consumer: got})
	ok(c.t, "consume", err)
	return s.ReplyTo(), got, s
}

func arrive(t *testing.T, what string, got *receiver, want ...string) {
	t.Helper()
	eventually(t, what, func() bool { return len(got.got()) >= len(want) })
	if bodies := got.got(); !reflect.DeepEqual(bodies, want) {
		t.Errorf("%s: %q, want %q", what, bodies, want)
	}
}

// R569 R571: a reply reaches a consumer of another node, in order, alone or as a copy; one that has left drops it. It is confirmed either
// way, and counts as routed.
func TestRepliesToAnotherNode(t *testing.T) {
	one, two := twoNodes(t)
	asking, serving := two.connect(), one.connect()
	first, got, s := asking.asks(1)
	second, more, _ := asking.asks(2)
	var sent, copies []string
	for i := range 300 {
		sent = append(sent, fmt.Sprint(i))
		if n := serving.send("", first, sent[i]); n != 1 {
			t.Fatalf("the reply goes to %d queues", n)
		}
	}
	p, told := serving.Publisher(), newTickets(4)
	props := wire.NewProperties(wire.PropertySet{}).WithHeaders(wire.NewTable(map[string]any{"CC": []any{first, second, second}}))
	for i := range 2 {
		sent, copies = append(sent, fmt.Sprint("copy", i)), append(copies, fmt.Sprint("copy", i))
		if n, err := publish(p, "", first, props, fmt.Sprint("copy", i), told, uint64(i)); err != nil || n != 2 {
			t.Fatalf("copies go to %d queues: %v", n, err)
		}
	}
	if len(p.dirty) != 1 {
		t.Errorf("they are lined up in %d places", len(p.dirty))
	}
	p.Flush()
	wait(t, told.done)
	arrive(t, "replies", got, sent...)
	arrive(t, "copies", more, copies...)
	s.Detach(nil)
	if n := serving.send("", first, "too late"); n != 1 {
		t.Errorf("a reply to one that has left goes to %d queues", n)
	}
	serving.send("", second, "last")
	arrive(t, "the other", more, append(copies, "last")...)
	one.Sync()
	serving.send("", second, "after a look at the catalog")
	arrive(t, "the other", more, append(copies, "last", "after a look at the catalog")...)
}

// R569: a reply that names very many consumers, who may be made up, is in memory once.
func TestReplyToVeryMany(t *testing.T) {
	one, two := twoNodes(t)
	asking, serving := two.connect(), one.connect()
	name, got, _ := asking.asks(1)
	const many = 500
	names := []any{name}
	for range many - 1 {
		names = append(names, two.replyName())
	}
	p, told := serving.Publisher(), newTickets(many)
	props := wire.NewProperties(wire.PropertySet{}).WithHeaders(wire.NewTable(map[string]any{"CC": names}))
	body := strings.Repeat("x", 100_000)
	if n, err := publish(p, "", name, props, body, told, 1); err != nil || n != many {
		t.Fatalf("the reply goes to %d queues: %v", n, err)
	}
	for i := range p.dirty[0].lined.publishes {
		if head := p.dirty[0].lined.publishes[i].Message.Head; &head[0] != &p.dirty[0].lined.publishes[0].Message.Head[0] {
			t.Fatalf("reply %d is a copy of %d bytes", i, len(head))
		}
	}
	p.Flush()
	wait(t, told.done)
	arrive(t, "the reply", got, body)
}

// R570: names that nobody can have, of no node of the cluster, or in a cluster whose nodes do not all take replies from others, lead
// nowhere; those that this node or another one can have given are never returned.
func TestNamesOfReplies(t *testing.T) {
	one, two := twoNodes(t)
	c := one.connect()
	of := func(node uint64) string { return (&Broker{node: node}).replyName() }
	name, _, _ := two.connect().asks(1)
	for what, x := range map[string]struct {
		name       string
		queues     int
		unroutable bool
	}{
		"there":            {name, 1, false},
		"not there":        {of(2), 1, false},
		"away":             {of(4), 1, false},
		"this node":        {of(1), 0, false},
		"no node":          {of(0), 0, true},
		"a foreign node":   {of(5), 0, true},
		"any bits":         {of(1<<63 + 7), 0, true},
		"short":            {name[:len(name)-1], 0, true},
		"long":             {name + "A", 0, true},
		"broken":           {name + "\n", 0, true},
		"not base64":       {name[:len(name)-1] + "!", 0, true},
		"without a prefix": {strings.TrimPrefix(name, "amq."), 0, true},
	} {
		route, err := c.Publisher().Route(nil, []byte(x.name), nil)
		if err != nil || route.Queues() != x.queues || route.Unroutable() != x.unroutable || route.MayVanish() {
			t.Errorf("%s: %d queues, unroutable %v, may vanish %v, %v", what, route.Queues(), route.Unroutable(), route.MayVanish(), err)
		}
	}
	old := newRigAt(t, clock.System(), deaf{})
	old.inCluster()
	if route, err := old.connect().Publisher().Route(nil, []byte(name), nil); err != nil || !route.Unroutable() {
		t.Errorf("in a cluster of the first level: %+v, %v", route, err)
	}
}

// R569: a transaction's replies arrive when it is committed, also those whose routes were found before others.
func TestRepliesOfATransactionToAnotherNode(t *testing.T) {
	one, two := twoNodes(t)
	asking, serving := two.connect(), one.connect()
	first, got, s := asking.asks(1)
	second, more, _ := asking.asks(2)
	serving.declare(DeclareQueue{Name: "q"})
	p := serving.Publisher()
	var held []Held
	for _, key := range []string{first, "q", second, first} {
		route, err := p.Route(nil, []byte(key), nil)
		ok(t, "route", err)
		held = append(held, p.Hold(&route))
	}
	for i := range held {
		var b message.Builder
		b.Begin("", "", nil, 1, false)
		b.Write([]byte(fmt.Sprint(i)))
		p.PublishHeld(&held[i], b.Message())
	}
	if n := p.Involved(); n != 2 {
		t.Errorf("%d queues are involved", n)
	}
	told := newTickets(2)
	p.Commit(told)
	wait(t, told.done)
	arrive(t, "the first", got, "0", "3")
	arrive(t, "the second", more, "2")
	s.Detach(nil)
	p.PublishHeld(&held[0], message.Message{Head: []byte{}})
	told = newTickets(1)
	p.Commit(told)
	wait(t, told.done)
	for _, o := range told.all {
		if o != Accepted {
			t.Errorf("outcome %v", o)
		}
	}
}

// R572: whether a consumer of another node is there can be asked with a passive declare. Where nobody can say, it is not.
func TestDeclareOfRepliesOnAnotherNode(t *testing.T) {
	one, two := twoNodes(t)
	name, _, s := two.connect().asks(1)
	c := one.connect()
	_, err := c.DeclareQueue(DeclareQueue{Name: name, Passive: true})
	refused(t, "when nobody can be asked", err, 404)
	asked := 0
	one.replyAt = func(node uint64, vhost, name string) bool {
		asked++
		return node == 2 && two.hasReply(vhost, name)
	}
	if q, err := c.DeclareQueue(DeclareQueue{Name: name, Passive: true}); err != nil || q.Name != name || q.Consumers != 1 {
		t.Errorf("declared: %+v, %v", q, err)
	}
	if one.hasReply("another", name) {
		t.Error("it is there in another virtual host")
	}
	s.Detach(nil)
	_, err = c.DeclareQueue(DeclareQueue{Name: name, Passive: true})
	refused(t, "afterwards", err, 404)
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
	for _, name := range []string{(&Broker{node: 7}).replyName(), ReplyTo + ".nobody"} {
		_, err = c.DeclareQueue(DeclareQueue{Name: name, Passive: true})
		refused(t, name, err, 404)
	}
	if asked != 3 {
		t.Error("a node was asked that is none of the cluster's")
	}
}

// R573: who replies to a consumer of a node that has an alarm is held back.
func TestRepliesToANodeWithAnAlarm(t *testing.T) {
	one, two := twoNodes(t)
	name, got, _ := two.connect().asks(1)
	one.SetAlarmsElsewhere([]NodeAlarms{{Node: 2, Name: "n2", Kinds: []AlarmKind{AlarmMemory}}})
	c := one.connect()
	c.send("", name, "x")
	arrive(t, "the reply", got, "x")
	if told := c.holds(); !reflect.DeepEqual(told, []string{"low on memory at node n2"}) {
		t.Errorf("told %q", told)
	}
	one.SetAlarmsElsewhere(nil)
	if told := c.holds(); len(told) != 2 || told[1] != "" {
		t.Errorf("told %q", told)
	}
}

// R574: a dead letter reaches a consumer of direct replies on another node.
func TestDeadLettersToRepliesOnAnotherNode(t *testing.T) {
	one, two := twoNodes(t)
	name, got, s := two.connect().asks(1)
	c := one.connect()
	c.declare(DeclareQueue{Name: "work", Durable: true, Arguments: wire.NewTable(map[string]any{
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name,
	})})
	c.send("", "work", "dead")
	one.reject("work")
	arrive(t, "the letter", got, "dead")
	s.Detach(nil)
	c.send("", "work", "too late")
	one.reject("work")
	eventually(t, "it is dropped", func() bool { d := one.letters.totals(); return d.Confirmed == 2 && d.UnderWay == 0 })
}
