package broker

import (
	"sync/atomic"

	"holdfast/internal/amqperr"
	"holdfast/internal/auth"
	"holdfast/internal/catalog"
)

// Which operation asks for which permission, on which name:
//
//	operation                    configure   write         read
//	exchange.declare             exchange    alternate     exchange, if it has an alternate
//	exchange.declare passive     any of the three on the exchange
//	exchange.delete              exchange
//	exchange.bind, .unbind                   destination   source
//	queue.declare                queue
//	queue.declare passive        any of the three on the queue
//	queue.bind, .unbind                      queue         exchange
//	queue.purge                                            queue
//	queue.delete                 queue
//	basic.publish                            exchange
//	basic.get, .consume                                    queue
//
// The default exchange goes by the name amq.default. A server-named queue is
// checked under the name made for it.

// The permissions by the names that refusals carry.
const (
	configure = "configure"
	write     = "write"
	read      = "read"
)

// permits are what a connection's user may do in its virtual host, with the
// patterns compiled. They are read anew when the catalog's record changes.
type permits struct {
	current atomic.Pointer[compiled]
}

type compiled struct {
	from                   *catalog.Permission
	configure, write, read *auth.Pattern
}

// permits returns the patterns as the catalog has them now; nil: no permission at all.
func (c *Conn) compiled() *compiled {
	p := c.b.view().Permission(c.user.Name, c.vhost)
	if p == nil {
		return nil
	}
	now := c.permits.current.Load()
	if now == nil || now.from != p {
		now = &compiled{
			from:      p,
			configure: auth.CompilePattern(p.Configure),
			write:     auth.CompilePattern(p.Write),
			read:      auth.CompilePattern(p.Read),
		}
		c.permits.current.Store(now)
	}
	return now
}

func (p *compiled) allows(permission, name string) bool {
	if p == nil {
		return false
	}
	switch permission {
	case configure:
		return p.configure.Match(name)
	case write:
		return p.write.Match(name)
	}
	return p.read.Match(name)
}

func (c *Conn) may(permission string, kind amqperr.Kind, name string) *amqperr.Error {
	name = permissionName(kind, name)
	if c.compiled().allows(permission, name) {
		return nil
	}
	return amqperr.PermissionRefused(permission, kind, c.vhost, name, c.user.Name)
}

// permissionName is the name under which permissions for something are looked up.
func permissionName(kind amqperr.Kind, name string) string {
	if kind == amqperr.Exchange && name == "" {
		return "amq.default"
	}
	return name
}

func (c *Conn) mayConfigure(kind amqperr.Kind, name string) *amqperr.Error {
	return c.may(configure, kind, name)
}

func (c *Conn) mayWrite(kind amqperr.Kind, name string) *amqperr.Error {
	return c.may(write, kind, name)
}

func (c *Conn) mayRead(kind amqperr.Kind, name string) *amqperr.Error {
	return c.may(read, kind, name)
}

// mayAnything asks for any of the three; the refusal speaks of configure, as
// for a declare that is not passive.
func (c *Conn) mayAnything(kind amqperr.Kind, name string) *amqperr.Error {
	if c.mayRead(kind, name) == nil || c.mayWrite(kind, name) == nil {
		return nil
	}
	return c.mayConfigure(kind, name)
}
