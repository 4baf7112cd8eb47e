package blackbox

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/raw"
)

// as is the target's URL for another user and vhost.
func as(t *testing.T, user, password, vhost string) string {
	t.Helper()
	u := must(url.Parse(target.url))(t)
	return fmt.Sprintf("amqp://%s:%s@%s/%s", user, password, u.Host, url.PathEscape(vhost))
}

// R55: permissions are patterns for configure, write and read of one vhost.
func TestPermissions(t *testing.T) {
	t.Parallel()
	user := "u" + run
	ctl(t, "add_user", user, "secret")
	t.Cleanup(func() { ctl(t, "delete_user", user) })
	_, err := amqp.Dial(as(t, user, "secret", "/"))
	refused(t, err, 530)
	ctl(t, "set_permissions", "-p", "/", user, "^conf-.*", "^write-.*", "^read-.*")
	c := dialURL(t, as(t, user, "secret", "/"))
	setup := open(t)
	for _, q := range []string{"write-q", "read-q", "other-q", "conf-q"} {
		must(setup.QueueDeclare(q+run, false, false, false, false, nil))(t)
		removeQueue(t, q+run)
	}
	for _, x := range []string{"write-x", "read-x", "other-x"} {
		ok(t, setup.ExchangeDeclare(x+run, "fanout", false, false, false, false, nil))
		t.Cleanup(func() { _ = setup.ExchangeDelete(x+run, false, false) })
	}
	publish := func(x string) func(ch *amqp.Channel) error {
		return func(ch *amqp.Channel) error {
			fault := closing(ch)
			if err := ch.Publish(x, "k", false, false, amqp.Publishing{}); err != nil {
				return err
			}
			if err := ch.Qos(0, 0, false); err == nil {
				return nil
			}
			return fault(t)
		}
	}
	for _, c2 := range []struct {
		name    string
		do      func(ch *amqp.Channel) error
		allowed bool
	}{
		{"declare", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("conf-q"+run, false, false, false, false, nil)
			return err
		}, true},
		{"declare another's", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("other-q"+run, false, false, false, false, nil)
			return err
		}, false},
		{"passive another's", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive("other-q"+run, false, false, false, false, nil)
			return err
		}, pick(t, "passive-permission", true, false)},
		{"delete another's", func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete("other-q"+run, false, false, false)
			return err
		}, false},
		{"declare exchange", func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare("other-x"+run, "fanout", false, false, false, false, nil)
		}, false},
		{"delete exchange", func(ch *amqp.Channel) error { return ch.ExchangeDelete("other-x"+run, false, false) }, false},
		{"publish", publish("write-x" + run), true},
		{"publish elsewhere", publish("other-x" + run), false},
		{"publish by the default exchange", publish(""), false},
		{"get", func(ch *amqp.Channel) error { _, _, err := ch.Get("read-q"+run, true); return err }, true},
		{"get elsewhere", func(ch *amqp.Channel) error { _, _, err := ch.Get("other-q"+run, true); return err }, false},
		{"consume", func(ch *amqp.Channel) error {
			_, err := ch.Consume("read-q"+run, "", true, false, false, false, nil)
			return err
		}, true},
		{"consume elsewhere", func(ch *amqp.Channel) error {
			_, err := ch.Consume("other-q"+run, "", true, false, false, false, nil)
			return err
		}, false},
		{"purge", func(ch *amqp.Channel) error { _, err := ch.QueuePurge("read-q"+run, false); return err }, true},
		{"purge elsewhere", func(ch *amqp.Channel) error { _, err := ch.QueuePurge("other-q"+run, false); return err }, false},
		{"bind", func(ch *amqp.Channel) error { return ch.QueueBind("write-q"+run, "k", "read-x"+run, false, nil) }, true},
		{"bind another's queue", func(ch *amqp.Channel) error { return ch.QueueBind("read-q"+run, "k", "read-x"+run, false, nil) }, false},
		{"bind to another's exchange", func(ch *amqp.Channel) error { return ch.QueueBind("write-q"+run, "k", "write-x"+run, false, nil) }, false},
		{"unbind another's queue", func(ch *amqp.Channel) error { return ch.QueueUnbind("read-q"+run, "k", "read-x"+run, nil) }, false},
		{"bind exchange", func(ch *amqp.Channel) error { return ch.ExchangeBind("write-x"+run, "k", "read-x"+run, false, nil) }, true},
		{"bind another's exchange", func(ch *amqp.Channel) error {
			return ch.ExchangeBind("read-x"+run, "k", "read-x"+run, false, nil)
		}, false},
	} {
		t.Run(c2.name, func(t *testing.T) {
			err := c2.do(channel(t, c))
			if c2.allowed {
				ok(t, err)
				return
			}
			refused(t, err, 403)
		})
	}
}

// R55: a server-named queue needs the configure permission too, by its name.
func TestPermissionOfServerNames(t *testing.T) {
	t.Parallel()
	user := "g" + run
	ctl(t, "add_user", user, "secret")
	t.Cleanup(func() { ctl(t, "delete_user", user) })
	ctl(t, "set_permissions", "-p", "/", user, "^$", "", "")
	_, err := channel(t, dialURL(t, as(t, user, "secret", "/"))).QueueDeclare("", false, true, true, false, nil)
	refused(t, err, 403)
	ctl(t, "set_permissions", "-p", "/", user, "^amq\\.gen.*", "", "")
	must(channel(t, dialURL(t, as(t, user, "secret", "/"))).QueueDeclare("", false, true, true, false, nil))(t)
}

// R55: vhosts keep their things apart; deleting one ends its connections and
// all that is in it (R268).
func TestVhosts(t *testing.T) {
	t.Parallel()
	vhost := "v/" + run
	ctl(t, "add_vhost", vhost)
	ctl(t, "set_permissions", "-p", vhost, "guest", ".*", ".*", ".*")
	if !strings.Contains(ctl(t, "list_vhosts"), vhost) {
		t.Fatal("the vhost is not listed")
	}
	here, there := open(t), channel(t, dialURL(t, as(t, "guest", "guest", vhost)))
	q := name(t)
	removeQueue(t, q)
	must(here.QueueDeclare(q, true, false, false, false, nil))(t)
	must(there.QueueDeclare(q, false, false, false, false, nil))(t) // same name, other flags: another queue
	put(t, q, "here")
	equal(t, "messages there", must(there.QueueDeclarePassive(q, false, false, false, false, nil))(t).Messages, 0)
	ok(t, there.ExchangeDeclare("amq.direct", "direct", true, false, false, false, nil))

	gone := there.NotifyClose(make(chan *amqp.Error, 1))
	ctl(t, "delete_vhost", vhost)
	select {
	case <-gone:
	case <-time.After(raw.Wait):
		t.Fatal("the connection to the deleted vhost lives on")
	}
	_, err := amqp.Dial(as(t, "guest", "guest", vhost))
	refused(t, err, 530)
	equal(t, "messages here", depth(t, here, q), 1)
	ctl(t, "add_vhost", vhost)
	t.Cleanup(func() { ctl(t, "delete_vhost", vhost) })
	ctl(t, "set_permissions", "-p", vhost, "guest", ".*", ".*", ".*")
	_, err = channel(t, dialURL(t, as(t, "guest", "guest", vhost))).QueueDeclarePassive(q, false, false, false, false, nil)
	refused(t, err, 404)
}

// R55: a user's password can be changed, and the old one is then refused.
func TestChangePassword(t *testing.T) {
	t.Parallel()
	user := "p" + run
	ctl(t, "add_user", user, "first")
	t.Cleanup(func() { ctl(t, "delete_user", user) })
	ctl(t, "set_permissions", user, ".*", ".*", ".*")
	dialURL(t, as(t, user, "first", "/"))
	ctl(t, "change_password", user, "second")
	dialURL(t, as(t, user, "second", "/"))
	_, err := amqp.Dial(as(t, user, "first", "/"))
	if !errors.Is(err, amqp.ErrCredentials) {
		t.Fatalf("the old password: %v", err)
	}
}

// The listings of ctl tell what is there, by rabbitmqctl's names.
func TestListings(t *testing.T) {
	t.Parallel()
	ch := open(t)
	q, x := queue(t, ch), exchange(t, ch, "topic", nil)
	ok(t, ch.QueueBind(q, "a.#", x, false, nil))
	put(t, q, "1", "2", "3")
	ok(t, ch.Qos(1, 0, false))
	next(t, consume(t, ch, q))
	row := func(command string, has []string, columns ...string) {
		t.Helper()
		var out string
		eventually(t, fmt.Sprintf("%s shows %q", command, has), func() bool {
			out = ctl(t, append([]string{"-q", command}, columns...)...)
			for line := range strings.Lines(out) {
				all := true
				fields := strings.Split(strings.TrimRight(line, "\n"), "\t")
				for _, h := range has {
					found := false
					for _, f := range fields {
						found = found || strings.TrimSpace(f) == h
					}
					all = all && found
				}
				if all {
					return true
				}
			}
			return false
		})
	}
	row("list_queues", []string{q, "2", "1", "3", "true"}, "name", "messages_ready", "messages_unacknowledged", "messages", "durable")
	row("list_exchanges", []string{x, "topic"}, "name", "type")
	row("list_bindings", []string{x, q, "a.#"}, "source_name", "destination_name", "routing_key")
	row("list_consumers", []string{q, "1"}, "queue_name", "prefetch_count")
	row("list_connections", []string{"guest"}, "user", "state")
	row("list_channels", []string{"guest", "1"}, "user", "messages_unacknowledged")
	row("list_users", []string{"guest"})
	row("list_permissions", []string{"guest", ".*"})
}
