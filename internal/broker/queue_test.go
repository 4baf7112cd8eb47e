package broker

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/queuehost"
	"holdfast/internal/wire"
)

// Declaring again what is there is answered from the view, without a command.
func TestRedeclareWritesNothing(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	args := wire.NewTable(map[string]any{"x-foo": int32(1)})
	c.declare(DeclareQueue{Name: "q", Durable: true, Arguments: args})
	ok(t, "exchange", c.DeclareExchange(DeclareExchange{Name: "x", Type: "topic"}))
	c.send("", "q", "one")
	before := r.view().Generation()
	q, err := c.DeclareQueue(DeclareQueue{Name: "q", Durable: true, Arguments: args})
	ok(t, "redeclare", err)
	ok(t, "exchange", c.DeclareExchange(DeclareExchange{Name: "x", Type: "topic"}))
	if q.Messages != 1 || q.Consumers != 0 {
		t.Errorf("redeclare says %+v", q)
	}
	if now := r.view().Generation(); now != before {
		t.Errorf("the catalog went from %d to %d", before, now)
	}
}

// T26, T29: what a declare of something that is there is refused for.
func TestDeclareRefusals(t *testing.T) {
	r := newRig(t)
	owner, other := r.connect(), r.connect()
	owner.declare(DeclareQueue{Name: "durable", Durable: true})
	owner.declare(DeclareQueue{Name: "mine", Exclusive: true})
	for _, c := range []struct {
		what string
		who  *client
		d    DeclareQueue
		code uint16
	}{
		{"durable flipped", owner, DeclareQueue{Name: "durable"}, 406},
		{"auto-delete flipped", owner, DeclareQueue{Name: "durable", Durable: true, AutoDelete: true}, 406},
		{"exclusive flipped", owner, DeclareQueue{Name: "durable", Durable: true, Exclusive: true}, 405},
		{"same", owner, DeclareQueue{Name: "durable", Durable: true}, 0},
		{"own exclusive", owner, DeclareQueue{Name: "mine", Exclusive: true}, 0},
		{"somebody else's exclusive", other, DeclareQueue{Name: "mine", Exclusive: true}, 405},
		{"somebody else's exclusive, passively", other, DeclareQueue{Name: "mine", Passive: true}, 405},
		{"missing, passively", other, DeclareQueue{Name: "none", Passive: true}, 404},
		{"reserved", other, DeclareQueue{Name: "amq.mine"}, 403},
		{"a feature that is not there", other, DeclareQueue{Name: "ttl", Arguments: wire.NewTable(map[string]any{"x-message-ttl": int32(1)})}, 406},
	} {
		_, err := c.who.DeclareQueue(c.d)
		refused(t, c.what, err, c.code)
	}
}

// T29: an exclusive queue is for its connection alone, and goes with it.
func TestExclusiveQueue(t *testing.T) {
	r := newRig(t)
	owner, other := r.connect(), r.connect()
	owner.declare(DeclareQueue{Name: "mine", Exclusive: true})
	locked := func(what string, err *amqperr.Error) {
		t.Helper()
		refused(t, what, err, 405)
	}
	_, err := other.DeleteQueue(DeleteQueue{Name: "mine"})
	locked("delete", err)
	_, err = other.PurgeQueue("mine")
	locked("purge", err)
	_, err = other.Get(Get{Queue: "mine", Channel: 1})
	locked("get", err)
	_, err = other.Consume(Consume{Queue: "mine", Tag: "t", Channel: 1, Consumer: &receiver{}})
	locked("consume", err)
	locked("bind", other.Bind(Bind{Source: "amq.direct", Destination: "mine"}))
	ok(t, "bind of the owner", owner.Bind(Bind{Source: "amq.direct", Destination: "mine"}))
	locked("bind of what is bound", other.Bind(Bind{Source: "amq.direct", Destination: "mine"}))
	locked("unbind", other.Unbind(Bind{Source: "amq.direct", Destination: "mine"}))
	if n := other.send("", "mine", "anybody may publish"); n != 1 {
		t.Errorf("published to %d queues", n)
	}
	owner.end()
	if q := r.view().Queue(vhost, "mine"); q != nil {
		t.Error("the queue is there after its owner's close")
	}
	other.declare(DeclareQueue{Name: "mine", Exclusive: true})
}

// A name of the server's is new each time, and may not be asked for.
func TestServerNamedQueues(t *testing.T) {
	c := newRig(t).connect()
	first, second := c.declare(DeclareQueue{}), c.declare(DeclareQueue{})
	if !strings.HasPrefix(first, "amq.gen-") || first == second || len(first) < len("amq.gen-")+20 {
		t.Errorf("names %q and %q", first, second)
	}
	_, err := c.DeclareQueue(DeclareQueue{Name: first})
	refused(t, "declare by the server's name", err, 403)
	_, err = c.DeclareQueue(DeclareQueue{Name: first, Passive: true})
	refused(t, "passive declare by the server's name", err, 0)
}

func TestDeleteQueue(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	c.declare(DeclareQueue{Name: "q", Durable: true})
	c.send("", "q", "one")
	c.send("", "q", "two")
	_, err := c.DeleteQueue(DeleteQueue{Name: "q", IfEmpty: true})
	refused(t, "if-empty", err, 406)
	got := &receiver{}
	_, err = c.Consume(Consume{Queue: "q", Tag: "t", Channel: 1, Credit: 1, Consumer: got})
	ok(t, "consume", err)
	_, err = c.DeleteQueue(DeleteQueue{Name: "q", IfUnused: true})
	refused(t, "if-unused", err, 406)
	if n := c.send("", "q", "three"); n != 1 {
		t.Errorf("a refused delete left %d queues", n)
	}
	eventually(t, "a delivery", func() bool { return len(got.got()) == 1 })
	n, err := c.DeleteQueue(DeleteQueue{Name: "q"})
	ok(t, "delete", err)
	if n != 2 {
		t.Errorf("deleted %d ready messages, want 2", n)
	}
	if !got.wasCancelled() {
		t.Error("the consumer was not told before the answer")
	}
	n, err = c.DeleteQueue(DeleteQueue{Name: "q"})
	if n != 0 || err != nil {
		t.Errorf("second delete: %d, %v", n, err)
	}
	if q, err := c.DeclareQueue(DeclareQueue{Name: "q", Durable: true}); err != nil || q.Messages != 0 {
		t.Errorf("declared anew: %+v, %v", q, err)
	}
}

// Deletes that meet in the queue's line all succeed: the later ones find it
// sealed, which is no reason to tell a client that it is not there.
func TestRacingDeletes(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	for range 10 {
		name := c.declare(DeclareQueue{Name: "q"})
		release := r.halt(name)
		answers := make(chan *amqperr.Error, 3)
		for range cap(answers) {
			go func() {
				_, err := c.DeleteQueue(DeleteQueue{Name: name})
				answers <- err
			}()
		}
		time.Sleep(5 * time.Millisecond) // time to get in line
		release()
		for range cap(answers) {
			ok(t, "delete", <-answers)
		}
		if r.view().Queue(vhost, name) != nil {
			t.Fatal("the queue is still there")
		}
	}
}

// Operations on what is not there.
func TestMissingQueue(t *testing.T) {
	c := newRig(t).connect()
	_, err := c.PurgeQueue("none")
	refused(t, "purge", err, 404)
	_, err = c.Get(Get{Queue: "none", Channel: 1})
	refused(t, "get", err, 404)
	_, err = c.Consume(Consume{Queue: "none", Tag: "t", Channel: 1, Consumer: &receiver{}})
	refused(t, "consume", err, 404)
	refused(t, "bind", c.Bind(Bind{Source: "amq.direct", Destination: "none"}), 404)
	refused(t, "bind to an exchange", c.Bind(Bind{Source: "none", Destination: "amq.direct", ToExchange: true}), 404)
	refused(t, "unbind", c.Unbind(Bind{Source: "amq.direct", Destination: "none"}), 0) // T24
	refused(t, "bind to the default exchange", c.Bind(Bind{Source: "", Destination: "none"}), 403)
}

// Many declare the same queue at once: one makes it, all are told the same.
func TestRacingDeclares(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	for i := range 8 {
		c := r.connect()
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := range 100 {
				name := fmt.Sprintf("q%d", n)
				if _, err := c.DeclareQueue(DeclareQueue{Name: name, Durable: n%2 == 0}); err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				if _, err := c.PurgeQueue(name); err != nil {
					t.Errorf("client %d cannot use what it declared: %v", i, err)
					return
				}
			}
		}()
	}
	wg.Wait()
	if n := r.view().Queues(vhost).Len(); n != 100 {
		t.Errorf("%d queues", n)
	}
}

// heldCommands holds back the answers of the catalog that wait for the disk.
type heldCommands struct {
	Proposer
	hold chan struct{}
}

func (h *heldCommands) Propose(cmd []byte, waitStable bool, done func(any, error)) {
	if !waitStable {
		h.Proposer.Propose(cmd, waitStable, done)
		return
	}
	h.Proposer.Propose(cmd, waitStable, func(result any, err error) {
		go func() {
			<-h.hold
			done(result, err)
		}()
	})
}

// A durable queue is not there for others before its declare is on disk, and
// what others have found out meanwhile is not remembered.
func TestDurableQueueIsThereWhenItsDeclareIsOnDisk(t *testing.T) {
	r := newRig(t)
	held := &heldCommands{r.commands, make(chan struct{})}
	r.commands = held
	declaring, other := r.connect(), r.connect()
	declared := make(chan *amqperr.Error, 2)
	for _, c := range []*client{declaring, other} {
		go func() {
			_, err := c.DeclareQueue(DeclareQueue{Name: "q", Durable: true})
			declared <- err
		}()
	}
	eventually(t, "the queue is in the view", func() bool { return r.view().Queue(vhost, "q") != nil })
	p := other.Publisher()
	n, err := publish(p, "", "q", nil, "", nil, 0)
	if n != 0 || err != nil {
		t.Errorf("a publish went to %d queues, %v", n, err)
	}
	_, err = other.Get(Get{Queue: "q", Channel: 1})
	refused(t, "get", err, 404)
	if n, err := other.DeleteQueue(DeleteQueue{Name: "q"}); n != 0 || err != nil {
		t.Errorf("delete: %d, %v", n, err)
	}
	select {
	case err := <-declared:
		t.Errorf("declared before it was on disk: %v", err)
	default:
	}
	close(held.hold)
	ok(t, "declare", <-declared)
	ok(t, "declare", <-declared)
	n, err = publish(p, "", "q", nil, "", nil, 0)
	if n != 1 || err != nil {
		t.Errorf("then a publish went to %d queues, %v", n, err)
	}
	p.Flush()
}

// What somebody else is just making or removing is there, or gone, for others
// who ask for the same when that is on disk.
func TestTheSameWishWaitsForTheDisk(t *testing.T) {
	r := newRig(t)
	c, other := r.connect(), r.connect()
	c.declare(DeclareQueue{Name: "q", Durable: true})
	for _, w := range []struct {
		name string
		wish func(*client) *amqperr.Error
	}{
		{"declare", func(c *client) *amqperr.Error {
			return c.DeclareExchange(DeclareExchange{Name: "x", Type: "direct", Durable: true})
		}},
		{"bind", func(c *client) *amqperr.Error { return c.Bind(Bind{Source: "x", Destination: "q", RoutingKey: "k"}) }},
		{"unbind", func(c *client) *amqperr.Error { return c.Unbind(Bind{Source: "x", Destination: "q", RoutingKey: "k"}) }},
		{"delete", func(c *client) *amqperr.Error { return c.DeleteExchange(DeleteExchange{Name: "x"}) }},
	} {
		before := r.commands
		held := &heldCommands{before, make(chan struct{})}
		r.commands = held
		generation := r.view().Generation()
		answers := make(chan *amqperr.Error, 2)
		go func() { answers <- w.wish(c) }()
		eventually(t, w.name+" is in the view", func() bool { return r.view().Generation() != generation })
		go func() { answers <- w.wish(other) }()
		eventually(t, w.name+" waits twice", func() bool { return r.unstable.Load() == 2 || len(answers) > 0 })
		if len(answers) > 0 {
			t.Errorf("%s was answered before it was on disk", w.name)
		}
		close(held.hold)
		ok(t, w.name, <-answers)
		ok(t, w.name, <-answers)
		r.commands = before
		if n := r.unstable.Load(); n != 0 {
			t.Errorf("%s: %d commands are said to wait", w.name, n)
		}
	}
}

// An auto-delete queue goes with its last consumer, and only then. L25
func TestAutoDelete(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	c.declare(DeclareQueue{Name: "q", AutoDelete: true})
	attach := func(tag string) *Subscription {
		s, err := c.Consume(Consume{Queue: "q", Tag: tag, Channel: 1, Credit: Unlimited, Consumer: &receiver{}})
		ok(t, "consume", err)
		return s
	}
	a, b := attach("a"), attach("b")
	gone := make(chan struct{})
	a.Detach(func() { close(gone) })
	wait(t, gone)
	if _, err := c.DeclareQueue(DeclareQueue{Name: "q", Passive: true}); err != nil {
		t.Fatalf("with a consumer left: %v", err)
	}
	b.Detach(nil)
	eventually(t, "the queue goes", func() bool { return r.view().Queue(vhost, "q") == nil })
	c.declare(DeclareQueue{Name: "q", AutoDelete: true})
}

// Clients that attach and leave an auto-delete queue all the time: a declare
// is always answered by a queue that can be used right after, or that has gone
// because somebody left. Nothing is left behind.
func TestAutoDeleteChurn(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	for range 4 {
		c := r.connect()
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 100 {
				if _, err := c.DeclareQueue(DeclareQueue{Name: "q", AutoDelete: true}); err != nil {
					t.Errorf("declare: %v", err)
					return
				}
				s, err := c.Consume(Consume{Queue: "q", Tag: "t", Channel: 1, Credit: Unlimited, Consumer: &receiver{}})
				if err != nil {
					if err.Code != 404 {
						t.Errorf("consume: %v", err)
						return
					}
					continue
				}
				gone := make(chan struct{})
				s.Detach(func() { close(gone) })
				wait(t, gone)
			}
		}()
	}
	wg.Wait()
	eventually(t, "no queue left", func() bool { return r.view().Queue(vhost, "q") == nil })
	eventually(t, "no queue running", func() bool { return running(r) == 0 })
}

func running(r *rig) int {
	n := 0
	for range r.queues.All() {
		n++
	}
	return n
}

// L21: the exclusive queues of a closing connection go with one command, however many.
func TestManyExclusiveQueuesGoAtOnce(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	const many = 5000
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := w; i < many; i += 4 {
				if _, err := c.DeclareQueue(DeclareQueue{Name: fmt.Sprint(i), Exclusive: true}); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	wg.Wait()
	before := r.view().Generation()
	c.end()
	if n := r.view().Generation() - before; n != 1 {
		t.Errorf("%d commands", n)
	}
	if n := r.view().Queues(vhost).Len(); n != 0 {
		t.Errorf("%d queues in the catalog", n)
	}
	if n := running(r); n != 0 {
		t.Errorf("%d queues running", n)
	}
}

// A declare that is under way while its connection closes leaves nothing behind.
func TestExclusiveDeclareRacesWithClose(t *testing.T) {
	r := newRig(t)
	for range 50 {
		c := r.connect()
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for n := range 5 {
					c.DeclareQueue(DeclareQueue{Name: fmt.Sprint(i, n), Exclusive: true})
				}
			}()
		}
		c.end()
		wg.Wait()
	}
	eventually(t, "no queue left", func() bool { return r.view().Queues(vhost).Len() == 0 && running(r) == 0 })
}

// A virtual host goes with all that is in it, and its connections are closed. L22
func TestDeleteVHost(t *testing.T) {
	r := newRig(t)
	if err := r.AddVHost("other", "", nil); err != nil {
		t.Fatal(err)
	}
	if err := r.SetPermissions("other", guest, ".*", ".*", ".*"); err != nil {
		t.Fatal(err)
	}
	c := &client{t: t}
	conn, err := r.Register(r.connect().user, "other", "c", c)
	ok(t, "register", err)
	c.Conn = conn
	for i := range 20 {
		c.declare(DeclareQueue{Name: fmt.Sprint(i), Durable: true})
	}
	if err := r.Broker.DeleteVHost("other"); err != nil {
		t.Fatal(err)
	}
	if why := c.wasClosed(); why == nil || why.Code != 320 {
		t.Errorf("closed with %v", why)
	}
	if n := running(r); n != 0 {
		t.Errorf("%d queues still run", n)
	}
	if _, err := r.Register(c.user, "other", "c", c); err == nil || err.Code != 530 {
		t.Errorf("open of a deleted vhost: %v", err)
	}
	if err := r.Broker.DeleteVHost("other"); err == nil || err.(*AdminError).Kind != NotFound {
		t.Errorf("second delete: %v", err)
	}
}

// Definitions map onto running queues field by field.
func TestQueueDef(t *testing.T) {
	q := &catalog.Queue{ID: 70, VHost: "v", Name: "n", Durable: true, AutoDelete: true, Args: wire.NewTable(map[string]any{"a": "b"})}
	d := QueueDef(q)
	want := queuehost.QueueDef{ID: 70, VHost: "v", Name: "n", Durable: true, AutoDelete: true, Args: q.Args}
	if d.ID != want.ID || d.VHost != want.VHost || d.Name != want.Name || d.Durable != want.Durable ||
		d.Exclusive || d.AutoDelete != want.AutoDelete || string(d.Args) != string(want.Args) {
		t.Errorf("got %+v", d)
	}
}

// paces is a clock that tells of every pause before something is tried again.
type paces struct {
	clock.Clock
	paused chan struct{}
}

func (p paces) AfterFunc(d time.Duration, f func()) clock.Timer {
	if d <= againMost {
		select {
		case p.paused <- struct{}{}:
		default:
		}
	}
	return p.Clock.AfterFunc(d, f)
}

// Another node is deleting the queue: that is what was wanted, and no error. It is waited for in pauses.
func TestQueueThatAnotherNodeDeletes(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	tap := paces{r.clock, make(chan struct{}, 1)}
	r.clock = tap
	c.declare(DeclareQueue{Name: "q", Durable: true})
	q := r.view().Queue(vhost, "q")
	h := r.handle(q)
	sealed := make(chan struct{})
	h.Seal(false, false, func(uint64, error) { close(sealed) })
	wait(t, sealed)

	deleted := make(chan *amqperr.Error, 1)
	go func() {
		_, err := c.DeleteQueue(DeleteQueue{Name: "q"})
		deleted <- err
	}()
	wait(t, tap.paused)
	gone := make(chan struct{})
	r.dropQueues(r.must(catalog.DeleteQueues([]catalog.QueueID{q.ID})).Removed.Queues, func() { close(gone) })
	wait(t, gone)
	ok(t, "delete", <-deleted)
	c.declare(DeclareQueue{Name: "q", Durable: true})
}

// A queue that stays sealed is waited for as long as for any declare, in longer and longer pauses.
func TestQueueThatStaysSealed(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	c.declare(DeclareQueue{Name: "q", Durable: true})
	sealed := make(chan struct{})
	r.handle(r.view().Queue(vhost, "q")).Seal(false, false, func(uint64, error) { close(sealed) })
	wait(t, sealed)
	r.settings.DeclareTimeout = 20 * time.Millisecond
	_, err := c.DeleteQueue(DeleteQueue{Name: "q"})
	refused(t, "delete", err, 541)
	again := r.again()
	var waits []time.Duration
	for range 3 {
		waits = append(waits, again.wait)
		if err := again.pause(); err != nil {
			t.Fatal(err)
		}
	}
	if waits[0] != againFirst || waits[1] != 2*againFirst || waits[2] != 4*againFirst || !again.over() {
		t.Errorf("paused for %v; it is over: %v", waits, again.over())
	}
	r.Fail("the disk is broken")
	if again.pause() == nil {
		t.Error("a node that has failed waits")
	}
}
