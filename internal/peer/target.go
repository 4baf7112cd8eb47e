package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/clock"
)

// target is one node we want a link to. Its goroutine dials, and calls Up and
// Down; it ends when the node is no longer wanted.
type target struct {
	t *TCP
	o *Options // the TCP links'

	up   atomic.Pointer[link] // what Send uses: nil unless the link is up
	kick chan struct{}        // try now: the node has just dialled us
	gone chan struct{}        // closed when the target is given up
	done chan struct{}        // closed when its goroutine has ended
	ctx  context.Context      // ends with gone
	end  context.CancelFunc

	mu          sync.Mutex
	id          NodeID // 0: not known yet
	addr        string
	link        *link  // the one being made or used
	incarnation uint64 // the latest seen
	why         error  // set when gone is closed
	unusable    error  // not to be dialled: it is ourselves, or another target already
	parting     error  // why the link will be down, whatever breaks it first

	// after are closed when earlier targets for the same node have ended, whose
	// Down comes before our Up.
	after []<-chan struct{}

	sent      [Lanes]laneCounts // guarded by the mu of the lanes of link
	received  [Lanes]receivedCounts
	links     atomic.Uint64 // how many were up
	suspected atomic.Uint64 // how often
	roundTrip atomic.Int64  // ns, of the last ping that came back; 0: none did

	pulseMu sync.Mutex // held while Suspect and Trust run, so that they take turns
	quiet   silence
}

func newTarget(t *TCP, want Target) *target {
	g := &target{
		t: t, o: &t.o, id: want.ID, addr: want.Addr,
		kick: make(chan struct{}, 1), gone: make(chan struct{}), done: make(chan struct{}),
	}
	g.ctx, g.end = context.WithCancel(context.Background())
	g.link = newLink(g)
	return g
}

// give up ends the target; its link breaks for the reason given.
func (g *target) giveUp(why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.why != nil {
		return
	}
	g.why = why
	g.end()
	close(g.gone)
	g.link.failLocked(why)
}

func (g *target) isGone() bool { return g.ctx.Err() != nil }

// who is the node's id, 0 if not known.
func (g *target) who() NodeID {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.id
}

// called is what people call the node: what it says itself, if its links are up.
func (g *target) called(id NodeID) string {
	if k := g.up.Load(); k != nil && k.hello.Name != "" {
		return k.hello.Name
	}
	if id == 0 {
		return "unknown"
	}
	return g.o.Called(id)
}

func (g *target) address() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.addr
}

// retarget takes over what SetPeers says now. A link stays as it is.
func (g *target) retarget(want Target) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.addr != want.Addr {
		g.addr, g.unusable = want.Addr, nil
	}
	if g.id == 0 {
		g.id = want.ID
	}
}

// part ends the link when what is on its control lane is written; nil if there is none.
func (g *target) part(why error) *link {
	g.mu.Lock()
	g.parting = why
	g.mu.Unlock()
	k := g.up.Load()
	if k != nil {
		for l, lane := range k.out {
			lane.goodbye(Lane(l) == Control)
		}
	}
	return k
}

// current is the link to work on.
func (g *target) current() *link {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.link.isBroken() && g.why == nil {
		g.link = newLink(g)
	}
	return g.link
}

// run is the target's goroutine.
func (g *target) run() {
	defer g.t.left(g)
	delay := time.Duration(0)
	for !g.isGone() {
		k := g.current()
		g.stand(k, &delay)
		lasted := g.use(k)
		if lasted > g.o.BackoffMax {
			delay = 0
		}
		g.wait(&delay)
	}
	g.current().work.Wait()
}

// stand dials what is missing until the link stands or is broken.
func (g *target) stand(k *link, delay *time.Duration) {
	for {
		l, missing := g.missing(k)
		if !missing {
			select {
			case <-k.standing:
			case <-k.broken:
			}
			return
		}
		if k.isBroken() {
			return
		}
		if err := g.dial(k, l); err != nil {
			g.complain(err)
			g.wait(delay)
		}
	}
}

func (g *target) missing(k *link) (Lane, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for l, conn := range k.dialled {
		if conn == nil {
			return Lane(l), true
		}
	}
	return 0, false
}

// dial makes one connection of the link.
func (g *target) dial(k *link, l Lane) error {
	g.mu.Lock()
	addr, id, unusable := g.addr, g.id, g.unusable
	g.mu.Unlock()
	if unusable != nil {
		return unusable
	}
	before := g.o.Line()
	conn, h, err := g.t.dial(g.ctx, addr, purpose(l), id)
	if err != nil {
		if errors.Is(err, ErrSelf) {
			g.setUnusable(ErrSelf)
		}
		return err
	}
	if id == 0 {
		if err := g.t.bind(g, h.Node); err != nil {
			hangUp(conn)
			g.setUnusable(err)
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case k.isBroken():
		hangUp(conn)
		return nil // the reason is told by whoever uses the link
	case k.count > 0 && k.incarnation != h.Incarnation:
		hangUp(conn)
		k.failLocked(fmt.Errorf("it was started again (incarnation %d after %d)", h.Incarnation, k.incarnation))
		return nil
	case h.Incarnation < g.incarnation:
		hangUp(conn)
		return ErrEarlier
	case g.t.outdated(before, h):
		hangUp(conn)
		return nil
	}
	g.incarnation = h.Incarnation
	k.add(conn, l, true, h)
	return nil
}

// take is called with a connection that the node has dialled; before is what Line returned when it began to greet.
func (g *target) take(conn net.Conn, l Lane, h Hello, before []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.why != nil || h.Incarnation < g.incarnation || g.t.outdated(before, h) {
		hangUp(conn)
		return
	}
	switch k := g.link; {
	case k.count > 0 && k.incarnation != h.Incarnation:
		k.failLocked(fmt.Errorf("it was started again (incarnation %d after %d)", h.Incarnation, k.incarnation))
	case k.accepted[l] != nil:
		// It would not dial again if it had not given up the connection it had.
		k.failLocked(errors.New("it has given the link up"))
	}
	if g.link.isBroken() {
		g.link = newLink(g)
	}
	g.incarnation = h.Incarnation
	g.link.add(conn, l, false, h)
	select {
	case g.kick <- struct{}{}:
	default:
	}
}

// use tells of a link while it is up, and returns how long it was.
func (g *target) use(k *link) (lasted time.Duration) {
	g.mu.Lock()
	after := g.after
	g.mu.Unlock()
	for _, ended := range after {
		<-ended
	}
	up := false
	select {
	case <-k.standing:
		up = !k.isBroken()
	case <-k.broken:
	}
	if up {
		began := g.o.Clock.Mono()
		n := k.hello.Node
		g.t.complaints.say(slog.LevelInfo, time.Second, fmt.Sprint("up", n), "the link to a node is up",
			"node", k.hello.Name, "id", n, "incarnation", k.incarnation, "address", k.hello.Addr)
		g.links.Add(1)
		g.up.Store(k)
		g.o.Handler.Up(n, k.incarnation, k.hello.Info)
		close(k.released)
		k.out[Control].putBeat(g.t.beat(), uint64(g.o.Clock.Mono()))
		<-k.broken
		g.up.Store(nil)
		lasted = time.Duration(g.o.Clock.Mono() - began)
	}
	k.work.Wait()
	if !up && !g.isGone() {
		g.complain(fmt.Errorf("it broke before it was up: %w", k.why))
	}
	if up {
		g.t.complaints.say(slog.LevelWarn, time.Second, fmt.Sprint("down", k.hello.Node), "the link to a node is down",
			"node", k.hello.Name, "id", k.hello.Node, "reason", k.why)
		g.o.Handler.Down(k.hello.Node, k.why)
	}
	return lasted
}

// wait lets some time pass before the next try, twice as long each time, and
// the shortest if the node dials us.
func (g *target) wait(delay *time.Duration) {
	*delay = min(max(2**delay, g.o.BackoffMin), g.o.BackoffMax)
	for kick := g.kick; ; {
		expired, done := clock.After(g.o.Clock, *delay/2+rand.N(*delay/2+1))
		select {
		case <-expired:
			return
		case <-g.gone:
			done()
			return
		case <-kick:
			done()
			*delay, kick = g.o.BackoffMin, nil
		}
	}
}

func (g *target) setUnusable(why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unusable = why
}

// complain writes why the node could not be dialled, once a minute for each reason.
func (g *target) complain(err error) {
	if g.isGone() || errors.Is(err, ErrSelf) {
		return
	}
	g.mu.Lock()
	addr, id := g.addr, g.id
	g.mu.Unlock()
	level := slog.LevelWarn
	if errors.Is(err, ErrStranger) {
		level = slog.LevelInfo // it will be told of us, too
	}
	g.t.complaints.say(level, time.Minute, "out "+addr+class(err), "no link to a node yet", "address", addr, "node", g.called(id), "id", id, "reason", err)
}

// heard is called for every heartbeat.
func (g *target) heard() {
	g.pulseMu.Lock()
	defer g.pulseMu.Unlock()
	if g.quiet.heard() && !g.isGone() {
		g.t.complaints.say(slog.LevelInfo, time.Second, fmt.Sprint("trust", g.who()), "a node is heard again", "node", g.called(g.who()), "id", g.who())
		g.o.Handler.Trust(g.who())
	}
}

// listen is called with every step of the pulse.
func (g *target) listen(by stroke, limit int64) {
	g.pulseMu.Lock()
	defer g.pulseMu.Unlock()
	id := g.who()
	if id == 0 || g.isGone() {
		return
	}
	suspect := g.quiet.grow(by, limit)
	if k := g.up.Load(); k != nil && g.quiet.over(by, int64(g.o.Silence), limit) {
		k.fail(fmt.Errorf("it was not heard for %v", g.o.Silence))
	}
	if !suspect {
		return
	}
	g.t.complaints.say(slog.LevelWarn, time.Second, fmt.Sprint("suspect", id), "a node has not been heard for a while",
		"node", g.called(id), "id", id, "silent", time.Duration(limit))
	g.suspected.Add(1)
	g.o.Handler.Suspect(id)
}
