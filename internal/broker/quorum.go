package broker

import (
	"encoding/binary"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/cluster"
	"holdfast/internal/queuehost"
	"holdfast/internal/seglog"
)

// groupSize is how many copies a quorum queue has whose declare does not say.
const groupSize = 3

// quorumPrefetch is how many unacked messages a consumer of a quorum queue may hold that set no limit, as with RabbitMQ: all
// members keep each of them in memory.
const quorumPrefetch = 2000

// place says where a new queue shall live, by the view as it is now: the members of a quorum queue, and the home of another
// one, if that is not this node.
func (b *Broker) place(d catalog.QueueDecl) catalog.QueueDecl {
	v := b.view()
	q := catalog.Queue{VHost: d.VHost, Name: d.Name, Type: catalog.TypeOf(d.Args), Args: d.Args}
	balanced := v.Effective(&q).Balanced(b.settings.QueueLeaderLocator == "balanced")
	p := cluster.Placing{Self: b.node, Balanced: balanced, Live: b.isUp, Alarmed: b.isAlarmed, Rand: lot}
	switch {
	case q.Type == catalog.Quorum:
		if v.Node(b.node) != nil { // else the catalog says why not
			p.Size = catalog.GroupSize(d.Args, groupSize)
			d.Members = cluster.AsMembers(cluster.Members(v, p))
		}
	case b.self != 0 && !d.Exclusive:
		if home := cluster.Home(v, p); home != b.self {
			d.Home = home
		}
	}
	return d
}

// placeStore says where the store of a new exchange shall live, if it has one: like a quorum queue if there are several nodes and
// the exchange is durable, else here.
func (b *Broker) placeStore(d catalog.ExchangeDecl) catalog.ExchangeDecl {
	v := b.view()
	if d.Level = v.Level(); !catalog.HasStore(catalog.ExchangeType(d.Type)) {
		return d
	}
	if d.Durable && b.self != 0 && v.Nodes().Len() > 1 && v.Node(b.node) != nil {
		balanced := b.settings.QueueLeaderLocator == "balanced"
		d.Members = cluster.AsMembers(cluster.Members(v, cluster.Placing{Self: b.node, Balanced: balanced, Live: b.isUp, Alarmed: b.isAlarmed, Rand: lot, Size: groupSize}))
	}
	return d
}

// lot draws a number from 0 to below n.
func lot(n int) int {
	bits := random()
	return int(binary.LittleEndian.Uint64(bits[:]) % uint64(n))
}

func (b *Broker) isUp(node uint64) bool {
	return node == b.node || b.others != nil && b.others.Up(node)
}

// isAlarmed reports whether a node has an alarm, as far as is known here.
func (b *Broker) isAlarmed(node uint64) bool {
	if node == b.node {
		return len(b.Alarms()) > 0
	}
	return of(b.AlarmsElsewhere(), node) != nil
}

// nodeName is what people call a node.
func (b *Broker) nodeName(v *catalog.View, node uint64) string {
	if b.others != nil {
		return b.others.Name(node)
	}
	if n := v.Node(node); n != nil {
		return n.Name
	}
	return ""
}

// withType gives a request the type that queues have which do not say. A classic queue from before this was so stays one.
func (b *Broker) withType(d catalog.QueueDecl) catalog.QueueDecl {
	if t := catalog.QueueType(b.settings.DefaultQueueType); t != catalog.Classic {
		if q := b.view().Queue(d.VHost, d.Name); q == nil || q.Type == t {
			d.Args = d.OfType(t)
		}
	}
	return d
}

// membersOf are the members of a quorum queue as queuehost wants them.
func membersOf(q *catalog.Queue) []queuehost.Member {
	list := make([]queuehost.Member, 0, len(q.Members))
	for _, m := range q.Members {
		list = append(list, queuehost.Member{ID: m.ID, Node: m.Node})
	}
	return list
}

// makeQuorum makes a quorum queue reachable, and a member of it run, if one is to be here. Members that a queue was
// declared with have the number of their node; they begin the group, unless the log knows better. Any other one has joined
// it later, and must not begin anything: it waits for the leader.
func (b *Broker) makeQuorum(q *catalog.Queue) (*queuehost.Handle, error) {
	members := membersOf(q)
	if m, here := q.MemberOn(b.node); here && m.ID != m.Node {
		h, err := b.queues.CreateQuorum(b.queueDef(q), []queuehost.Member{{ID: m.ID, Node: m.Node, Learner: true}})
		if err == nil {
			b.queues.SetMembers(seglog.GroupID(q.ID), members)
		}
		return h, err
	}
	return b.queues.CreateQuorum(b.queueDef(q), members)
}

// Open makes a queue of the catalog run, before the node is started.
func (b *Broker) Open(q *catalog.Queue) (err error) {
	if q.Type == catalog.Quorum {
		_, err = b.makeQuorum(q)
	} else {
		_, err = b.queues.Create(b.queueDef(q))
	}
	return err
}

// follow brings a quorum queue here to the members that the catalog has for it now.
func (b *Broker) follow(id catalog.QueueID) {
	if b.queues.Get(seglog.GroupID(id)) == nil {
		if q := b.view().QueueByID(id); q != nil && b.isHere(q) {
			b.make(q)
		}
		return
	}
	b.queueMu.Lock() // a queue that the view has lost is about to be dropped
	defer b.queueMu.Unlock()
	if q := b.view().QueueByID(id); q != nil {
		if b.isHere(q) { // a member that comes now begins with what holds now
			b.settingsChanged(q)
		}
		b.queues.SetMembers(seglog.GroupID(id), membersOf(q))
	}
}

// whereabouts adds to a listing's row where a queue lives, and how that stands.
func (b *Broker) whereabouts(info *QueueInfo, v *catalog.View, q *catalog.Queue, h *queuehost.Handle) {
	add := func(node uint64) {
		name := b.nodeName(v, node)
		info.Members = append(info.Members, name)
		if b.isUp(node) {
			info.Online = append(info.Online, name)
		}
	}
	info.Members, info.Online = []string{}, []string{}
	if q.Type != catalog.Quorum {
		home := q.Home
		if b.self == 0 {
			home = b.node
		}
		if home != 0 {
			add(home)
			if info.Leader = info.Members[0]; len(info.Online) == 0 {
				info.State = "down"
			}
		}
		info.Node = info.Leader
		return
	}
	for _, m := range q.Members {
		add(m.Node)
	}
	led := true // as far as is known
	if h != nil {
		leader := h.Leader()
		led = h.Leaderless() < queuehost.LeaderlessFor && (leader == 0 || b.isUp(leader))
		if led && leader != 0 {
			info.Leader = b.nodeName(v, leader)
		}
	}
	info.Node = info.Leader
	switch online := len(info.Online); {
	case online == 0:
		info.State = "down"
	case online <= len(q.Members)/2:
		info.State = "minority"
	case !led:
		info.State = "down"
	}
}

// canBeLed reports whether enough members of a quorum queue are on nodes that are up. It is true of any other queue.
func (b *Broker) canBeLed(q *catalog.Queue) bool {
	online := 0
	for _, m := range q.Members {
		if b.isUp(m.Node) {
			online++
		}
	}
	return q.Type != catalog.Quorum || online > len(q.Members)/2
}

// AdminForceDeleteQueue deletes a queue whatever it holds and whether or not it can be reached: for one that has lost the
// majority of its members for good.
func (b *Broker) AdminForceDeleteQueue(vhost, name string) error {
	v := b.view()
	if v.VHost(vhost) == nil {
		return noVHost(vhost)
	}
	q := v.Queue(vhost, name)
	if q == nil {
		return adminError(amqperr.NoQueue(vhost, name))
	}
	_, err := await(b, func(done func(*catalog.Result, error)) {
		b.remove(catalog.DeleteQueues([]catalog.QueueID{q.ID}), true, done)
	})
	return adminError(err)
}
