package broker

import (
	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
)

// What was decided on another node of the cluster and concerns clients of this one, and the other way round.

// closeRemoved closes the connections of virtual hosts and users that were deleted on another node.
func (b *Broker) closeRemoved(r *catalog.Removed) {
	for _, name := range r.VHosts {
		b.closeWhere(func(c *Conn) bool { return c.vhost == name }, amqperr.VHostDeleted(name))
	}
	for _, name := range r.Users {
		b.closeWhere(func(c *Conn) bool { return c.user.Name == name }, amqperr.UserDeleted(name))
	}
}

// closeUnknown does so for all that the view does not have, since the commands that deleted them were not seen here.
func (b *Broker) closeUnknown() {
	v := b.view()
	var gone catalog.Removed
	vhosts, users := map[string]bool{}, map[string]bool{}
	b.mu.Lock()
	for _, c := range b.conns {
		if !vhosts[c.vhost] && v.VHost(c.vhost) == nil {
			vhosts[c.vhost], gone.VHosts = true, append(gone.VHosts, c.vhost)
		}
		if name := c.user.Name; !users[name] && v.User(name) == nil {
			users[name], gone.Users = true, append(gone.Users, name)
		}
	}
	b.mu.Unlock()
	b.closeRemoved(&gone)
}

// orphaned reports whether a name is that of an exclusive queue whose owner's node is suspected to be gone. Its owner may
// be gone with it, so that the name must not be kept from whoever comes back elsewhere.
func (b *Broker) orphaned(vhost, name string) bool {
	if b.suspect == nil {
		return false
	}
	v := b.view()
	q := v.Queue(vhost, name)
	if q == nil || !q.Exclusive {
		return false
	}
	node := v.NodeOf(q.Owner.Incarnation())
	return node == nil || node.ID != b.self && b.suspect(node.ID)
}

// removeOrphan deletes such a queue.
func (b *Broker) removeOrphan(vhost, name string) error {
	q := b.view().Queue(vhost, name)
	if q == nil {
		return nil
	}
	b.log.Info("an exclusive queue is removed: it is declared anew, and its owner's node is suspected to be gone", "queue", name, "vhost", vhost)
	_, err := await(b, func(done func(*catalog.Result, error)) {
		b.remove(catalog.DeleteQueues([]catalog.QueueID{q.ID}), false, done)
	})
	return err
}
