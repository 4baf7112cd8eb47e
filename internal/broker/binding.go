package broker

import (
	"strings"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
)

// Bind binds a queue or an exchange to an exchange.
func (c *Conn) Bind(r Bind) *amqperr.Error { return c.binding(r, "bind", catalog.Bind) }

// Unbind removes a binding; a missing one is no error.
func (c *Conn) Unbind(r Bind) *amqperr.Error { return c.binding(r, "unbind", catalog.Unbind) }

// binding checks write permission on the destination and read permission on
// the source, and has the catalog check the rest.
func (c *Conn) binding(r Bind, operation string, command func(catalog.Binding, catalog.ConnID) []byte) *amqperr.Error {
	bd := catalog.Binding{
		VHost: c.vhost, Source: catalog.CleanName(r.Source), Kind: catalog.KindQueue,
		Destination: catalog.CleanName(r.Destination), Key: r.RoutingKey, Args: r.Arguments,
	}
	kind := amqperr.Queue
	if r.ToExchange {
		bd.Kind, kind = catalog.KindExchange, amqperr.Exchange
	}
	if kind == amqperr.Queue && strings.HasPrefix(bd.Destination, ReplyTo) {
		return amqperr.ReplyQueueBinding()
	}
	if err := c.mayWrite(kind, bd.Destination); err != nil {
		return err
	}
	if bd.Source == "" || r.ToExchange && bd.Destination == "" {
		return amqperr.DefaultExchange()
	}
	if err := c.mayRead(amqperr.Exchange, bd.Source); err != nil {
		return err
	}
	_, err := c.b.propose(command(bd, c.id), c.b.bindingDurable(bd))
	return c.b.clientError(err, operation, kind, c.vhost, bd.Destination)
}

// bindingDurable reports whether a binding outlives the node: both its ends do.
func (b *Broker) bindingDurable(bd catalog.Binding) bool {
	v := b.view()
	if x := v.Exchange(bd.VHost, bd.Source); x == nil || !x.Durable {
		return false
	}
	if bd.Kind == catalog.KindExchange {
		x := v.Exchange(bd.VHost, bd.Destination)
		return x != nil && x.Durable
	}
	q := v.Queue(bd.VHost, bd.Destination)
	return q != nil && q.Durable
}
