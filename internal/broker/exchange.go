package broker

import (
	"strings"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
)

// alternateExchange is the argument that names where unroutable messages go.
const alternateExchange = "alternate-exchange"

// DeclareExchange declares an exchange or checks that it is there.
func (c *Conn) DeclareExchange(r DeclareExchange) *amqperr.Error {
	name := catalog.CleanName(r.Name)
	if name == "" {
		return amqperr.DefaultExchange()
	}
	if r.Passive {
		if err := c.mayAnything(amqperr.Exchange, name); err != nil {
			return err
		}
		if c.b.view().Exchange(c.vhost, name) == nil {
			return amqperr.NoExchange(c.vhost, name)
		}
		return nil
	}
	if err := c.mayConfigure(amqperr.Exchange, name); err != nil {
		return err
	}
	d := catalog.ExchangeDecl{
		VHost: c.vhost, Name: name, Type: r.Type,
		Durable: r.Durable, AutoDelete: r.AutoDelete, Internal: r.Internal,
		Args: r.Arguments, Conn: c.id, User: c.user.Name,
	}
	x, err := c.b.view().DeclaredExchange(&d)
	if err != nil || x != nil && (!x.Durable || c.b.settled()) {
		return err
	}
	// Permissions for what the exchange will do by itself are asked of whoever makes it.
	if v, ok := r.Arguments.Get(alternateExchange); ok {
		if alternate, ok := v.Str(); ok {
			if err := c.mayRead(amqperr.Exchange, name); err != nil {
				return err
			}
			if err := c.mayWrite(amqperr.Exchange, alternate); err != nil {
				return err
			}
		}
	}
	_, e := c.b.propose(catalog.DeclareExchange(c.b.placeStore(d)), r.Durable)
	return c.b.clientError(e, "declare", amqperr.Exchange, c.vhost, name)
}

// DeleteExchange deletes an exchange; a missing one is no error.
func (c *Conn) DeleteExchange(r DeleteExchange) *amqperr.Error {
	name := catalog.CleanName(r.Name)
	switch {
	case name == "":
		return amqperr.DefaultExchange()
	case strings.HasPrefix(name, "amq."):
		return amqperr.PredeclaredExchange(c.vhost, name)
	}
	if err := c.mayConfigure(amqperr.Exchange, name); err != nil {
		return err
	}
	x := c.b.view().Exchange(c.vhost, name)
	if x == nil && c.b.settled() {
		return nil
	}
	_, err := c.b.propose(catalog.DeleteExchange(c.vhost, name, r.IfUnused), x == nil || x.Durable)
	return c.b.clientError(err, "delete", amqperr.Exchange, c.vhost, name)
}
