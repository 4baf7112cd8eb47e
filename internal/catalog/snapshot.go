package catalog

import (
	"cmp"
	"fmt"
	"slices"

	"holdfast/internal/bytecodec"
	"holdfast/internal/routing"
	"holdfast/internal/routing/ordmap"
)

// snapshotVersion is the first byte of a snapshot. Version 1, which knows nodes by strings and queues without a place, is
// still read. Version 2 knows nothing of levels, version 3 nothing of policies, of queues that are paused, and of exchanges with a store: each is what is written as long as there is
// nothing to be said of those.
const (
	snapshotVersion         = 4
	snapshotWithoutPolicies = 3
	snapshotWithoutLevels   = 2
)

// AppendSnapshot appends the whole state. Equal states have equal snapshots.
func (m *Machine) AppendSnapshot(dst []byte) []byte {
	v := m.view.Load()
	e := &encoder{b: dst}
	version := byte(snapshotWithoutLevels)
	switch {
	case v.hasPolicies() || v.hasRareQueues():
		version = snapshotVersion
	case v.level != 0 || v.saysLevels():
		version = snapshotWithoutPolicies
	}
	e.byte(version)
	if version > snapshotWithoutLevels {
		e.uint(uint64(v.Level()))
	}
	e.flags(v.bootstrapped)
	e.uint(v.generation)
	e.uint(uint64(v.lastQueue))
	e.uint(uint64(v.lastExchange))
	e.uint(uint64(v.lastIncarnation))
	e.uint(uint64(v.nodes.Len()))
	for _, n := range v.nodes.All() {
		e.node(n)
		if version > snapshotWithoutLevels {
			e.uint(uint64(n.Levels().Least))
			e.uint(uint64(n.Levels().Most))
		}
	}
	each(e, v.vhosts, func(vh *VHost) { e.vhost(v, vh, version) })
	each(e, v.users, e.user)
	each(e, v.permissions, e.permission)
	return e.b
}

// each appends how many things there are, and each of them in order.
func each[K cmp.Ordered, V any](e *encoder, all ordmap.Map[K, V], add func(V)) {
	e.uint(uint64(all.Len()))
	for _, v := range all.All() {
		add(v)
	}
}

// hasPolicies reports whether any vhost has policies.
func (v *View) hasPolicies() bool {
	for vh := range v.VHosts().All() {
		if vh.policies != nil {
			return true
		}
	}
	return false
}

// hasRareQueues reports whether any queue is paused, or the store of an exchange.
func (v *View) hasRareQueues() bool {
	for _, q := range v.queues.All() {
		if q.Paused || q.Of != 0 {
			return true
		}
	}
	return false
}

// saysLevels reports whether any node has said that it knows more, or less, than the first level.
func (v *View) saysLevels() bool {
	for _, n := range v.nodes.All() {
		if n.levels != (Levels{}) {
			return true
		}
	}
	return false
}

func (e *encoder) node(n *Node) {
	e.uint(n.ID)
	e.string(n.Name)
	e.string(n.Addr)
	e.uint(uint64(n.Incarnation))
	e.flags(n.Voter, n.Drained)
	e.uint(uint64(n.Joined))
}

func (e *encoder) vhost(v *View, vh *VHost, version byte) {
	e.string(vh.Name)
	e.string(vh.Description)
	e.strings(vh.Tags)
	e.uint(vh.generation)
	each(e, vh.exchanges, func(x *Exchange) {
		e.exchange(x)
		if version > snapshotWithoutPolicies {
			e.store(v.QueueByID(x.Store))
		}
	})
	each(e, vh.queues, e.queue)
	each(e, vh.bySource, e.binding)
	if version > snapshotWithoutPolicies {
		policies, operators := vh.policies.lists()
		e.uint(uint64(len(policies) + len(operators)))
		for _, p := range slices.Concat(policies, operators) {
			e.policy(p)
		}
	}
}

func (e *encoder) exchange(x *Exchange) {
	e.uint(uint64(x.ID))
	e.string(x.Name)
	e.string(string(x.Type))
	e.flags(x.Durable, x.AutoDelete, x.Internal)
	e.bytes(x.Args)
	e.string(x.Alternate)
	e.uint(uint64(x.Incarnation))
	e.uint(uint64(x.Born))
	e.string(x.User)
}

// store appends the store of an exchange, or that it has none.
func (e *encoder) store(q *Queue) {
	e.flags(q != nil)
	if q != nil {
		e.queue(q)
	}
}

func (e *encoder) queue(q *Queue) {
	e.uint(uint64(q.ID))
	e.string(q.Name)
	e.string(string(q.Type))
	e.flags(q.Durable, q.AutoDelete, q.Exclusive, q.Paused)
	e.bytes(q.Args)
	e.uint(uint64(q.Owner))
	e.uint(uint64(q.Incarnation))
	e.string(q.User)
	e.uint(uint64(q.Created))
	e.uint(q.Home)
	e.members(q.Members)
}

// Restore replaces the state by that of a snapshot. If it fails, the state is as before.
func (m *Machine) Restore(snapshot []byte) error {
	d := &decoder{bytecodec.Over(snapshot)}
	version := d.Byte()
	if version < 1 || version > snapshotVersion {
		return fmt.Errorf("catalog: snapshot of version %d, this node reads version %d", version, snapshotVersion)
	}
	t := &txn{edit: new(ordmap.Edit), res: new(Result)}
	if version >= 3 {
		if level := d.level(); level > 1 {
			t.level = level
		}
	}
	d.Flags(&t.bootstrapped)
	t.generation = d.Uint()
	t.lastQueue, t.lastExchange, t.lastIncarnation = QueueID(d.Uint()), ExchangeID(d.Uint()), Incarnation(d.Uint())
	for range d.Count(2) {
		n := d.node(version)
		t.nodes = t.nodes.Set(t.edit, n.ID, n)
	}
	for range d.Count(7) {
		t.restoreVHost(d, version)
	}
	for range d.Count(4) {
		u := d.user()
		t.users = t.users.Set(t.edit, u.Name, &u)
	}
	for range d.Count(5) {
		p := d.permission()
		t.permissions = t.permissions.Set(t.edit, permissionKey(p.User, p.VHost), &p)
	}
	if err := d.done(); err != nil {
		return err
	}
	m.publish(t.View)
	return nil
}

func (d *decoder) node(version byte) *Node {
	if version == 1 {
		name := d.Text()
		return &Node{ID: NodeIDOf(name), Name: name, Incarnation: Incarnation(d.Uint())}
	}
	n := &Node{ID: d.Uint(), Name: d.Text(), Addr: d.Text(), Incarnation: Incarnation(d.Uint())}
	d.Flags(&n.Voter, &n.Drained)
	n.Joined = int64(d.Uint())
	if version >= 3 {
		if n.levels = d.levels(); n.levels == firstLevels {
			n.levels = Levels{}
		}
	}
	return n
}

func (t *txn) restoreVHost(d *decoder, version byte) {
	vh := &VHost{Name: d.Text(), Description: d.Text(), Tags: d.Texts(), owner: t.edit, generation: d.Uint()}
	t.vhosts = t.vhosts.Set(t.edit, vh.Name, vh)
	for range d.Count(8) {
		x := &Exchange{ID: ExchangeID(d.Uint()), VHost: vh.Name, Name: d.Text(), Type: ExchangeType(d.Text()), owner: t.edit}
		d.Flags(&x.Durable, &x.AutoDelete, &x.Internal)
		x.Args, x.Alternate, x.Incarnation = d.table(), d.Text(), Incarnation(d.Uint())
		if x.Born = x.Incarnation; version > 1 {
			x.Born = Incarnation(d.Uint())
		}
		x.User = d.Text()
		var stored bool
		if version > snapshotWithoutPolicies {
			d.Flags(&stored)
		}
		if _, ok := routingKinds[x.Routes()]; !ok || stored != HasStore(x.Type) {
			d.Fail()
			return
		}
		if stored {
			q := t.restoreQueue(d, vh.Name, version)
			q.Of, x.Store = x.ID, q.ID
			t.putQueue(vh, q)
		}
		t.putExchange(vh, x)
	}
	for range d.Count(9) {
		t.putQueue(vh, t.restoreQueue(d, vh.Name, version))
	}
	for range d.Count(6) {
		b := d.binding()
		x, target, ok := vh.bindingEnds(&b)
		if !ok || b.VHost != vh.Name {
			d.Fail()
			return
		}
		t.putBinding(vh, x, &b, sourceKey(&b), target)
	}
	if version > snapshotWithoutPolicies {
		for range d.Count(6) {
			vh.policies = vh.policies.with(d.policy(vh.Name))
		}
	}
}

func (t *txn) restoreQueue(d *decoder, vhost string, version byte) *Queue {
	q := &Queue{ID: QueueID(d.Uint()), VHost: vhost, Name: d.Text(), Type: QueueType(d.Text())}
	if version > snapshotWithoutPolicies {
		d.Flags(&q.Durable, &q.AutoDelete, &q.Exclusive, &q.Paused)
	} else {
		d.Flags(&q.Durable, &q.AutoDelete, &q.Exclusive)
	}
	q.Args, q.Owner, q.Incarnation = d.table(), ConnID(d.Uint()), Incarnation(d.Uint())
	q.User, q.Created = d.Text(), int64(d.Uint())
	if version == 1 {
		q.Home = t.onlyNode(q.Incarnation)
	} else {
		q.Home, q.Members = d.Uint(), d.members()
	}
	return q
}

// bindingEnds finds what a binding of a snapshot connects.
func (vh *VHost) bindingEnds(b *Binding) (x *Exchange, target routing.Target, ok bool) {
	if x, ok = vh.exchanges.Get(b.Source); !ok {
		return nil, 0, false
	}
	if b.Kind == KindExchange {
		to, ok := vh.exchanges.Get(b.Destination)
		if !ok {
			return nil, 0, false
		}
		return x, routing.ToExchange(uint64(to.ID)), true
	}
	q, ok := vh.queues.Get(b.Destination)
	if !ok {
		return nil, 0, false
	}
	return x, routing.ToQueue(uint64(q.ID)), true
}
