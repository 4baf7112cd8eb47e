package peer

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/invariant"
)

// TCP is Links over TCP. This node dials each peer once for each lane and sends
// on the connections it dialled; it receives on those it accepted.
type TCP struct {
	o          Options
	instance   uint64
	greeter    greeter
	tls        *certificates // nil: none
	complaints complaints
	slots      chan struct{} // greetings that others have begun
	calls      chan struct{} // calls being answered

	byID atomic.Pointer[map[NodeID]*target] // never changed, replaced with mu held

	pulse   pulse // of whoever calls step
	steps   int
	beatMu  sync.Mutex // one Options.Beat at a time
	stopped chan struct{}
	work    sync.WaitGroup

	// mu comes before a target's.
	mu      sync.Mutex
	cluster ClusterID
	targets []*target
	leaving map[*target]NodeID    // given up, and not ended yet
	guests  map[net.Conn]struct{} // accepted, and not yet a target's
	closed  bool
}

var _ Links = (*TCP)(nil)

const (
	maxGreetings = 64
	maxCalls     = 16
	callTime     = 15 * time.Second
	partingTime  = time.Second
)

// Open starts to accept on o.Listener. There are no links until SetPeers.
func Open(o Options) *TCP {
	o.setDefaults()
	invariant.That(o.Listener != nil, "peer: TCP links without a listener")
	var instance [8]byte
	rand.Read(instance[:])
	t := &TCP{
		o: o, instance: binary.LittleEndian.Uint64(instance[:]), cluster: o.Cluster,
		complaints: complaints{log: o.Logger, clock: o.Clock},
		slots:      make(chan struct{}, maxGreetings), calls: make(chan struct{}, maxCalls),
		pulse:   newPulse(o.BeatEvery, o.BeatsMissed, o.Clock.Mono()),
		stopped: make(chan struct{}), leaving: map[*target]NodeID{}, guests: map[net.Conn]struct{}{},
	}
	t.byID.Store(&map[NodeID]*target{})
	t.greeter = greeter{self: t.self, secret: o.Secret}
	if o.TLS != nil {
		t.tls = &certificates{load: o.TLS, clock: o.Clock}
	}
	t.work.Add(2)
	go t.accept()
	go t.beats()
	return t
}

// self is what this node says of itself.
func (t *TCP) self() Hello {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Hello{
		Least: t.o.least, Most: t.o.most, Cluster: t.cluster, Node: t.o.Node, Incarnation: t.o.Incarnation,
		Instance: t.instance, Name: t.o.Name, Addr: t.o.Addr, Info: t.o.Info,
		Levels: t.o.Levels(), Line: t.o.Line(),
	}
}

// SetPeers is Links.SetPeers.
func (t *TCP) SetPeers(list []Target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	list = slices.DeleteFunc(slices.Clone(list), func(w Target) bool {
		return w.ID == t.o.Node || w.ID == 0 && w.Addr == t.o.Addr
	})
	old := t.targets
	kept := make([]*target, len(list)) // the target of each place
	taken := map[*target]bool{}
	pick := func(fits func(g *target, w Target) bool) {
		for i, w := range list {
			for _, g := range old {
				if kept[i] == nil && !taken[g] && fits(g, w) {
					kept[i], taken[g] = g, true
				}
			}
		}
	}
	pick(func(g *target, w Target) bool { return w.ID != 0 && g.who() == w.ID })
	pick(func(g *target, w Target) bool { return g.address() == w.Addr && (w.ID == 0 || g.who() == 0) })
	for _, g := range old {
		if !taken[g] {
			t.leaving[g] = g.who()
			g.giveUp(ErrRemoved)
		}
	}
	t.targets = nil
	named := map[NodeID]bool{}
	for i, w := range list {
		g := kept[i]
		switch {
		case g != nil:
			g.retarget(w)
		case w.ID != 0 && named[w.ID]:
			continue // the same twice
		default:
			g = newTarget(t, w)
			t.follow(g, w.ID)
			t.work.Add(1)
			go g.run()
		}
		if w.ID != 0 {
			named[w.ID] = true
		}
		t.targets = append(t.targets, g)
	}
	t.publish()
}

// publish makes the targets known to Send. mu is held.
func (t *TCP) publish() {
	byID := map[NodeID]*target{}
	for _, g := range t.targets {
		if id := g.who(); id != 0 {
			byID[id] = g
		}
	}
	t.byID.Store(&byID)
}

// follow lets a target wait for an earlier one of the same node. mu is held.
func (t *TCP) follow(g *target, id NodeID) {
	for earlier, its := range t.leaving {
		if its == id && id != 0 {
			g.mu.Lock()
			g.after = append(g.after, earlier.done)
			g.mu.Unlock()
		}
	}
}

// left is called by a target that ends.
func (t *TCP) left(g *target) {
	t.mu.Lock()
	delete(t.leaving, g)
	t.mu.Unlock()
	close(g.done)
	t.work.Done()
}

// bind says which node answers at a target's address.
func (t *TCP) bind(g *target, id NodeID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if other := (*t.byID.Load())[id]; other != nil && other != g {
		return errTwice
	}
	if g.isGone() {
		return ErrRemoved
	}
	g.mu.Lock()
	g.id = id
	g.mu.Unlock()
	t.follow(g, id)
	t.publish()
	return nil
}

var errTwice = errors.New("the node at this address is a peer under another address already")

// SetCluster is Links.SetCluster.
func (t *TCP) SetCluster(id ClusterID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cluster = id
	for _, g := range t.targets {
		g.mu.Lock()
		if g.link.count > 0 && differ(g.link.hello.Cluster, id) {
			g.link.failLocked(ErrCluster)
		}
		g.mu.Unlock()
	}
}

// Regreet breaks all links, those that are being made too, but to nodes that were kept by what they told: Line returns something else now.
func (t *TCP) Regreet(why error, keep func(its Hello) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.targets {
		g.mu.Lock()
		if g.link.count > 0 && !keep(g.link.hello) {
			g.link.failLocked(why)
		}
		g.mu.Unlock()
	}
}

// outdated reports whether Line has come to return something else since a greeting began in which this node told before. What the
// other node told may be that. A target's mu is held, so that either this finds it, or Regreet finds the connection.
func (t *TCP) outdated(before []byte, its Hello) bool {
	now := t.o.Line()
	return !bytes.Equal(now, before) && !bytes.Equal(now, its.Line)
}

// Send is Links.Send.
func (t *TCP) Send(to NodeID, l Lane, write func(dst []byte) []byte) bool {
	g := (*t.byID.Load())[to]
	if g == nil {
		return false
	}
	k := g.up.Load()
	return k != nil && k.out[l].put(write)
}

// Room is Links.Room.
func (t *TCP) Room(to NodeID, l Lane) int {
	if g := (*t.byID.Load())[to]; g != nil {
		if k := g.up.Load(); k != nil {
			return k.out[l].room()
		}
	}
	return 0
}

// Break is Links.Break.
func (t *TCP) Break(n NodeID, why error) {
	if g := (*t.byID.Load())[n]; g != nil {
		if k := g.up.Load(); k != nil {
			k.fail(why)
		}
	}
}

// Close is Links.Close.
func (t *TCP) Close() {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		t.work.Wait()
		return
	}
	t.closed = true
	targets := t.targets
	close(t.stopped)
	t.o.Listener.Close()
	for conn := range t.guests {
		conn.Close()
	}
	t.mu.Unlock()

	// What waits on the control lanes, and a word of parting behind it, may still
	// go out: the other side hangs up when it has read it.
	var links []*link
	for _, g := range targets {
		if k := g.part(ErrClosed); k != nil {
			links = append(links, k)
		}
	}
	patience := time.NewTimer(partingTime)
	defer patience.Stop()
	for _, k := range links {
		select {
		case <-k.broken:
		case <-patience.C:
			patience.Reset(0)
		}
	}
	for _, g := range targets {
		g.giveUp(ErrClosed)
	}
	t.work.Wait()
}

// beats steps the pulse.
func (t *TCP) beats() {
	defer t.work.Done()
	ticker := t.o.Clock.NewTicker(time.Duration(t.pulse.period))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C():
			t.step()
		case <-t.stopped:
			return
		}
	}
}

// step is one step of the pulse: heartbeats where they are due, and silences
// that grow too long.
func (t *TCP) step() {
	by := t.pulse.step(t.o.Clock.Mono())
	t.mu.Lock()
	targets := t.targets
	t.mu.Unlock()
	var payload []byte
	var now uint64
	if by.beat {
		payload, now = t.beat(), uint64(t.o.Clock.Mono())
	}
	t.steps++
	for _, g := range targets {
		if k := g.up.Load(); k != nil {
			if by.beat {
				k.out[Control].putBeat(payload, now)
			}
			if t.steps%8 == 0 {
				for _, l := range k.out {
					l.rest()
				}
			}
		}
		g.listen(by, t.pulse.limit)
	}
}

// beat is the payload of a heartbeat.
func (t *TCP) beat() []byte {
	t.beatMu.Lock()
	defer t.beatMu.Unlock()
	return t.o.beat(nil)
}

// accept takes connections in.
func (t *TCP) accept() {
	defer t.work.Done()
	for {
		conn, err := t.o.Listener.Accept()
		if err != nil {
			select {
			case <-t.stopped:
				return
			default:
			}
			t.complaints.refused("accept", "no connection of another node can be taken", "reason", err)
			expired, done := clock.After(t.o.Clock, 50*time.Millisecond)
			select {
			case <-expired:
			case <-t.stopped:
				done()
				return
			}
			continue
		}
		select {
		case t.slots <- struct{}{}:
		default:
			conn.Close()
			t.complaints.refused("slots", "connections of other nodes are refused: too many greet at once", "from", conn.RemoteAddr())
			continue
		}
		t.mu.Lock()
		if t.closed {
			conn.Close()
		} else {
			t.guests[conn] = struct{}{}
			t.work.Add(1)
			go t.receive(conn)
		}
		t.mu.Unlock()
	}
}

// receive greets whoever dialled, and does what the connection is for.
func (t *TCP) receive(raw net.Conn) {
	defer t.work.Done()
	before := t.o.Line()
	conn, s, err := t.prepare(raw)
	var its greeting
	if err == nil && t.tls != nil {
		conn, err = t.tls.accepted(conn)
	}
	var g *target
	called := false // a place for a call is taken
	if err == nil {
		err = greetWithin(conn, t.o.Greet, func() (e error) {
			its, e = t.greeter.accept(conn, func(its *greeting) (e error) {
				g, e = t.admit(its)
				called = e == nil && its.purpose == purposeCall
				return e
			})
			return e
		})
	}
	<-t.slots
	t.mu.Lock()
	delete(t.guests, raw)
	closed := t.closed
	t.mu.Unlock()
	if err != nil || closed {
		raw.Close()
		if called {
			<-t.calls
		}
		if err != nil && !closed {
			t.refused(raw, &its, err)
			t.unfit(its.Hello, err)
			t.apart(its.Hello, err)
		}
		return
	}
	s.stall = t.o.Stall
	switch {
	case its.purpose.isLane():
		g.take(conn, Lane(its.purpose), its.Hello, before)
	case its.purpose == purposeCall:
		t.answer(conn, raw, its.Hello)
	default:
		raw.Close()
	}
}

// admit has the last word in a greeting. For a lane it says whose it is.
func (t *TCP) admit(its *greeting) (*target, error) {
	switch {
	case its.purpose == purposeProbe:
		return nil, nil
	case its.purpose == purposeCall:
		select {
		case t.calls <- struct{}{}:
			return nil, nil
		default:
			return nil, ErrBusy
		}
	case !its.purpose.isLane():
		return nil, ErrGarbage
	}
	g := (*t.byID.Load())[its.Node]
	if g == nil {
		if g = t.at(its.Addr); g == nil || t.bind(g, its.Node) != nil {
			return nil, ErrStranger
		}
	}
	g.mu.Lock()
	earlier := its.Incarnation < g.incarnation
	g.mu.Unlock()
	if earlier {
		return nil, ErrEarlier
	}
	return g, t.meet(its.Hello)
}

// at is the target with an address of which nobody knows yet which node it is.
func (t *TCP) at(addr string) *target {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.targets {
		if g.who() == 0 && g.address() == addr {
			return g
		}
	}
	return nil
}

// refused writes why a connection was refused, once a minute for each reason and host.
func (t *TCP) refused(conn net.Conn, its *greeting, err error) {
	level := slog.LevelWarn
	if errors.Is(err, ErrStranger) || errors.Is(err, ErrSelf) {
		level = slog.LevelInfo
	}
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	args := []any{"from", host, "reason", err}
	if its.Node != 0 {
		name := its.Name
		if name == "" {
			name = t.o.Called(its.Node)
		}
		args = append(args, "node", name, "id", its.Node)
	}
	t.complaints.say(level, time.Minute, "in "+host+class(err), "a connection of another node was refused", args...)
}

// unfit tells of a node whose level this one does not know, if that is why there is no connection.
func (t *TCP) unfit(its Hello, err error) {
	if t.o.Unfit != nil && errors.Is(err, ErrLevel) && !t.o.Levels().knows(its.Levels.Cluster) {
		t.o.Unfit(its)
	}
}

// meet asks whether there may be a link.
func (t *TCP) meet(its Hello) error {
	if t.o.Meet == nil {
		return nil
	}
	return t.o.Meet(its)
}

// apart tells of a node that there can be no link to, if that is why.
func (t *TCP) apart(its Hello, err error) {
	if t.o.Apart != nil && its.Node != 0 && errors.Is(err, ErrLine) {
		t.o.Apart(its)
	}
}

// class is what an error is about, for counting alike ones together.
func class(err error) string {
	for _, e := range []error{
		ErrVersion, ErrSecret, ErrCluster, ErrSelf, ErrSameNode, ErrStranger, ErrEarlier, ErrOtherNode, ErrBusy, ErrGarbage, ErrLevel, ErrLine, errTwice,
	} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	return ""
}

// dial makes a connection to addr and greets on it.
func (t *TCP) dial(ctx context.Context, addr string, p purpose, to NodeID) (net.Conn, Hello, error) {
	dialer := net.Dialer{Timeout: t.o.Greet}
	raw, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, Hello{}, err
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	conn, s, err := t.prepare(raw)
	if err == nil && t.tls != nil {
		conn, err = t.tls.dialled(conn, addr)
	}
	var its Hello
	if err == nil {
		err = greetWithin(conn, t.o.Greet, func() (e error) {
			if its, e = t.greeter.dial(conn, p, to); e == nil && p.isLane() {
				e = t.meet(its)
			}
			return e
		})
	}
	if e := context.Cause(ctx); e != nil {
		err = e
	}
	if err != nil {
		raw.Close()
		t.unfit(its, err)
		t.apart(its, err)
		return nil, its, err
	}
	s.stall = t.o.Stall
	return conn, its, nil
}

// prepare sets a connection up: no waiting for more to send, and word of a
// peer that is not there any more.
func (t *TCP) prepare(raw net.Conn) (net.Conn, *steady, error) {
	if c, is := raw.(*net.TCPConn); is {
		for _, err := range []error{
			c.SetNoDelay(true),
			c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 3}),
			giveUpAfter(c, t.o.Stall),
		} {
			if err != nil {
				return nil, nil, err
			}
		}
	}
	s := &steady{Conn: raw}
	return s, s, nil
}
