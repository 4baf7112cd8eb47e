package broker

import (
	"strings"
	"testing"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/wire"
)

// Each operation asks for exactly the permissions of the table in
// permission.go: with all of them it is allowed, with any one taken away it is
// refused with 403 and the name of what was taken away. The last line says
// which names the operation never looks at.
func TestPermissionsPerOperation(t *testing.T) {
	r := newRig(t)
	admin := r.connect()
	admin.declare(DeclareQueue{Name: "q", Durable: true})
	for _, x := range []string{"x", "other", "alternate"} {
		ok(t, "declare", admin.DeclareExchange(DeclareExchange{Name: x, Type: "direct", Durable: true}))
	}
	alternate := wire.NewTable(map[string]any{"alternate-exchange": "alternate"})

	cases := []struct {
		operation              string
		configure, write, read string // the names that are needed
		do                     func(c *client) *amqperr.Error
	}{
		{"exchange.declare", "x", "", "", func(c *client) *amqperr.Error {
			return c.DeclareExchange(DeclareExchange{Name: "x", Type: "direct", Durable: true})
		}},
		{"exchange.declare of a new one with an alternate", "fresh", "alternate", "fresh", func(c *client) *amqperr.Error {
			err := c.DeclareExchange(DeclareExchange{Name: "fresh", Type: "direct", Arguments: alternate})
			admin.DeleteExchange(DeleteExchange{Name: "fresh"})
			return err
		}},
		{"exchange.delete", "none", "", "", func(c *client) *amqperr.Error { return c.DeleteExchange(DeleteExchange{Name: "none"}) }},
		{"exchange.bind", "", "other", "x", func(c *client) *amqperr.Error {
			return c.Bind(Bind{Source: "x", Destination: "other", ToExchange: true})
		}},
		{"exchange.unbind", "", "other", "x", func(c *client) *amqperr.Error {
			return c.Unbind(Bind{Source: "x", Destination: "other", ToExchange: true})
		}},
		{"queue.declare", "q", "", "", func(c *client) *amqperr.Error {
			_, err := c.DeclareQueue(DeclareQueue{Name: "q", Durable: true})
			return err
		}},
		{"queue.declare with a name of the server's", "amq.gen-", "", "", func(c *client) *amqperr.Error {
			_, err := c.DeclareQueue(DeclareQueue{Exclusive: true})
			return err
		}},
		{"queue.bind", "", "q", "x", func(c *client) *amqperr.Error {
			return c.Bind(Bind{Source: "x", Destination: "q", RoutingKey: "k"})
		}},
		{"queue.unbind", "", "q", "x", func(c *client) *amqperr.Error {
			return c.Unbind(Bind{Source: "x", Destination: "q", RoutingKey: "k"})
		}},
		{"queue.purge", "", "", "q", func(c *client) *amqperr.Error { _, err := c.PurgeQueue("q"); return err }},
		{"queue.delete", "none", "", "", func(c *client) *amqperr.Error {
			_, err := c.DeleteQueue(DeleteQueue{Name: "none"})
			return err
		}},
		{"basic.get", "", "", "q", func(c *client) *amqperr.Error {
			_, err := c.Get(Get{Queue: "q", Channel: 1, Got: func(*Subscription, Delivery, uint64) {}})
			return err
		}},
		{"basic.consume", "", "", "q", func(c *client) *amqperr.Error {
			s, err := c.Consume(Consume{Queue: "q", Tag: "t", Channel: 1, Credit: Unlimited, Consumer: &receiver{}})
			if err == nil {
				s.Detach(nil)
			}
			return err
		}},
		{"basic.publish", "", "x", "", func(c *client) *amqperr.Error {
			_, err := publish(c.Publisher(), "x", "k", nil, "", nil, 0)
			return err
		}},
		{"basic.publish to the default exchange", "", "amq.default", "", func(c *client) *amqperr.Error {
			_, err := publish(c.Publisher(), "", "q", nil, "", nil, 0)
			return err
		}},
	}
	r.must(catalog.AddUser(catalog.User{Name: "user"}))
	grant := func(configure, write, read string) {
		exactly := func(name string) string {
			if name == "" {
				return ""
			}
			return "^" + strings.ReplaceAll(name, ".", "\\.")
		}
		r.must(catalog.SetPermissions(catalog.Permission{
			User: "user", VHost: vhost, Configure: exactly(configure), Write: exactly(write), Read: exactly(read),
		}))
	}
	grant("", "", "")
	user := r.connectAs("user")
	for _, c := range cases {
		t.Run(c.operation, func(t *testing.T) {
			grant(c.configure, c.write, c.read)
			if err := c.do(user); err != nil {
				t.Errorf("with what it needs: %v", err)
			}
			for _, less := range []struct {
				permission, name       string
				configure, write, read string
			}{
				{configure, c.configure, "", c.write, c.read},
				{write, c.write, c.configure, "", c.read},
				{read, c.read, c.configure, c.write, ""},
			} {
				if less.name == "" {
					continue
				}
				grant(less.configure, less.write, less.read)
				err := c.do(user)
				if err == nil || err.Code != amqperr.AccessRefused || err.Scope != amqperr.Channel {
					t.Errorf("without %s: got %v, want 403 of the channel", less.permission, err)
				} else if !strings.Contains(err.Text, less.permission+" access to") || !strings.Contains(err.Text, less.name) {
					t.Errorf("without %s on %s the text is: %s", less.permission, less.name, err.Text)
				}
			}
		})
	}
}

// A passive declare needs any one of the three permissions; the refusal speaks of configure.
func TestPassiveDeclareNeedsAnyPermission(t *testing.T) {
	r := newRig(t)
	admin := r.connect()
	admin.declare(DeclareQueue{Name: "q"})
	r.must(catalog.AddUser(catalog.User{Name: "user"}))
	grant := func(configure, write, read string) {
		r.must(catalog.SetPermissions(catalog.Permission{User: "user", VHost: vhost, Configure: configure, Write: write, Read: read}))
	}
	grant("", "", "")
	user := r.connectAs("user")
	for _, c := range []struct {
		configure, write, read string
		code                   uint16
	}{
		{"", "", "", 403}, {"q", "", "", 0}, {"", "q", "", 0}, {"", "", "q", 0},
	} {
		grant(c.configure, c.write, c.read)
		_, err := user.DeclareQueue(DeclareQueue{Name: "q", Passive: true})
		refused(t, "passive declare", err, c.code)
		if err != nil && !strings.Contains(err.Text, "configure access") {
			t.Errorf("text: %s", err.Text)
		}
	}
	grant("amq.direct", "", "")
	refused(t, "passive declare of an exchange", user.DeclareExchange(DeclareExchange{Name: "amq.direct", Passive: true}), 0)
	refused(t, "passive declare of an exchange without", user.DeclareExchange(DeclareExchange{Name: "amq.fanout", Passive: true}), 403)
}

// A connection that is open notices at once when its permissions change, also in what its publishers remember.
func TestPermissionChangesHoldAtOnce(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	c.declare(DeclareQueue{Name: "q"})
	p := c.Publisher()
	if _, err := publish(p, "", "q", nil, "", nil, 0); err != nil {
		t.Fatal(err)
	}
	r.must(catalog.SetPermissions(catalog.Permission{User: guest, VHost: vhost, Configure: ".*", Write: "", Read: ".*"}))
	_, err := publish(p, "", "q", nil, "", nil, 0)
	refused(t, "publish without write permission", err, 403)
	r.must(catalog.SetPermissions(catalog.Permission{User: guest, VHost: vhost, Configure: ".*", Write: ".*", Read: ".*"}))
	if _, err := publish(p, "", "q", nil, "", nil, 0); err != nil {
		t.Errorf("publish with write permission again: %v", err)
	}
}
