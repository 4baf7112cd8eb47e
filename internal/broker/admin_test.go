package broker

import (
	"net"
	"reflect"
	"strings"
	"testing"

	"holdfast/internal/amqperr"
	"holdfast/internal/queuehost"
	"holdfast/internal/wire"
)

func kind(err error) AdminErrorKind {
	if err == nil {
		return 0
	}
	return err.(*AdminError).Kind
}

func TestUsersAndPermissions(t *testing.T) {
	r := newRig(t)
	steps := []struct {
		what string
		do   func() error
		want AdminErrorKind
	}{
		{"add", func() error { return r.AddUser("u", "p") }, 0},
		{"add again", func() error { return r.AddUser("u", "p") }, Rejected},
		{"tags", func() error { return r.SetUserTags("u", []string{"management"}) }, 0},
		{"tags of nobody", func() error { return r.SetUserTags("nobody", nil) }, NotFound},
		{"password", func() error { return r.ChangePassword("u", "q") }, 0},
		{"password of nobody", func() error { return r.ChangePassword("nobody", "q") }, NotFound},
		{"authenticate", func() error { return r.AuthenticateUser("u", "q") }, 0},
		{"authenticate with the old password", func() error { return r.AuthenticateUser("u", "p") }, Rejected},
		{"permissions", func() error { return r.SetPermissions(vhost, "u", "", "w", "r") }, 0},
		{"permissions that are no pattern", func() error { return r.SetPermissions(vhost, "u", "(", "", "") }, Invalid},
		{"permissions of nobody", func() error { return r.SetPermissions(vhost, "nobody", "", "", "") }, NotFound},
		{"permissions nowhere", func() error { return r.SetPermissions("none", "u", "", "", "") }, NotFound},
	}
	for _, s := range steps {
		if err := s.do(); kind(err) != s.want {
			t.Errorf("%s: %v, want kind %d", s.what, err, s.want)
		}
	}
	want := []Permission{{User: "u", VHost: vhost, Write: "w", Read: "r"}}
	if got := r.ListPermissions("", "u"); !reflect.DeepEqual(got, want) {
		t.Errorf("permissions %+v", got)
	}
	c := r.connectAs("u")
	if err := r.ClearPermissions(vhost, "u"); err != nil {
		t.Error(err)
	}
	_, err := c.DeclareQueue(DeclareQueue{Name: "q", Passive: true})
	refused(t, "after clear_permissions", err, 403)
	if err := r.DeleteUser("u"); err != nil {
		t.Error(err)
	}
	if why := c.wasClosed(); why == nil || why.Code != 320 {
		t.Errorf("the deleted user's connection was closed with %v", why)
	}
	if _, err := r.Register(c.user, vhost, "late", &client{t: t}); err == nil || err.Code != 530 {
		t.Errorf("the deleted user opens: %v", err)
	}
}

// T11, T12: who gets in.
func TestLogin(t *testing.T) {
	r := newRig(t)
	if err := r.AddUser("u", "p"); err != nil {
		t.Fatal(err)
	}
	peer := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}
	id, err := r.Login("PLAIN", []byte("\x00u\x00p"), peer)
	ok(t, "login", err)
	for _, c := range []struct {
		mechanism, response string
		code                uint16
	}{
		{"PLAIN", "\x00u\x00wrong", 403}, {"PLAIN", "\x00nobody\x00p", 403},
		{"FOO", "\x00u\x00p", 503}, {"PLAIN", "u p", 502},
	} {
		_, err := r.Login(c.mechanism, []byte(c.response), peer)
		refused(t, c.mechanism+" "+c.response, err, c.code)
		if err != nil && err.Scope != amqperr.Connection {
			t.Errorf("scope of %v", err)
		}
	}
	_, err = r.Register(id, "none", "c", &client{t: t})
	refused(t, "missing vhost", err, 530)
	_, err = r.Register(id, vhost, "c", &client{t: t})
	refused(t, "vhost without permission", err, 530)
}

func TestAdminMessages(t *testing.T) {
	r := newRig(t)
	if err := r.AdminDeclareQueue(AdminQueue{VHost: vhost, Name: "q", Durable: true}); err != nil {
		t.Fatal(err)
	}
	if err := r.AdminDeclareQueue(AdminQueue{VHost: vhost, Name: "passing"}); err != nil {
		t.Fatal(err)
	}
	properties := map[string]any{
		"content_type": "text/plain", "delivery_mode": float64(2), "priority": float64(3),
		"headers": map[string]any{"h": "v"}, "timestamp": float64(1000),
	}
	for _, body := range []string{"one", "two"} {
		n, err := r.AdminPublish(AdminPublish{VHost: vhost, RoutingKey: "q", Properties: properties, Body: []byte(body)})
		if n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	for _, p := range []AdminPublish{
		{VHost: vhost, Properties: map[string]any{"color": "red"}},
		{VHost: vhost, Properties: map[string]any{"delivery_mode": float64(3)}},
		{VHost: vhost, Properties: map[string]any{"content_type": float64(1)}},
		{VHost: vhost, Properties: map[string]any{"expiration": "soon"}},
		{VHost: vhost, RoutingKey: strings.Repeat("x", 256)},
	} {
		if _, err := r.AdminPublish(p); kind(err) != Invalid {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if _, err := r.AdminPublish(AdminPublish{VHost: vhost, Exchange: "none"}); kind(err) != NotFound {
		t.Errorf("missing exchange: %v", err)
	}
	if n, err := r.AdminPublish(AdminPublish{VHost: vhost, RoutingKey: "none"}); n != 0 || err != nil {
		t.Errorf("unroutable: %d, %v", n, err)
	}
	got, err := r.AdminGet(vhost, "q", 10, true)
	if err != nil || len(got) != 2 || string(got[0].Body) != "one" || got[0].Remaining != 1 || got[0].Redelivered ||
		got[0].Properties["content_type"] != "text/plain" || got[0].RoutingKey != "q" {
		t.Errorf("got %+v, %v", got, err)
	}
	eventually(t, "the messages are back", func() bool {
		q, err := r.Broker.QueueInfo(vhost, "q")
		return err == nil && q.MessagesReady == 2
	})
	got, err = r.AdminGet(vhost, "q", 1, false)
	if err != nil || len(got) != 1 || !got[0].Redelivered {
		t.Errorf("got %+v, %v", got, err)
	}
	if n, err := r.AdminPurgeQueue(vhost, "q"); n != 1 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
	if _, err := r.AdminDeleteQueue(vhost, "q", true, true); err != nil {
		t.Error(err)
	}
	if _, err := r.AdminDeleteQueue(vhost, "q", true, true); kind(err) != NotFound {
		t.Errorf("second delete: %v", err)
	}
}

// However many messages an operator asks for, only so many bytes are fetched.
func TestAdminGetIsBounded(t *testing.T) {
	r := newRig(t)
	if err := r.AdminDeclareQueue(AdminQueue{VHost: vhost, Name: "q"}); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, mostFetched/2+1)
	for range 4 {
		if n, err := r.AdminPublish(AdminPublish{VHost: vhost, RoutingKey: "q", Body: body}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	got, err := r.AdminGet(vhost, "q", 10, true)
	if err != nil || len(got) != 2 || len(got[1].Body) != len(body) || got[1].Remaining != 2 {
		t.Errorf("%d messages, %v", len(got), err)
	}
}

// What no client could say or read is refused to operators as well.
func TestAdminNonsense(t *testing.T) {
	r := newRig(t)
	deep := map[string]any{}
	for range wire.MaxDepth {
		deep = map[string]any{"a": deep}
	}
	for what, err := range map[string]error{
		"deep arguments":    r.AdminDeclareQueue(AdminQueue{VHost: vhost, Name: "q", Arguments: wire.NewTable(deep)}),
		"long name":         r.AdminDeclareQueue(AdminQueue{VHost: vhost, Name: strings.Repeat("x", 256)}),
		"name not UTF-8":    r.AdminDeclareQueue(AdminQueue{VHost: vhost, Name: "\xff"}),
		"long vhost":        r.AddVHost(strings.Repeat("x", 256), "", nil),
		"long user":         r.AddUser(strings.Repeat("x", 256), "p"),
		"key not UTF-8":     second(r.AdminPublish(AdminPublish{VHost: vhost, RoutingKey: "\xff"})),
		"deep headers":      second(r.AdminPublish(AdminPublish{VHost: vhost, Properties: map[string]any{"headers": deep}})),
		"property too long": second(r.AdminPublish(AdminPublish{VHost: vhost, Properties: map[string]any{"type": strings.Repeat("x", 256)}})),
	} {
		if kind(err) != Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second(_ int, err error) error { return err }

func TestListings(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	c.declare(DeclareQueue{Name: "b", Exclusive: true, Arguments: wire.NewTable(map[string]any{"x-foo": "bar"})})
	c.declare(DeclareQueue{Name: "a", Durable: true})
	c.declare(DeclareQueue{Name: "c"})
	c.send("", "a", "body")
	_, err := c.Consume(Consume{Queue: "c", Tag: "t", Channel: 3, Prefetch: 5, Credit: Unlimited, Consumer: &receiver{}})
	ok(t, "consume", err)
	queues, total, e := r.ListQueues(vhost, QueuePage{Limit: 2})
	if e != nil || total != 3 || len(queues) != 2 || queues[0].Name != "a" || queues[1].Name != "b" {
		t.Fatalf("queues %+v, %d, %v", queues, total, e)
	}
	if q := queues[0]; q.MessagesReady != 1 || q.Messages != 1 || !q.Durable || q.State != "running" || q.Type != "classic" {
		t.Errorf("queue %+v", q)
	}
	if q := queues[1]; q.Owner != "connection of guest" || !q.Exclusive || q.Arguments["x-foo"] != "bar" {
		t.Errorf("queue %+v", q)
	}
	if queues, _, _ := r.ListQueues(vhost, QueuePage{Skip: 2, Limit: 2}); len(queues) != 1 || queues[0].Name != "c" || queues[0].Consumers != 1 {
		t.Errorf("second page %+v", queues)
	}
	consumers, e := r.ListConsumers(vhost)
	if e != nil || len(consumers) != 1 || consumers[0].Tag != "t" || consumers[0].Channel != 3 ||
		consumers[0].Connection != "connection of guest" || consumers[0].Prefetch != 5 || !consumers[0].AckRequired {
		t.Errorf("consumers %+v, %v", consumers, e)
	}
	bindings, e := r.ListBindings(vhost)
	if e != nil || len(bindings) != 3 || bindings[0].Source != "" || bindings[0].Destination != "a" || bindings[0].RoutingKey != "a" {
		t.Errorf("bindings %+v, %v", bindings, e)
	}
	if exchanges, e := r.ListExchanges(vhost); e != nil || len(exchanges) != 7 || exchanges[0].Name != "" {
		t.Errorf("exchanges %+v, %v", exchanges, e)
	}
	if got := r.ListConnections(); len(got) != 1 || got[0].ID != c.ID() || got[0].User != guest || got[0].VHost != vhost {
		t.Errorf("connections %+v", got)
	}
	if got := r.ListChannels(); len(got) != 1 || got[0].Connection != "connection of guest" || got[0].Number != 1 {
		t.Errorf("channels %+v", got)
	}
	if _, _, e := r.ListQueues("none", QueuePage{}); kind(e) != NotFound {
		t.Errorf("missing vhost: %v", e)
	}
	if err := r.CloseConnection("none", "reason"); kind(err) != NotFound {
		t.Errorf("closing a missing connection: %v", err)
	}
	if err := r.CloseConnection("connection of guest", "reason"); err != nil {
		t.Error(err)
	}
	if why := c.wasClosed(); why == nil || why.Code != 320 || !strings.Contains(why.Text, "reason") {
		t.Errorf("closed with %v", why)
	}
}

// R658: a delayed retry that nobody says the shortest wait of means nothing, which is said; but not while a policy says one.
func TestExplainRetryWithoutAWait(t *testing.T) {
	r := newRig2(t)
	c := r.connect()
	c.declare(DeclareQueue{Name: "idle", Durable: true, Arguments: wire.NewTable(map[string]any{"x-delayed-retry-type": "failed"})})
	c.declare(DeclareQueue{Name: "none", Durable: true})
	said := func(when, queue string, want bool) {
		t.Helper()
		e, err := r.Explain(t.Context(), vhost, queue)
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(e.Lines, "\n")
		if got := strings.Contains(all, "A delayed retry of failed messages is asked for, but not for how long (delayed-retry-min)"); got != want {
			t.Errorf("%s, %s: said %v, want %v:\n%s", queue, when, got, want, all)
		}
	}
	said("at first", "idle", true)
	said("at first", "none", false)
	if err := r.setPolicy("p", ".*", `{"delayed-retry-min":5}`); err != nil {
		t.Fatal(err)
	}
	said("beside a policy with the rest", "idle", false)
	if err := r.ClearPolicy(vhost, "p", false); err != nil {
		t.Fatal(err)
	}
	said("when that is gone", "idle", true)
}

func TestExplain(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	c.declare(DeclareQueue{Name: "q"})
	says := func(reason string, words ...string) {
		t.Helper()
		e, err := r.Explain(t.Context(), vhost, "q")
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(e.Lines, "\n")
		if (e.Reason == "") != (reason == "") || !strings.Contains(e.Reason, reason) {
			t.Errorf("reason %q, want %q; lines:\n%s", e.Reason, reason, all)
		}
		for _, w := range words {
			if !strings.Contains(all, w) {
				t.Errorf("%q is not in:\n%s", w, all)
			}
		}
	}
	says("", "no bindings")
	c.send("", "q", "one")
	c.send("", "q", "two")
	says("no consumer")
	got := &receiver{}
	s, err := c.Consume(Consume{Queue: "q", Tag: "t", Channel: 1, Prefetch: 1, Credit: Unlimited, Consumer: got})
	ok(t, "consume", err)
	eventually(t, "a delivery", func() bool { return len(got.got()) == 1 })
	says("prefetch")
	s.Settle([]Range{{First: got.ids[0], Last: got.ids[0]}}, Ack)
	eventually(t, "the other", func() bool { return len(got.got()) == 2 })
	r.SetAlarm(AlarmDisk, true, "no space")
	says("disk alarm", "no space")
	for _, x := range []struct {
		nacks queuehost.Nacks
		want  []string
	}{
		{queuehost.Nacks{Refused: 1, Unknown: 2}, []string{"1 publish of clients of this node was refused since it started.",
			"2 publishes of clients of this node were nacked because there was no answer in time: what was nacked may be in the queue."}},
		{queuehost.Nacks{Refused: 2}, []string{"2 publishes of clients of this node were refused since it started."}},
	} {
		same(t, "of nacks", nackLines(x.nacks), x.want)
	}
	if _, err := r.Explain(t.Context(), vhost, "none"); kind(err) != NotFound {
		t.Errorf("missing queue: %v", err)
	}
}
