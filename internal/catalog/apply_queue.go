package catalog

import (
	"holdfast/internal/amqperr"
	"holdfast/internal/routing"
)

func (t *txn) declareQueue(d *QueueDecl, rules int) *amqperr.Error {
	q, err := t.DeclaredQueue(d)
	if err != nil {
		return err
	}
	if q != nil {
		t.res.Queue = q
		return nil
	}
	if d.Name == "" {
		return amqperr.InvalidName(amqperr.Queue, d.VHost, d.Name, "it is empty")
	}
	typ, err := checkArguments(d, rules)
	if err != nil {
		return err
	}
	if !t.alive(d.Conn.Incarnation()) {
		return staleIncarnation("queue", d.VHost, d.Name)
	}
	q = &Queue{
		VHost:      d.VHost,
		Name:       d.Name,
		Type:       typ,
		Durable:    d.Durable && !d.Exclusive,
		AutoDelete: d.AutoDelete,
		Exclusive:  d.Exclusive,
		Args:       d.Args,
		User:       d.User,
		Created:    t.time,
	}
	if d.Exclusive {
		q.Owner = d.Conn
	}
	if err := t.place(q, d, rules); err != nil {
		return err
	}
	t.lastQueue++
	q.ID = t.lastQueue
	t.putQueue(t.ownVHost(t.VHost(d.VHost)), q)
	t.res.Queue, t.res.Created = q, true
	return nil
}

// place says where a new queue lives, and, if it is not durable, with which start of that node.
func (t *txn) place(q *Queue, d *QueueDecl, rules int) *amqperr.Error {
	if q.Type == Quorum {
		if err := t.checkMembers(d.Members); err != nil {
			return err
		}
		q.Members = d.Members
		return nil
	}
	inc := d.Conn.Incarnation()
	home := t.NodeOf(inc)
	if d.Home != 0 && !d.Exclusive {
		if home = t.Node(d.Home); home == nil {
			return noNode(d.Home)
		}
		if inc = home.Incarnation; inc == 0 && !q.Durable {
			return staleIncarnation("queue", d.VHost, d.Name)
		}
	}
	switch {
	case home != nil:
		q.Home = home.ID
	case rules < 2:
		q.Home = t.onlyNode(inc)
	}
	if !q.Durable {
		q.Incarnation = inc
	}
	return nil
}

// putQueue enters a queue in all the maps it belongs to.
func (t *txn) putQueue(vh *VHost, q *Queue) {
	if q.memo == nil {
		q.memo = new(memo)
	}
	if q.Of == 0 {
		vh.queues = vh.queues.Set(t.edit, q.Name, q)
	}
	t.queues = t.queues.Set(t.edit, q.ID, q)
	if !q.Durable {
		t.mortalQueues = t.mortalQueues.Set(t.edit, q.ownerKey(), q)
	}
	t.enter(q)
}

// forgetQueue takes a queue out of the maps that are not the vhost's.
func (t *txn) forgetQueue(q *Queue) {
	t.queues = t.queues.Delete(t.edit, q.ID)
	if !q.Durable {
		t.mortalQueues = t.mortalQueues.Delete(t.edit, q.ownerKey())
	}
	t.strike(q)
	t.res.Removed.Queues = append(t.res.Removed.Queues, q)
}

func (t *txn) deleteQueue(vhost, name string, id QueueID, conn ConnID) *amqperr.Error {
	q := t.Queue(vhost, name)
	if q == nil || id != 0 && id != q.ID {
		return nil
	}
	if err := q.allows(conn); err != nil {
		return err
	}
	t.removeQueue(q)
	return nil
}

func (t *txn) pauseQueue(vhost, name string, on bool) *amqperr.Error {
	if t.Level() < PolicyLevel {
		return adminError(amqperr.PreconditionFailed, "%s", NoPauses)
	}
	q := t.Queue(vhost, name)
	if q == nil {
		return amqperr.NoQueue(vhost, name)
	}
	if q.Paused != on {
		changed := *q
		changed.Paused = on
		t.replaceQueue(q, &changed)
		q, t.changed = &changed, &PolicyChange{VHost: vhost, queue: q.ID}
	}
	t.res.Queue = q
	return nil
}

func (t *txn) deleteQueues(ids []QueueID) *amqperr.Error {
	for _, id := range ids {
		if q := t.QueueByID(id); q != nil && q.Of == 0 {
			t.removeQueue(q)
		}
	}
	return nil
}

// removeQueue removes a queue with its bindings, and what goes with those.
func (t *txn) removeQueue(q *Queue) {
	vh := t.ownVHost(t.VHost(q.VHost))
	vh.queues = vh.queues.Delete(t.edit, q.Name)
	t.forgetQueue(q)
	t.removeBindingsTo(vh, KindQueue, q.Name, routing.ToQueue(uint64(q.ID)))
}
