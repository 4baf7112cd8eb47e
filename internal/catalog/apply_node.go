package catalog

import (
	"fmt"
	"slices"

	"holdfast/internal/amqperr"
)

// putNode enters a node, new or changed.
func (t *txn) putNode(n *Node) {
	t.generation++
	t.nodes = t.nodes.Set(t.edit, n.ID, n)
}

// startOld is startNode as it was when nodes were known by strings and every folder was alone.
func (t *txn) startOld(name string) *amqperr.Error {
	n := t.Node(NodeIDOf(name))
	if n == nil {
		n = &Node{ID: NodeIDOf(name), Name: name}
	}
	t.begin(n)
	return nil
}

func (t *txn) startNode(id uint64) *amqperr.Error {
	if id == 0 {
		return noNodeID()
	}
	n := t.Node(id)
	if n == nil {
		if t.isCluster() {
			return noNode(id)
		}
		n = &Node{ID: id, Name: fmt.Sprintf("node-%016x", id)}
		t.takeOver(id)
	}
	if !t.isCluster() {
		t.move(0, id)
	}
	t.begin(n)
	return nil
}

// begin gives a node its next incarnation and ends the former one.
func (t *txn) begin(old *Node) {
	n := *old
	t.lastIncarnation++
	n.Incarnation = t.lastIncarnation
	t.putNode(&n)
	t.res.Incarnation = n.Incarnation
	t.end(old.Incarnation)
}

// end removes what dies with an incarnation.
func (t *txn) end(inc Incarnation) {
	if inc != 0 {
		t.removeMortals(MakeConnID(inc, 0), MakeConnID(inc+1, 0))
	}
}

// heir returns the start of another node that was there when a non-durable exchange was declared, and is its node's latest
// still; 0 if there is none. An exchange is at home on no node: as in RabbitMQ it is there as long as the cluster is.
func (t *txn) heir(x *Exchange) Incarnation {
	if !t.isCluster() {
		return 0
	}
	for n := range t.Nodes().All() {
		if n.Incarnation != 0 && n.Incarnation != x.Incarnation && n.Incarnation <= x.Born {
			return n.Incarnation
		}
	}
	return 0
}

// bequeath lets a non-durable exchange live with another node's start.
func (t *txn) bequeath(vh *VHost, x *Exchange, heir Incarnation) {
	x = t.ownExchange(vh, x)
	t.mortalExchanges = t.mortalExchanges.Delete(t.edit, x.ownerKey())
	x.Incarnation = heir
	t.mortalExchanges = t.mortalExchanges.Set(t.edit, x.ownerKey(), x)
	if q := t.QueueByID(x.Store); q != nil {
		t.moveStore(q)
	}
}

// isCluster reports whether any node was ever added. If not, the catalog is one folder's alone.
func (t *txn) isCluster() bool {
	for n := range t.Nodes().All() {
		if n.Joined != 0 {
			return true
		}
	}
	return false
}

// takeOver gives a node that is alone, and starts under an id of which the catalog has never heard, all there is: its
// folder was given another identity.
func (t *txn) takeOver(id uint64) {
	for _, n := range slices.Collect(t.Nodes().All()) {
		t.nodes = t.nodes.Delete(t.edit, n.ID)
		t.end(n.Incarnation)
		t.move(n.ID, id)
	}
}

// move gives what lives on one node to another. A copy keeps its id: that is what its log knows it by.
func (t *txn) move(from, to uint64) {
	for _, q := range slices.Collect(t.QueuesOn(from).All()) {
		moved := *q
		switch {
		case q.Type == Quorum:
			moved.Members = slices.Clone(q.Members)
			for i := range moved.Members {
				if m := &moved.Members[i]; m.Node == from {
					m.Node = to
				}
			}
		case q.Durable:
			moved.Home = to
		default:
			continue
		}
		t.replaceQueue(q, &moved)
	}
}

// onlyNode returns the home of a queue in a state from when every folder was alone: the node that an incarnation belongs
// to, else the one that started last.
func (t *txn) onlyNode(inc Incarnation) uint64 {
	if n := t.NodeOf(inc); n != nil {
		return n.ID
	}
	last := new(Node)
	for n := range t.Nodes().All() {
		if n.Incarnation > last.Incarnation {
			last = n
		}
	}
	return last.ID
}

func (t *txn) addNode(n *Node) *amqperr.Error {
	switch {
	case n.ID == 0:
		return noNodeID()
	case n.Name == "":
		return noName("node")
	}
	if other := t.NodeByName(n.Name); other != nil && other.ID != n.ID {
		return nodeNameTaken(n.Name)
	}
	old := t.Node(n.ID)
	switch {
	case old == nil:
		t.res.Created = true
		n.Joined = max(t.time, 1)
	case old.Joined != 0 && old.Name == n.Name && old.Addr == n.Addr && old.Voter == n.Voter:
		t.res.Node = old
		return nil
	default:
		n.Incarnation, n.Drained, n.Joined, n.levels = old.Incarnation, old.Drained, old.Joined, old.levels
		if n.Joined == 0 {
			n.Joined = max(t.time, 1)
		}
	}
	t.putNode(n)
	t.res.Node = n
	return nil
}

func (t *txn) removeNode(id uint64) *amqperr.Error {
	n := t.Node(id)
	if n == nil {
		return noNode(id)
	}
	t.generation++
	t.nodes = t.nodes.Delete(t.edit, id)
	t.res.Node = n
	t.end(n.Incarnation)
	for _, q := range slices.Collect(t.QueuesOn(id).All()) {
		switch lost := q.Type != Quorum || len(q.Members) == 1; {
		case lost && q.Of != 0:
			t.moveStore(q)
			continue
		case lost:
			t.removeQueue(q)
			continue
		}
		t.dropMember(q, id)
	}
	return nil
}

func (t *txn) setDrained(id uint64, on bool) *amqperr.Error {
	return t.changeNode(id, func(n *Node) { n.Drained = on })
}

func (t *txn) setVoter(id uint64, on bool) *amqperr.Error {
	return t.changeNode(id, func(n *Node) { n.Voter = on })
}

// changeNode puts a node in with something changed, if that changes anything.
func (t *txn) changeNode(id uint64, change func(*Node)) *amqperr.Error {
	n := t.Node(id)
	if n == nil {
		return noNode(id)
	}
	changed := *n
	if change(&changed); changed != *n {
		n = &changed
		t.putNode(n)
	}
	t.res.Node = n
	return nil
}

func (t *txn) nodeGone(id uint64, inc Incarnation) *amqperr.Error {
	if n := t.Node(id); n != nil && n.Incarnation == inc {
		t.end(inc)
	}
	return nil
}

// quorumQueue finds the queue whose members a command is about.
func (t *txn) quorumQueue(id QueueID) (*Queue, *amqperr.Error) {
	q := t.QueueByID(id)
	switch {
	case q == nil:
		return nil, noQueueID(id)
	case q.Type != Quorum:
		return nil, notQuorum(q)
	}
	return q, nil
}

func (t *txn) addMember(id QueueID, m Member) *amqperr.Error {
	q, err := t.quorumQueue(id)
	if err != nil {
		return err
	}
	if slices.Contains(q.Members, m) {
		t.res.Queue = q
		return nil
	}
	members := append(slices.Clone(q.Members), m)
	if err := t.checkMembers(members); err != nil {
		return err
	}
	t.res.Created = true
	t.res.Queue = t.withMembers(q, members)
	return nil
}

func (t *txn) removeMember(id QueueID, node uint64) *amqperr.Error {
	q, err := t.quorumQueue(id)
	if err != nil {
		return err
	}
	t.res.Queue = q
	if _, there := q.MemberOn(node); !there {
		return nil
	}
	if len(q.Members) == 1 {
		return lastMember(q)
	}
	t.res.Queue = t.dropMember(q, node)
	return nil
}

// dropMember strikes out the member on a node. Others are left.
func (t *txn) dropMember(q *Queue, node uint64) *Queue {
	lost, _ := q.MemberOn(node)
	members := slices.DeleteFunc(slices.Clone(q.Members), func(m Member) bool { return m == lost })
	q = t.withMembers(q, slices.Clip(members))
	t.res.Removed.Members = append(t.res.Removed.Members, LostMember{q, lost})
	return q
}

func (t *txn) setMembers(id QueueID, members []Member) *amqperr.Error {
	q, err := t.quorumQueue(id)
	if err != nil {
		return err
	}
	if err := t.checkMembers(members); err != nil {
		return err
	}
	t.res.Queue = q
	if slices.Equal(q.Members, members) {
		return nil
	}
	before := q.Members
	q = t.withMembers(q, members)
	t.res.Queue = q
	for _, m := range before {
		if !slices.Contains(members, m) {
			t.res.Removed.Members = append(t.res.Removed.Members, LostMember{q, m})
		}
	}
	return nil
}

// withMembers gives a queue other members.
func (t *txn) withMembers(q *Queue, members []Member) *Queue {
	changed := *q
	changed.Members = members
	t.replaceQueue(q, &changed)
	return &changed
}

// replaceQueue changes a queue's definition: where it lives, or whether it is paused, nothing else.
func (t *txn) replaceQueue(old, q *Queue) {
	vh := t.ownVHost(t.VHost(q.VHost))
	t.strike(old)
	t.putQueue(vh, q)
}

// checkMembers decides whether a quorum queue can have these members.
func (t *txn) checkMembers(members []Member) *amqperr.Error {
	if len(members) == 0 {
		return badMembers("there are none")
	}
	for i, m := range members {
		if m.ID == 0 {
			return badMembers("the id of a member must not be 0")
		}
		if t.Node(m.Node) == nil {
			return noNode(m.Node)
		}
		for _, other := range members[:i] {
			if other.Node == m.Node {
				return badMembers(fmt.Sprintf("node %d has two", m.Node))
			}
			if other.ID == m.ID {
				return badMembers(fmt.Sprintf("two have the id %d", m.ID))
			}
		}
	}
	return nil
}
