package broker

import (
	"errors"
	"net"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
)

// Mechanisms are the names of the SASL mechanisms offered, in order of preference.
func (b *Broker) Mechanisms() []string { return b.auth.Mechanisms() }

// Login says who a client is. The error's code follows RabbitMQ: 503 for an
// unknown mechanism, 502 for a malformed response, 403 for a refusal.
func (b *Broker) Login(mechanism string, response []byte, peer net.Addr) (*Identity, *amqperr.Error) {
	b.counters.logins.Add(1)
	id, err := b.auth.Login(mechanism, response, peer)
	if err == nil {
		return id, nil
	}
	b.counters.loginsRefused.Add(1)
	var told *amqperr.Error
	if !errors.As(err, &told) {
		told = amqperr.LoginRefused(mechanism)
	}
	b.log.Warn("login refused", "mechanism", mechanism, "peer", peer.String(), "reason", err.Error())
	return nil, told
}

// mayOpen checks that a virtual host is there and that the user may use it.
func (b *Broker) mayOpen(user *Identity, vhost string) *amqperr.Error {
	v := b.view()
	if v.VHost(vhost) == nil {
		return amqperr.VHostNotFound(vhost)
	}
	if v.User(user.Name) == nil || v.Permission(user.Name, vhost) == nil {
		return amqperr.VHostRefused(vhost, user.Name)
	}
	return nil
}

// Begin says under which incarnation of the node connections are numbered; it
// comes before the first Register.
func (b *Broker) Begin(i catalog.Incarnation) { b.incarnation = i }
