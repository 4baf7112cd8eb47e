package broker

import (
	"strings"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
)

// Bind binds a queue or an exchange to an exchange.
func (c *Conn) Bind(r Bind) *amqperr.Error {
	bd, err := c.binding(r)
	if err != nil {
		return err
	}
	if q := c.b.view().Queue(bd.VHost, bd.Destination); q != nil && bd.Kind == catalog.KindQueue {
		if _, err := c.b.awaitGoing(q.ID); err != nil { // if it goes, it is as good as gone
			return c.b.clientError(err, "bind", amqperr.Queue, c.vhost, bd.Destination)
		}
	}
	if v := c.b.view(); v.HasBinding(&bd) && (c.b.settled() || !c.b.bindingDurable(bd)) { // and so both its ends are there
		if bd.Kind == catalog.KindExchange {
			return nil
		}
		_, err := v.UseQueue(bd.VHost, bd.Destination, c.id)
		return err
	}
	result, e := c.b.propose(catalog.Bind(bd, c.id), c.b.bindingDurable(bd))
	if e == nil && result.Created {
		c.b.replay(Joining{bd.VHost, bd.Source, r.ToExchange, bd.Destination, result.Generation})
	}
	return c.b.clientError(e, "bind", bindingKind(r), c.vhost, bd.Destination)
}

// Unbind removes a binding; one that is not there is no error, whatever is missing.
func (c *Conn) Unbind(r Bind) *amqperr.Error {
	bd, err := c.binding(r)
	if err != nil {
		return err
	}
	bound := c.b.view().HasBinding(&bd)
	if !bound && c.b.settled() {
		return nil
	}
	_, e := c.b.propose(catalog.Unbind(bd, c.id), !bound || c.b.bindingDurable(bd))
	return c.b.clientError(e, "unbind", bindingKind(r), c.vhost, bd.Destination)
}

func bindingKind(r Bind) amqperr.Kind {
	if r.ToExchange {
		return amqperr.Exchange
	}
	return amqperr.Queue
}

// binding is the binding that a request speaks of, once the user may change
// it: write permission on the destination, read permission on the source.
func (c *Conn) binding(r Bind) (catalog.Binding, *amqperr.Error) {
	bd := catalog.Binding{
		VHost: c.vhost, Source: catalog.CleanName(r.Source), Kind: catalog.KindQueue,
		Destination: catalog.CleanName(r.Destination), Key: r.RoutingKey, Args: r.Arguments,
	}
	kind := bindingKind(r)
	if r.ToExchange {
		bd.Kind = catalog.KindExchange
	}
	if kind == amqperr.Queue && strings.HasPrefix(bd.Destination, ReplyTo) {
		return bd, amqperr.ReplyQueueBinding()
	}
	if err := c.mayWrite(kind, bd.Destination); err != nil {
		return bd, err
	}
	if bd.Source == "" || r.ToExchange && bd.Destination == "" {
		return bd, amqperr.DefaultExchange()
	}
	return bd, c.mayRead(amqperr.Exchange, bd.Source)
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
