package catalog

import (
	"slices"
	"sync/atomic"

	"holdfast/internal/amqperr"
	"holdfast/internal/bytecodec"
	"holdfast/internal/invariant"
	"holdfast/internal/routing/ordmap"
)

// firstQueue is the least queue id. Those below are groups of the broker's own, the catalog's first of all.
const firstQueue QueueID = 64

// Machine is the catalog's state machine. Apply, AppendSnapshot and Restore belong to one goroutine at a time; View may
// be called from anywhere.
//
// Each Apply publishes its view before it returns, so a host may hand out results as soon as it has them. A view costs one
// copied path per map, about as much as the rest of a command.
type Machine struct {
	view atomic.Pointer[View]

	// Raising, if not nil, is told before the level goes up, or a snapshot is taken over with a higher one: nobody sees it yet.
	// It runs within Apply and Restore.
	Raising func(level uint16)
	// Policies, if not nil, is told when a view was published in which other policies hold than before, or a queue is paused that was not, or
	// the other way round. A snapshot that is taken
	// over says nothing of it. It runs within Apply.
	Policies func(*PolicyChange)
}

// New returns an empty machine: it has not even a vhost, see [Bootstrap].
func New() *Machine {
	m := new(Machine)
	m.view.Store(&View{lastQueue: firstQueue - 1})
	return m
}

// View returns the newest view.
func (m *Machine) View() *View { return m.view.Load() }

// Apply carries out one command and returns a *Result. Index and time come from the log's entry; the time is kept with
// what is created, and nothing else depends on either.
func (m *Machine) Apply(_ uint64, time int64, cmd []byte) any {
	t := &txn{View: *m.view.Load(), edit: new(ordmap.Edit), time: time, res: new(Result)}
	before := t.generation
	if err := t.run(cmd); err != nil {
		return &Result{Err: err}
	}
	if t.generation != before {
		t.generation = before + 1
		m.publish(t.View)
	}
	if t.changed != nil && m.Policies != nil {
		m.Policies(t.changed)
	}
	return t.res
}

// publish makes a view the newest.
func (m *Machine) publish(v View) {
	if level := v.Level(); level > m.view.Load().Level() && m.Raising != nil {
		m.Raising(level)
	}
	m.view.Store(&v)
}

// txn is one command under way: a view nobody else sees yet. If the command fails, the txn is dropped, and with it all it
// did.
type txn struct {
	View
	edit *ordmap.Edit
	time int64
	res  *Result

	changed *PolicyChange
}

// run decodes and carries out a command. A command that cannot be read is a bug, or comes from a newer version than this
// one: it must not be skipped, since other nodes may have applied it.
func (t *txn) run(cmd []byte) *amqperr.Error {
	d := &decoder{bytecodec.Over(cmd)}
	if version := d.Byte(); version != commandVersion {
		invariant.Failf("catalog: command of version %d, this node reads version %d", version, commandVersion)
	}
	do := t.decode(commandKind(d.Byte()), d)
	if err := d.done(); err != nil || do == nil {
		invariant.Failf("catalog: command cannot be read: %x", cmd[:min(len(cmd), 64)])
	}
	return do()
}

// decode reads a command's fields and returns what it does, nil for a kind it does not know.
func (t *txn) decode(k commandKind, d *decoder) func() *amqperr.Error {
	switch k {
	case cmdBootstrap:
		b := Defaults{VHost: d.Text(), User: d.user(), Configure: d.Text(), Write: d.Text(), Read: d.Text()}
		return func() *amqperr.Error { return t.bootstrap(&b) }
	case cmdDeclareQueue:
		q := decodeQueue(d)
		return func() *amqperr.Error { return t.declareQueue(&q, 1) }
	case cmdDeclarePlacedQueue:
		rules := int(d.Byte())
		if rules < 1 || rules > declareRules {
			return nil
		}
		q := decodeQueue(d)
		q.Home, q.Members = d.Uint(), d.members()
		return func() *amqperr.Error { return t.declareQueue(&q, rules) }
	case cmdDeleteQueue:
		vhost, name, id, conn := d.Text(), d.Text(), QueueID(d.Uint()), ConnID(d.Uint())
		return func() *amqperr.Error { return t.deleteQueue(vhost, name, id, conn) }
	case cmdDeleteQueues:
		ids := make([]QueueID, d.Count(1))
		for i := range ids {
			ids[i] = QueueID(d.Uint())
		}
		return func() *amqperr.Error { return t.deleteQueues(ids) }
	case cmdPauseQueue:
		var on bool
		vhost, name := d.Text(), d.Text()
		d.Flags(&on)
		return func() *amqperr.Error { return t.pauseQueue(vhost, name, on) }
	case cmdDeleteConnectionQueues:
		conn := ConnID(d.Uint())
		return func() *amqperr.Error { return t.deleteConnectionQueues(conn) }
	case cmdDeclareExchange:
		x := decodeExchange(d)
		return func() *amqperr.Error { return t.declareExchange(&x) }
	case cmdDeclarePlacedExchange:
		x := decodeExchange(d)
		x.Home, x.Members = d.Uint(), d.members()
		return func() *amqperr.Error { return t.declareExchange(&x) }
	case cmdDeleteExchange:
		var ifUnused bool
		vhost, name := d.Text(), d.Text()
		d.Flags(&ifUnused)
		return func() *amqperr.Error { return t.deleteExchange(vhost, name, ifUnused) }
	case cmdBind:
		b, conn := d.binding(), ConnID(d.Uint())
		return func() *amqperr.Error { return t.bind(&b, conn) }
	case cmdUnbind:
		b, conn := d.binding(), ConnID(d.Uint())
		return func() *amqperr.Error { return t.unbind(&b, conn) }
	}
	if do := t.decodeNode(k, d); do != nil {
		return do
	}
	return t.decodeAdmin(k, d)
}

func decodeQueue(d *decoder) QueueDecl {
	q := QueueDecl{VHost: d.Text(), Name: d.Text()}
	d.Flags(&q.ServerNamed, &q.Durable, &q.AutoDelete, &q.Exclusive)
	q.Args, q.Conn, q.User = d.table(), ConnID(d.Uint()), d.Text()
	return q
}

func decodeExchange(d *decoder) ExchangeDecl {
	x := ExchangeDecl{VHost: d.Text(), Name: d.Text(), Type: d.Text()}
	d.Flags(&x.Durable, &x.AutoDelete, &x.Internal)
	x.Args, x.Conn, x.User = d.table(), ConnID(d.Uint()), d.Text()
	return x
}

// decodeNode is decode for nodes and what is on them.
func (t *txn) decodeNode(k commandKind, d *decoder) func() *amqperr.Error {
	switch k {
	case cmdNewIncarnation:
		name := d.Text()
		return func() *amqperr.Error { return t.startOld(name) }
	case cmdStartNode:
		id := d.Uint()
		return func() *amqperr.Error { return t.startNode(id) }
	case cmdAddNode:
		n := Node{ID: d.Uint(), Name: d.Text(), Addr: d.Text()}
		d.Flags(&n.Voter)
		return func() *amqperr.Error { return t.addNode(&n) }
	case cmdRemoveNode:
		id := d.Uint()
		return func() *amqperr.Error { return t.removeNode(id) }
	case cmdSetDrained:
		var on bool
		id := d.Uint()
		d.Flags(&on)
		return func() *amqperr.Error { return t.setDrained(id, on) }
	case cmdSetVoter:
		var on bool
		id := d.Uint()
		d.Flags(&on)
		return func() *amqperr.Error { return t.setVoter(id, on) }
	case cmdSetLevels:
		id, levels := d.Uint(), d.levels()
		return func() *amqperr.Error { return t.setLevels(id, levels) }
	case cmdRaiseLevel:
		to := d.level()
		return func() *amqperr.Error { return t.raiseLevel(to) }
	case cmdNodeGone:
		id, inc := d.Uint(), Incarnation(d.Uint())
		return func() *amqperr.Error { return t.nodeGone(id, inc) }
	case cmdAddMember:
		id, m := QueueID(d.Uint()), d.member()
		return func() *amqperr.Error { return t.addMember(id, m) }
	case cmdRemoveMember:
		id, node := QueueID(d.Uint()), d.Uint()
		return func() *amqperr.Error { return t.removeMember(id, node) }
	case cmdSetMembers:
		id, members := QueueID(d.Uint()), d.members()
		return func() *amqperr.Error { return t.setMembers(id, members) }
	}
	return nil
}

// decodeAdmin is decode for vhosts, users and policies.
func (t *txn) decodeAdmin(k commandKind, d *decoder) func() *amqperr.Error {
	switch k {
	case cmdAddVHost:
		vh := VHost{Name: d.Text(), Description: d.Text(), Tags: d.Texts()}
		return func() *amqperr.Error { return t.addVHost(&vh) }
	case cmdDeleteVHost:
		name := d.Text()
		return func() *amqperr.Error { return t.deleteVHost(name) }
	case cmdAddUser:
		u := d.user()
		return func() *amqperr.Error { return t.addUser(&u) }
	case cmdPutUser:
		u := d.user()
		return func() *amqperr.Error { return t.putUser(&u) }
	case cmdSetPassword:
		name, hash, algorithm := d.Text(), d.Text(), d.Text()
		return func() *amqperr.Error {
			return t.changeUser(name, func(u *User) { u.Hash, u.Algorithm = hash, algorithm })
		}
	case cmdSetTags:
		name, tags := d.Text(), d.Texts()
		return func() *amqperr.Error { return t.changeUser(name, func(u *User) { u.Tags = tags }) }
	case cmdDeleteUser:
		name := d.Text()
		return func() *amqperr.Error { return t.deleteUser(name) }
	case cmdSetPermissions:
		p := d.permission()
		return func() *amqperr.Error { return t.setPermissions(&p) }
	case cmdSetPolicy:
		p := d.policy(d.Text())
		return func() *amqperr.Error { return t.setPolicy(p) }
	case cmdClearPolicy:
		var operator bool
		vhost, name := d.Text(), d.Text()
		d.Flags(&operator)
		return func() *amqperr.Error { return t.clearPolicy(vhost, name, operator) }
	case cmdClearPermissions:
		user, vhost := d.Text(), d.Text()
		return func() *amqperr.Error { return t.clearPermissions(user, vhost) }
	}
	return nil
}

// ownVHost returns a vhost that t may change.
func (t *txn) ownVHost(vh *VHost) *VHost {
	if vh.owner != t.edit {
		c := *vh
		c.owner = t.edit
		c.generation++
		vh = &c
		t.vhosts = t.vhosts.Set(t.edit, vh.Name, vh)
		t.generation++
	}
	return vh
}

// ownExchange returns an exchange of a vhost of t's own that t may change.
func (t *txn) ownExchange(vh *VHost, x *Exchange) *Exchange {
	if x.owner != t.edit {
		c := *x
		c.owner = t.edit
		x = &c
		vh.exchanges = vh.exchanges.Set(t.edit, x.Name, x)
		if !x.Durable {
			t.mortalExchanges = t.mortalExchanges.Set(t.edit, x.ownerKey(), x)
		}
	}
	return x
}

// alive reports whether an incarnation is the current one of its node. 0 stands for none and is always alive.
func (t *txn) alive(inc Incarnation) bool { return inc == 0 || t.NodeOf(inc) != nil }

func (t *txn) deleteConnectionQueues(conn ConnID) *amqperr.Error {
	if conn != 0 {
		t.removeMortals(conn, conn+1)
	}
	return nil
}

// removeMortals removes the queues and exchanges of owners from first to before end.
func (t *txn) removeMortals(first, end ConnID) {
	queues := between(t.mortalQueues, ownerKey(first, 0), ownerKey(end, 0))
	for _, q := range queues {
		if q.Of == 0 { // else it goes with its exchange, or another one takes its place
			t.removeQueue(q)
		}
	}
	for _, x := range between(t.mortalExchanges, ownerKey(first, 0), ownerKey(end, 0)) {
		if vh := t.VHost(x.VHost); vh != nil {
			if x, ok := vh.exchanges.Get(x.Name); !ok { // an auto-delete exchange may have gone with its last queue
				continue
			} else if heir := t.heir(x); heir != 0 {
				t.bequeath(t.ownVHost(vh), x, heir)
			} else {
				t.removeExchange(t.ownVHost(vh), x)
			}
		}
	}
}

func between[T any](m ordmap.Map[string, T], first, end string) []T {
	n := m.Rank(first)
	return slices.Collect(listOf(m, n, m.Rank(end)-n).All())
}
