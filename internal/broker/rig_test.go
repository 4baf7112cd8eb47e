package broker

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"holdfast/internal/amqperr"
	"holdfast/internal/auth"
	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/config"
	"holdfast/internal/message"
	"holdfast/internal/queuehost"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/vfs"
	"holdfast/internal/wire"
)

// rig is a broker over the real catalog, the real queues and a log in memory.
type rig struct {
	*Broker
	t      testing.TB
	groups *replica.Node
	disk   *vfs.Mem
}

const (
	vhost = "/"
	guest = "guest"
)

func newRig(t testing.TB) *rig {
	t.Helper()
	return newRigAt(t, clock.System(), nil)
}

// newRigAt is newRig with queues whose time is clk, and a way to other nodes, if there are any.
func newRigAt(t testing.TB, clk clock.Clock, link queuehost.Link) *rig {
	t.Helper()
	return newRigWith(t, queuehost.Options{Clock: clk, Link: link})
}

// newRigWith is newRig with queues of these options, which lack what the rig has.
func newRigWith(t testing.TB, o queuehost.Options) *rig {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	settings := config.Default()
	disk := vfs.NewMem()
	log, err := seglog.Open(disk, "log", seglog.Options{
		SegmentMin: 1 << 20, SegmentMax: 4 << 20, Logger: quiet, Clock: clock.System(),
	})
	if err != nil {
		t.Fatal(err)
	}
	groups := replica.Open(replica.Options{Log: log, Shards: 2, Logger: quiet})
	machine := catalog.New()
	commands := groups.NewSimpleGroup(1, machine)
	o.Log, o.Node, o.Logger = log, groups, quiet
	queues := queuehost.New(o)
	b := New(Options{
		Catalog: machine, Commands: commands, Queues: queues,
		Settings: settings, Clock: clock.System(), Logger: quiet, Node: 1, NewReader: func() *Reader { return queuehost.NewReader(log.NewReader()) },
	})
	queues.SetOwner(b)
	if err := groups.Replay(queues.Host); err != nil {
		t.Fatal(err)
	}
	groups.Start()
	t.Cleanup(func() {
		b.letters.stop(patience)
		if err := groups.Close(false); err != nil {
			t.Error(err)
		}
		if err := log.Close(false); err != nil {
			t.Error(err)
		}
	})
	r := &rig{Broker: b, t: t, groups: groups, disk: disk}
	started := r.must(catalog.NewIncarnation(1))
	r.must(catalog.Bootstrap(catalog.Defaults{
		VHost: vhost, User: catalog.User{Name: guest}, Configure: ".*", Write: ".*", Read: ".*",
	}))
	b.Begin(started.Incarnation)
	return r
}

// must carries out a command of the catalog.
func (r *rig) must(cmd []byte) *catalog.Result {
	r.t.Helper()
	result, err := r.propose(cmd, false)
	if err != nil {
		r.t.Fatal(err)
	}
	return result
}

// client is a connection as a session would hold it.
type client struct {
	*Conn
	t       testing.TB
	mu      sync.Mutex
	closed  *amqperr.Error
	blocked string
	told    int      // how often Block was called
	held    []string // what Hold was called with; "": let go
}

func (c *client) Info() ConnectionInfo    { return ConnectionInfo{State: "running"} }
func (c *client) Channels() []ChannelInfo { return []ChannelInfo{{Number: 1}} }
func (c *client) Close(why *amqperr.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed == nil {
		c.closed = why
		go c.Conn.Close(nil)
	}
}

func (c *client) Block(on bool, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blocked, c.told = "", c.told+1
	if on {
		c.blocked = reason
	}
}

func (c *client) Hold(on bool, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !on {
		reason = ""
	}
	c.held = append(c.held, reason)
}

func (c *client) wasClosed() *amqperr.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func (r *rig) connect() *client { return r.connectAs(guest) }

func (r *rig) connectAs(user string) *client {
	r.t.Helper()
	c := &client{t: r.t}
	conn, err := r.Register(&auth.Identity{Name: user}, vhost, "connection of "+user, c)
	if err != nil {
		r.t.Fatal(err)
	}
	c.Conn = conn
	return c
}

// end closes the connection and waits until its exclusive queues are gone.
func (c *client) end() {
	done := make(chan struct{})
	c.Conn.Close(func() { close(done) })
	wait(c.t, done)
}

// refused checks the code and scope of a refusal; code 0: none is expected.
func refused(t testing.TB, what string, err *amqperr.Error, code uint16) {
	t.Helper()
	switch {
	case err == nil && code != 0:
		t.Errorf("%s: allowed, want %d", what, code)
	case err != nil && err.Code != code:
		t.Errorf("%s: %v, want code %d", what, err, code)
	}
}

func ok(t testing.TB, what string, err *amqperr.Error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func wait(t testing.TB, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("waited in vain")
	}
}

// patience bounds every wait for something that must come about. Only what goes
// wrong takes it, and a machine that is slow or busy is not wrong.
const patience = time.Minute

// eventually waits until something is true.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

func (c *client) declare(d DeclareQueue) string {
	c.t.Helper()
	q, err := c.DeclareQueue(d)
	ok(c.t, "declare", err)
	return q.Name
}

// tickets collects outcomes.
type tickets struct {
	mu   sync.Mutex
	want int
	all  []Outcome
	done chan struct{}
}

func newTickets(want int) *tickets { return &tickets{want: want, done: make(chan struct{})} }

func (t *tickets) Settled(first, last uint64, o Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for range last - first + 1 {
		t.all = append(t.all, o)
	}
	if t.want > 0 && len(t.all) >= t.want {
		close(t.done)
		t.want = 0
	}
}

// publish publishes one message and returns the number of its queues.
func publish(p *Publisher, exchange, key string, properties wire.Properties, body string, ticket Ticket, seq uint64) (int, *amqperr.Error) {
	route, err := p.Route([]byte(exchange), []byte(key), properties)
	if err != nil {
		return 0, err
	}
	var b message.Builder
	persistent := properties.DeliveryMode() == 2
	b.Begin(exchange, key, route.Properties(), uint64(len(body)), persistent)
	if body != "" {
		b.Write([]byte(body))
	}
	p.Publish(&route, Publish{Message: b.Message(), Persistent: persistent, Ticket: ticket, Seq: seq})
	return route.Queues(), nil
}

// send publishes one message and waits until it is in its queues.
func (c *client) send(exchange, key, body string) int {
	c.t.Helper()
	p := c.Publisher()
	t := newTickets(1)
	n, err := publish(p, exchange, key, wire.NewProperties(wire.PropertySet{DeliveryMode: 2}), body, t, 1)
	ok(c.t, "publish", err)
	t.mu.Lock()
	t.want = n
	t.mu.Unlock()
	p.Flush()
	if n > 0 {
		wait(c.t, t.done)
	}
	return n
}

// receiver is a session's consumer that keeps what it gets.
type receiver struct {
	mu        sync.Mutex
	bodies    []string
	ids       []uint64
	cancelled error
}

func (r *receiver) Deliver(ds []Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range ds {
		body := "(on disk)"
		if d.Load == nil {
			v, _ := message.Parse(d.Message.Head)
			body = string(v.Body)
		} else {
			d.Load.Drop()
		}
		r.bodies = append(r.bodies, body)
		r.ids = append(r.ids, d.ID)
	}
}

func (r *receiver) Cancelled(reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancelled = reason
}
func (r *receiver) Drained(uint32) {}
func (r *receiver) Wake()          {}

func (r *receiver) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.bodies...)
}

func (r *receiver) wasCancelled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cancelled != nil
}
