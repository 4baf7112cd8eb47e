package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/amqperr"
	"holdfast/internal/auth"
	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/config"
	"holdfast/internal/queuehost"
)

// Proposer puts a command of the catalog in order. done gets what the catalog
// answered, *catalog.Result, or an error: ErrOverdue if the disk takes too
// long, which says nothing about what will become of the command, or another
// if the catalog is closed. With
// waitStable it runs when the command is on disk, else when it is applied. It
// runs on a shard worker and must not block.
type Proposer interface {
	Propose(cmd []byte, waitStable bool, done func(result any, err error))
}

// Options say what a Broker is built from.
type Options struct {
	Catalog  *catalog.Machine // read only through View
	Commands Proposer
	Queues   *queuehost.Registry
	Settings *config.Settings
	Clock    clock.Clock
	Logger   *slog.Logger
	// Self is the node's id in its cluster; 0: it is alone, and every queue is here. In a cluster, what the catalog's
	// view shows is on disk on a majority of nodes.
	Self uint64
	// Node is the number that the catalog knows this node by, in a cluster or not: the member of a quorum queue that is here.
	Node uint64
	// Others tells how the nodes of the cluster stand. Nil: there is this one.
	Others Nodes
	// Barrier answers when the view here has all that was answered on any node before, or after a short wait with an
	// error. Nil: it always has.
	Barrier func(done func(any, error))
	// Fresh returns when the view may be routed by: at once, unless this node was out of touch with the others; then
	// within a second. Nil: it always may.
	Fresh func()
	// Stale says why the view is not known to have all that was answered anywhere, "" if it does. It does not wait. Nil: it always has.
	Stale func() string
	// Suspect reports whether another node is suspected to be gone. Nil: none is.
	Suspect func(node uint64) bool
	// Forces tells how often the catalog was forced. Nil: never.
	Forces func() int
	// Elsewhere returns what other nodes have of a history, after a short wait at the most. Nil: there are none.
	Elsewhere func(Joining) []KeptMessage
	// ReplyAt asks another node of the cluster whether it has the direct reply-to consumer of a name; false if there is no answer
	// after a short wait. Nil: there are no others.
	ReplyAt func(node uint64, vhost, name string) bool
	// NewReader makes what one goroutine reads messages from the disk with.
	NewReader func() *Reader
	// Go carries out what nobody waits for, and must not do so at once. Nil: a goroutine of its own does.
	Go func(func())
}

// Nodes tells how the nodes of a cluster stand, this one among them. Its methods are called from any goroutine and do not
// block.
type Nodes interface {
	Name(node uint64) string
	Up(node uint64) bool
}

// Broker is the whole broker as its clients know it. Its methods may be called
// from any goroutine.
type Broker struct {
	catalog     *catalog.Machine
	commands    Proposer
	level       atomic.Uint32 // of the formats, as queues go by it
	unstable    atomic.Int64  // commands that somebody waits for and that are not on disk
	queues      *queuehost.Registry
	auth        *auth.Authenticator
	settings    *config.Settings
	clock       clock.Clock
	log         *slog.Logger
	newReader   func() *Reader
	self        uint64
	node        uint64
	others      Nodes
	barrier     func(done func(any, error))
	fresh       func()
	stale       func() string
	suspect     func(node uint64) bool
	forces      func() int
	elsewhere   func(Joining) []KeptMessage
	replyAt     func(node uint64, vhost, name string) bool
	later       func(func())
	incarnation catalog.Incarnation
	counters    counters
	collector   *collector
	letters     *letters
	redrives    redrives
	replies     replies
	histories   histories

	// mu guards the connections and the alarms. It is held while Control
	// methods are called.
	mu        sync.Mutex
	conns     map[catalog.ConnID]*Conn
	lastConn  uint64
	alarms    map[AlarmKind]Alarm
	farAlarms alarmsElsewhere
	closing   *amqperr.Error // not nil: no new connections, and why

	failOnce sync.Once
	failed   chan struct{} // closed when nothing will be answered any more

	// queueMu orders the making and the dropping of queues against the
	// catalog's view: under it, a queue that the view has lost is not made.
	queueMu sync.Mutex

	// settingsMu has queues hear of their settings in the order in which views come.
	settingsMu sync.Mutex

	// going are the queues that are sealed and about to be deleted, each with
	// what is closed when that has been decided.
	goingMu sync.Mutex
	going   map[catalog.QueueID]chan struct{}
}

// New returns a broker over a catalog and queues that have come up.
func New(o Options) *Broker {
	b := &Broker{
		catalog:   o.Catalog,
		commands:  o.Commands,
		queues:    o.Queues,
		auth:      auth.New(func(name string) *catalog.User { return o.Catalog.View().User(name) }, o.Settings.IsLoopbackUser),
		settings:  o.Settings,
		clock:     o.Clock,
		log:       o.Logger,
		newReader: o.NewReader,
		self:      o.Self,
		node:      o.Node,
		others:    o.Others,
		barrier:   o.Barrier,
		fresh:     o.Fresh,
		stale:     o.Stale,
		suspect:   o.Suspect,
		forces:    o.Forces,
		elsewhere: o.Elsewhere,
		replyAt:   o.ReplyAt,
		later:     o.Go,
		conns:     make(map[catalog.ConnID]*Conn),
		alarms:    make(map[AlarmKind]Alarm),
		farAlarms: alarmsElsewhere{home: homeOf},
		going:     make(map[catalog.QueueID]chan struct{}),
		failed:    make(chan struct{}),
	}
	if b.later == nil {
		b.later = func(fn func()) { go fn() }
	}
	b.replies.queues = make(map[string]*replyQueue)
	b.histories.of = make(map[catalog.ExchangeID]*history)
	b.collector = newCollector(b)
	b.letters = newLetters(b)
	return b
}

// Stop takes no further connections, tells those that are open that the broker
// shuts down, and returns when they have closed or limit has passed. An
// auto-delete queue that loses its consumers by that stays, if it is durable:
// it is the broker that leaves, not its clients.
func (b *Broker) Stop(limit time.Duration) {
	b.redrives.stop(b.clock, limit)
	b.collector.stop()
	b.CloseConnections(amqperr.Shutdown(), limit)
	b.letters.stop(limit)
}

// NewReader returns what one goroutine loads deliveries with.
func (b *Broker) NewReader() *Reader { return b.newReader() }

// view is the catalog as it stands.
func (b *Broker) view() *catalog.View { return b.catalog.View() }

// answer is what a command or a queue said.
type answer[T any] struct {
	value T
	err   error
}

// ErrOverdue is what a Proposer answers when the disk has taken too long.
var ErrOverdue = errors.New("the disk takes too long")

var (
	// errTimedOut says that nobody answered within the bounded wait.
	errTimedOut = errors.New("no answer in time")
	// errFailed says that nobody will answer: the node can go on no longer.
	errFailed = errors.New("the node has failed")
)

// unanswered reports whether nobody has answered, so that an answer may still come.
func unanswered(err error) bool { return err == errTimedOut || err == errFailed }

// Fail says that the node can go on no longer: who waits for an answer waits
// no more, and all connections are closed with reason.
func (b *Broker) Fail(reason string) {
	b.failOnce.Do(func() { close(b.failed) })
	b.CloseConnections(amqperr.Forced(reason), 0)
}

// await starts something that calls done later, and waits for it no longer
// than the bounded time. What comes later is dropped.
func await[T any](b *Broker, start func(done func(T, error))) (T, error) {
	return awaitFor(context.Background(), b, b.settings.DeclareTimeout, start)
}

// awaitFor is await with a bound of its own, for somebody who may stop waiting.
func awaitFor[T any](ctx context.Context, b *Broker, limit time.Duration, start func(done func(T, error))) (T, error) {
	answered := make(chan answer[T], 1)
	start(func(value T, err error) {
		select {
		case answered <- answer[T]{value, err}:
		default:
		}
	})
	select { // nearly always there is an answer before a timer would be worth it
	case a := <-answered:
		return a.value, a.err
	default:
	}
	expired, done := clock.After(b.clock, limit)
	defer done()
	var none T
	select {
	case a := <-answered:
		return a.value, a.err
	case <-b.failed:
		return none, errFailed
	case <-expired:
		return none, errTimedOut
	case <-ctx.Done():
		return none, errTimedOut
	}
}

// submit puts a command of the catalog in order.
func (b *Broker) submit(cmd []byte, waitStable bool, done func(any, error)) {
	if b.self != 0 {
		b.commands.Propose(cmd, false, done)
		return
	}
	if waitStable {
		b.unstable.Add(1)
	}
	b.commands.Propose(cmd, waitStable, func(result any, err error) {
		if waitStable && !errors.Is(err, ErrOverdue) { // then nobody will hear of it any more
			b.unstable.Add(-1)
		}
		if r, ok := result.(*catalog.Result); ok && err == nil {
			b.histories.forget(r.Removed.Exchanges)
		}
		done(result, err)
	})
}

// settled reports whether what the view shows is on disk. If not, a client that
// finds its wish fulfilled already must wait for whoever wished it first: its
// answer is a promise, too.
func (b *Broker) settled() bool { return b.unstable.Load() == 0 }

// propose has the catalog carry out a command and waits for the answer.
func (b *Broker) propose(cmd []byte, waitStable bool) (*catalog.Result, error) {
	result, err := await(b, func(done func(any, error)) {
		b.submit(cmd, waitStable, func(result any, err error) {
			if r, ok := result.(*catalog.Result); ok && err == nil {
				for _, q := range r.Stores {
					b.make(q)
				}
				if len(r.Removed.Queues) > 0 { // stores of exchanges that are gone
					b.later(func() { b.dropQueues(r.Removed.Queues, func() {}) })
				}
			}
			done(result, err)
		})
	})
	if err != nil {
		return nil, err
	}
	r := result.(*catalog.Result)
	if r.Err != nil {
		return r, r.Err
	}
	return r, nil
}

// clientError turns what a lower room answered into what a client is told.
func (b *Broker) clientError(err error, operation string, kind amqperr.Kind, vhost, name string) *amqperr.Error {
	if err == nil {
		return nil
	}
	var told *amqperr.Error
	switch {
	case errors.As(err, &told):
		return told
	case errors.Is(err, errTimedOut), errors.Is(err, ErrOverdue):
		return amqperr.TimedOut(operation, kind, vhost, name, b.settings.DeclareTimeout)
	case errors.Is(err, errFailed):
		return amqperr.Forced(err.Error())
	}
	b.log.Error("request failed", "operation", operation, string(kind), name, "vhost", vhost, "error", err)
	return amqperr.Internal(operation + ": " + err.Error())
}

// random returns 128 random bits.
func random() (bits [16]byte) {
	rand.Read(bits[:]) // never fails
	return bits
}
