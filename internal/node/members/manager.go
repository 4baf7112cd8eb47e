package members

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

// Group is a member that is here; *replica.Group is one.
type Group interface {
	AskRaftStatus(func(replica.RaftStatus))
	ReadIndex(wait time.Duration, done func(index uint64, err error))
	ChangeMembers(replica.MemberChange, func(error))
	TransferLeader(member uint64)
	ForceSingle(func(error))
}

// Options say what a Manager is built from. Its functions are called from any goroutine and do not block.
type Options struct {
	Self   uint64 // this node
	View   func() *catalog.View
	Group  func(seglog.GroupID) Group // nil: no member of it is here
	Leader func(seglog.GroupID) uint64
	// Nacked is how many publishes of clients of this node a queue was not seen to take.
	Nacked func(seglog.GroupID) uint64
	// Damaged are the queues whose member here is out of service.
	Damaged func() []seglog.GroupID
	// Catalog is the catalog's own group, nil on a node that is alone.
	Catalog func() Group
	// Propose has the catalog carry out a command; done gets a *catalog.Result.
	Propose func(cmd []byte, done func(any, error))
	Name    func(node uint64) string
	Up      func(node uint64) bool
	// Alarmed reports whether a node has an alarm, so that it had better not lead. Nil: none has.
	Alarmed func(node uint64) bool
	// Send sends a message to another node; false: it cannot be reached.
	Send   func(to uint64, add func([]byte) []byte) bool
	Clock  clock.Clock
	Logger *slog.Logger
}

// changeWait bounds a change of members, as in RabbitMQ.
const changeWait = 20 * time.Second

// Manager is a node's part in who has copies of quorum queues. Its methods may be called from any goroutine.
type Manager struct {
	o     Options
	asker *asker
	ctx   context.Context
	end   context.CancelFunc
	loop  sync.WaitGroup

	mu    sync.Mutex
	due   map[seglog.GroupID]struct{} // to be looked at by their leader
	wake  chan struct{}
	sweep int // how many queues of this node the sweep under way has passed

	doubts   doubts
	troubles map[seglog.GroupID]trouble // with groups that are led here, as they were said; of who tends

	mending atomic.Bool                 // members are being replaced
	owed    map[seglog.GroupID]struct{} // queues that lose a damaged member here, and have not got another one yet; of who mends

	balancing sync.Mutex
	patience  func(node uint64, d time.Duration) time.Duration // how long is really waited for a node; for tests
}

// New returns a Manager that answers and does nothing by itself until Start.
func New(o Options) *Manager {
	m := &Manager{o: o, due: map[seglog.GroupID]struct{}{}, wake: make(chan struct{}, 1), doubts: newDoubts(), troubles: map[seglog.GroupID]trouble{}, owed: map[seglog.GroupID]struct{}{}}
	m.patience = func(_ uint64, d time.Duration) time.Duration { return d }
	m.ctx, m.end = context.WithCancel(context.Background())
	m.asker = newAsker(m.ctx, o.Self, o.Send, m.serve)
	return m
}

// Start has the manager tend the queues that are led here.
func (m *Manager) Start() { m.loop.Go(m.tend) }

// Close ends everything that is under way.
func (m *Manager) Close() {
	m.end()
	m.loop.Wait()
	m.asker.close()
}

// Receive takes a message that another node has sent; for the reader of the link.
func (m *Manager) Receive(from uint64, msg []byte) { m.asker.receive(from, msg) }

// Lost says that the link to a node broke, or that the node is suspected to be gone: what was asked of it is answered.
func (m *Manager) Lost(node uint64) { m.asker.lost(node) }

// Look has the leader of a group look at its members, if that is this node: it may have become it, or the catalog's list has
// changed.
func (m *Manager) Look(id seglog.GroupID) {
	m.mu.Lock()
	m.due[id] = struct{}{}
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// newMember returns the id of a member that comes to a queue later than its declaration. An id is never used twice, so that
// a member that was removed and comes back has no part in what the former one promised; those of the declaration are the
// numbers of their nodes.
func newMember() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return max(binary.LittleEndian.Uint64(b[:]), 1)
}

// queue finds a quorum queue that an operator has named.
func (m *Manager) queue(vhost, name string) (*catalog.Queue, error) {
	v := m.o.View()
	if v.VHost(vhost) == nil {
		return nil, &broker.AdminError{Kind: broker.NotFound, Text: fmt.Sprintf("Virtual host '%s' does not exist", vhost)}
	}
	q := v.Queue(vhost, name)
	switch {
	case q == nil:
		return nil, &broker.AdminError{Kind: broker.NotFound, Text: fmt.Sprintf("no queue '%s' in vhost '%s'", name, vhost)}
	case q.Type != catalog.Quorum:
		return nil, &broker.AdminError{Kind: broker.Rejected, Text: fmt.Sprintf("queue '%s' in vhost '%s' is a %s queue: it has one copy", name, vhost, q.Type)}
	}
	return q, nil
}

// named finds a quorum queue and a node that an operator has named.
func (m *Manager) named(vhost, queue, node string) (*catalog.Queue, uint64, error) {
	q, err := m.queue(vhost, queue)
	if err != nil {
		return nil, 0, err
	}
	id, err := m.node(node)
	return q, id, err
}

// node finds a node that an operator has named.
func (m *Manager) node(name string) (uint64, error) {
	v := m.o.View()
	for n := range v.Nodes().All() {
		if m.o.Name(n.ID) == name {
			return n.ID, nil
		}
	}
	return 0, &broker.AdminError{Kind: broker.Invalid, Text: fmt.Sprintf("node '%s' is not in the cluster", name)}
}

// told turns an error into what an operator is told.
func told(err error) error {
	var f *failure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		kind := broker.Unavailable
		if f.problem == refused {
			kind = broker.Rejected
		}
		return &broker.AdminError{Kind: kind, Text: f.text}
	case errors.Is(err, broker.ErrOverdue):
		return &broker.AdminError{Kind: broker.Unavailable, Text: "no majority of the nodes that vote on the catalog has agreed in time; it may still happen"}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &broker.AdminError{Kind: broker.Unavailable, Text: errLate.text}
	}
	return err
}

// propose has the catalog carry out a command.
func (m *Manager) propose(ctx context.Context, cmd []byte) (*catalog.Result, error) {
	type answer struct {
		result any
		err    error
	}
	answered := make(chan answer, 1)
	m.o.Propose(cmd, func(result any, err error) { answered <- answer{result, err} })
	select {
	case a := <-answered:
		if a.err != nil {
			return nil, a.err
		}
		r := a.result.(*catalog.Result)
		if r.Err != nil {
			return nil, &failure{problem: refused, text: r.Err.Text}
		}
		return r, nil
	case <-ctx.Done():
		return nil, errLate
	}
}

// pause waits a moment; false: ctx has ended.
func (m *Manager) pause(ctx context.Context, d time.Duration) bool {
	passed, stop := clock.After(m.o.Clock, d)
	defer stop()
	select {
	case <-passed:
		return true
	case <-ctx.Done():
	case <-m.ctx.Done():
	}
	return false
}
