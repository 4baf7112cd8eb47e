package broker

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/queuehost"
)

// handOverGrace is how long a node that has an alarm gets to hand over the quorum queues that it leads, before those who publish to
// them are held back.
const handOverGrace = time.Second

// NodeAlarms are the alarms of another node.
type NodeAlarms struct {
	Node  uint64
	Name  string
	Kinds []AlarmKind // the disk's first, as RabbitMQ tells them
	Since time.Time   // this node knows of it

	since int64 // the same by clock.Mono
}

// short says what is running short.
func (a *NodeAlarms) short() string {
	kinds := make([]string, 0, len(a.Kinds))
	for _, k := range a.Kinds {
		kinds = append(kinds, string(k))
	}
	return "low on " + strings.Join(kinds, " & ")
}

// reason is what those are told who are held back for the node.
func (a *NodeAlarms) reason() string { return fmt.Sprintf("%s at node %s", a.short(), a.Name) }

// alarmsElsewhere are the alarms of other nodes, and whom they hold back: connections from their first publish on to a queue that such a
// node serves. They go on when its alarms are over, it is gone, or others lead the queues.
type alarmsElsewhere struct {
	nodes atomic.Pointer[[]NodeAlarms]                            // nil: none. What it points to is not changed
	home  func(h *queuehost.Handle) (node uint64, handsOver bool) // who serves a queue, and whether another node can take it over

	mu   sync.Mutex
	held map[*Conn][]*queuehost.Handle // for what
}

func homeOf(h *queuehost.Handle) (node uint64, handsOver bool) { return h.Home(), h.Quorum() }

// of returns the alarms of a node, nil for none.
func of(list []NodeAlarms, node uint64) *NodeAlarms {
	for i := range list {
		if list[i].Node == node {
			return &list[i]
		}
	}
	return nil
}

// SetAlarmsElsewhere says which other nodes have alarms: all of them, each with at least one. The times are filled in here.
func (b *Broker) SetAlarmsElsewhere(list []NodeAlarms) {
	e := &b.farAlarms
	e.mu.Lock()
	var was []NodeAlarms
	if p := e.nodes.Load(); p != nil {
		was = *p
	}
	list = slices.Clone(list)
	for i := range list {
		a := &list[i]
		if before := of(was, a.Node); before != nil {
			a.Since, a.since = before.Since, before.since
			continue
		}
		a.Since, a.since = b.clock.Now(), b.clock.Mono()
		b.log.Warn("an alarm is on at another node: publishers to queues that it serves are blocked", "node", a.Name, "alarms", a.Kinds)
	}
	for _, a := range was {
		if of(list, a.Node) == nil {
			b.log.Info("no alarm is on at another node any more", "node", a.Name)
		}
	}
	if e.nodes.Store(&list); len(list) == 0 {
		e.nodes.Store(nil)
	}
	e.mu.Unlock()
	b.Reconsider()
}

// AlarmsElsewhere lists the alarms of other nodes.
func (b *Broker) AlarmsElsewhere() []NodeAlarms {
	if p := b.farAlarms.nodes.Load(); p != nil {
		return *p
	}
	return nil
}

// alarmFor returns the alarms for which those are held back who publish to a queue, nil for none.
func (b *Broker) alarmFor(list []NodeAlarms, h *queuehost.Handle) *NodeAlarms {
	node, handsOver := b.farAlarms.home(h)
	if node == 0 || node == b.node {
		return nil
	}
	a := of(list, node)
	if a == nil || handsOver && b.clock.Mono()-a.since < int64(handOverGrace) || b.queues.Get(h.ID()) != h {
		return nil
	}
	return a
}

// holdBack holds the connection back if it publishes to queues of nodes that have alarms. It is called when there are any.
func (b *Broker) holdBack(c *Conn, to []*slot) {
	e := &b.farAlarms
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.nodes.Load()
	if p == nil || c.over {
		return
	}
	for _, s := range to {
		a := b.alarmFor(*p, s.handle)
		if a == nil || slices.Contains(e.held[c], s.handle) {
			continue
		}
		if e.held == nil {
			e.held = map[*Conn][]*queuehost.Handle{}
		}
		first := len(e.held[c]) == 0
		e.held[c] = append(e.held[c], s.handle)
		if first {
			c.control.Hold(true, a.reason())
		}
	}
}

// Reconsider lets connections go on that need not be held back any more for other nodes: their queues have moved, or were deleted. It
// is to be called every now and then.
func (b *Broker) Reconsider() {
	e := &b.farAlarms
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []NodeAlarms
	if p := e.nodes.Load(); p != nil {
		list = *p
	}
	for c, handles := range e.held {
		handles = slices.DeleteFunc(handles, func(h *queuehost.Handle) bool { return b.alarmFor(list, h) == nil })
		if e.held[c] = handles; len(handles) == 0 {
			delete(e.held, c)
			c.control.Hold(false, "")
		}
	}
}

// leave forgets a connection that has ended.
func (e *alarmsElsewhere) leave(c *Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.over = true
	delete(e.held, c)
}
