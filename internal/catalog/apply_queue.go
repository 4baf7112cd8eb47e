package catalog

import (
	"holdfast/internal/amqperr"
	"holdfast/internal/routing"
)

func (t *txn) declareQueue(d *QueueDecl) *amqperr.Error {
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
	typ, err := checkArguments(d)
	if err != nil {
		return err
	}
	if !t.alive(d.Conn.Incarnation()) {
		return staleIncarnation("queue", d.VHost, d.Name)
	}
	t.lastQueue++
	q = &Queue{
		ID:         t.lastQueue,
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
	if !q.Durable {
		q.Incarnation = d.Conn.Incarnation()
	}
	t.putQueue(t.ownVHost(t.VHost(d.VHost)), q)
	t.res.Queue, t.res.Created = q, true
	return nil
}

// putQueue enters a queue in all the maps it belongs to.
func (t *txn) putQueue(vh *VHost, q *Queue) {
	vh.queues = vh.queues.Set(t.edit, q.Name, q)
	t.queues = t.queues.Set(t.edit, q.ID, q)
	if !q.Durable {
		t.mortalQueues = t.mortalQueues.Set(t.edit, q.ownerKey(), q)
	}
}

// forgetQueue takes a queue out of the maps that are not the vhost's.
func (t *txn) forgetQueue(q *Queue) {
	t.queues = t.queues.Delete(t.edit, q.ID)
	if !q.Durable {
		t.mortalQueues = t.mortalQueues.Delete(t.edit, q.ownerKey())
	}
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

func (t *txn) deleteQueues(ids []QueueID) *amqperr.Error {
	for _, id := range ids {
		if q := t.QueueByID(id); q != nil {
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
