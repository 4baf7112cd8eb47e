package catalog

import (
	"slices"

	"holdfast/internal/amqperr"
)

// predeclared are the exchanges every vhost is born with.
var predeclared = []Exchange{
	{Name: "", Type: Direct},
	{Name: "amq.direct", Type: Direct},
	{Name: "amq.fanout", Type: Fanout},
	{Name: "amq.headers", Type: Headers},
	{Name: "amq.match", Type: Headers},
	{Name: "amq.rabbitmq.trace", Type: Topic, Internal: true},
	{Name: "amq.topic", Type: Topic},
}

// internalUser is who created what no user asked for, as RabbitMQ calls it.
const internalUser = "rmq-internal"

func (t *txn) bootstrap(d *Defaults) *amqperr.Error {
	if t.bootstrapped {
		return nil
	}
	t.bootstrapped = true
	t.generation++
	t.res.Created = true
	if err := t.addVHost(&VHost{Name: d.VHost, Description: "Default virtual host"}); err != nil {
		return err
	}
	if d.User.Name == "" {
		return nil
	}
	if err := t.putUser(&d.User); err != nil {
		return err
	}
	return t.setPermissions(&Permission{User: d.User.Name, VHost: d.VHost, Configure: d.Configure, Write: d.Write, Read: d.Read})
}

func (t *txn) addVHost(vh *VHost) *amqperr.Error {
	if vh.Name == "" {
		return noName("virtual host")
	}
	if t.VHost(vh.Name) != nil {
		return nil
	}
	vh.owner = t.edit
	vh.generation = t.generation + 1 // a vhost of this name may have been there before, and its views still be in use
	t.vhosts = t.vhosts.Set(t.edit, vh.Name, vh)
	t.generation++
	t.res.Created = true
	for _, x := range predeclared {
		x.VHost, x.Durable, x.User = vh.Name, true, internalUser
		t.addExchange(vh, &x)
	}
	return nil
}

func (t *txn) deleteVHost(name string) *amqperr.Error {
	vh := t.VHost(name)
	if vh == nil {
		return noVHost(name)
	}
	t.generation++
	t.vhosts = t.vhosts.Delete(t.edit, name)
	t.res.Removed.VHosts = append(t.res.Removed.VHosts, name)
	for _, q := range vh.queues.All() {
		t.forgetQueue(q)
	}
	for _, x := range vh.exchanges.All() {
		t.forgetExchange(x)
	}
	for _, b := range vh.bySource.All() {
		t.res.Removed.Bindings = append(t.res.Removed.Bindings, b)
	}
	t.removePermissions(func(p *Permission) bool { return p.VHost == name })
	return nil
}

func (t *txn) addUser(u *User) *amqperr.Error {
	if t.User(u.Name) != nil {
		return userExists(u.Name)
	}
	return t.putUser(u)
}

func (t *txn) putUser(u *User) *amqperr.Error {
	if u.Name == "" {
		return noName("user")
	}
	t.res.Created = t.res.Created || t.User(u.Name) == nil
	t.users = t.users.Set(t.edit, u.Name, u)
	t.generation++
	return nil
}

func (t *txn) changeUser(name string, change func(*User)) *amqperr.Error {
	old := t.User(name)
	if old == nil {
		return noUser(name)
	}
	u := *old
	change(&u)
	return t.putUser(&u)
}

func (t *txn) deleteUser(name string) *amqperr.Error {
	if t.User(name) == nil {
		return noUser(name)
	}
	t.generation++
	t.users = t.users.Delete(t.edit, name)
	t.res.Removed.Users = append(t.res.Removed.Users, name)
	t.removePermissions(func(p *Permission) bool { return p.User == name })
	return nil
}

func (t *txn) removePermissions(which func(*Permission) bool) {
	for _, p := range slices.Collect(t.Permissions().All()) {
		if which(p) {
			t.permissions = t.permissions.Delete(t.edit, permissionKey(p.User, p.VHost))
		}
	}
}

func (t *txn) setPermissions(p *Permission) *amqperr.Error {
	if err := t.checkGrant(p.User, p.VHost); err != nil {
		return err
	}
	t.generation++
	t.permissions = t.permissions.Set(t.edit, permissionKey(p.User, p.VHost), p)
	return nil
}

func (t *txn) clearPermissions(user, vhost string) *amqperr.Error {
	if err := t.checkGrant(user, vhost); err != nil {
		return err
	}
	if t.Permission(user, vhost) != nil {
		t.generation++
		t.permissions = t.permissions.Delete(t.edit, permissionKey(user, vhost))
	}
	return nil
}

func (t *txn) checkGrant(user, vhost string) *amqperr.Error {
	if t.User(user) == nil {
		return noUser(user)
	}
	if t.VHost(vhost) == nil {
		return noVHost(vhost)
	}
	return nil
}
