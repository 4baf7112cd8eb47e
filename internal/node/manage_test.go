package node

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/config"
	"holdfast/internal/mgmt/ctl"
	"holdfast/test/rig"
)

// operator runs ctl commands against a node.
type operator struct {
	t *testing.T
	n *Node
}

func (o operator) ctl(args ...string) string {
	o.t.Helper()
	var out bytes.Buffer
	cmd := ctl.Command(ctl.Streams{In: strings.NewReader(""), Out: &out, Err: &out}, o.n.settings.DataDir)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		o.t.Fatalf("ctl %v: %v\n%s", args, err, out.String())
	}
	return out.String()
}

// page fetches a page of the first HTTP listener.
func (o operator) page(path string) string {
	o.t.Helper()
	answer, err := http.Get("http://" + o.n.management.Addresses()[0].String() + path)
	if err != nil {
		o.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != 200 {
		o.t.Fatalf("%s: %d %v\n%s", path, answer.StatusCode, err, body)
	}
	return string(body)
}

// until repeats a look until it shows what is wanted.
func (o operator) until(want string, look func() string) {
	o.t.Helper()
	var last string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if last = look(); strings.Contains(last, want) {
			return
		}
	}
	o.t.Fatalf("%q does not come; last seen:\n%s", want, last)
}

// R147, R148: what clients do shows at once in the listings and the metrics, without a period of sampling.
func TestAnOperatorSeesWhatClientsDo(t *testing.T) {
	port := freePort(t)
	n := newPlace(t).run(t, func(s *config.Settings) { s.HTTPIP, s.HTTPPort = "127.0.0.1", port })
	o := operator{t, n}

	o.ctl("publish", "--declare", "work", "one")
	o.ctl("publish", "--properties", `{"priority":3,"headers":{"n":7}}`, "work", "two")
	if out := o.ctl("-s", "get", "work", "--count", "5"); !strings.Contains(out, "one") || !strings.Contains(out, `{"n",7}`) {
		t.Errorf("get: %s", out)
	}
	if out := o.ctl("-s", "list_queues", "name", "messages", "durable", "state", "type"); out != "work\t2\ttrue\trunning\tclassic\n" {
		t.Errorf("list_queues: %q", out)
	}
	if out := o.ctl("explain", "work"); !strings.Contains(out, "nobody consumes") {
		t.Errorf("explain: %s", out)
	}
	if out := o.page("/metrics"); !strings.Contains(out, `holdfast_queues_blocked{reason="no consumers"} 1`) {
		t.Errorf("metrics: %s", out)
	}

	o.ctl("add_user", "app", "secret")
	o.ctl("set_permissions", "app", ".*", ".*", ".*")
	at, err := n.Addr(false)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := amqp.Dial("amqp://app:secret@" + at.String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := channel.Qos(1, 0, false); err != nil {
		t.Fatal(err)
	}
	deliveries, err := channel.Consume("work", "tag", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := <-deliveries
	if string(d.Body) != "one" {
		t.Errorf("delivered %q", d.Body)
	}
	o.until("work\t1\t1\t1\n", func() string {
		return o.ctl("-s", "list_queues", "name", "messages_ready", "messages_unacknowledged", "consumers")
	})
	o.until(`holdfast_queues_blocked{reason="prefetch"} 1`, func() string { return o.page("/metrics") })
	if out := o.ctl("-s", "list_connections", "user", "vhost", "channels", "state"); out != "app\t/\t1\trunning\n" {
		t.Errorf("list_connections: %q", out)
	}
	if out := o.ctl("-s", "list_consumers", "queue_name", "consumer_tag", "ack_required", "prefetch_count"); out != "work\ttag\ttrue\t1\n" {
		t.Errorf("list_consumers: %q", out)
	}
	if out := o.ctl("-s", "list_channels", "user", "consumer_count", "messages_unacknowledged"); out != "app\t1\t1\n" {
		t.Errorf("list_channels: %q", out)
	}
	for _, line := range []string{
		"rabbitmq_connections 1\n", "rabbitmq_channels 1\n", "rabbitmq_consumers 1\n", "rabbitmq_queues 1\n",
		"rabbitmq_queue_messages_unacked 1\n", "rabbitmq_channel_messages_unacked 1\n", "rabbitmq_auth_attempts_succeeded_total 1\n",
	} {
		if out := o.page("/metrics"); !strings.Contains(out, line) {
			t.Errorf("metrics lack %q", line)
		}
	}
	objects := o.page("/metrics/per-object")
	for _, line := range []string{`rabbitmq_queue_messages_ready{vhost="/",queue="work"} 1` + "\n", `rabbitmq_connection_channels{connection="`} {
		if !strings.Contains(objects, line) {
			t.Errorf("per-object lacks %q in\n%s", line, objects)
		}
	}

	if err := d.Ack(false); err != nil {
		t.Fatal(err)
	}
	o.until("rabbitmq_global_messages_acknowledged_total{protocol=\"amqp091\",queue_type=\"rabbit_classic_queue\"} 1\n", func() string { return o.page("/metrics") })
	closed := connection.NotifyClose(make(chan *amqp.Error, 1))
	if out := o.ctl("close_all_connections", "maintenance"); !strings.Contains(out, "Closed 1 connections") {
		t.Errorf("close: %s", out)
	}
	if reason := <-closed; reason == nil || reason.Code != amqp.ConnectionForced || !strings.Contains(reason.Reason, "maintenance") {
		t.Errorf("the client hears %v", reason)
	}
	o.until("work\t1\t0\t0\n", func() string {
		return o.ctl("-s", "list_queues", "name", "messages_ready", "messages_unacknowledged", "consumers")
	})
	o.ctl("delete_queue", "work")
	out := o.page("/metrics") // what a queue that is gone had counted still counts
	if !strings.Contains(out, "rabbitmq_queues 0\n") || !strings.Contains(out, "rabbitmq_global_messages_acknowledged_total{protocol=\"amqp091\",queue_type=\"rabbit_classic_queue\"} 1\n") {
		t.Errorf("after the queue went:\n%s", out)
	}
	status := o.ctl("status")
	for _, line := range []string{"Health: ok", "Holdfast version: test", "Queue count: 0", "protocol: amqp,", "protocol: http,"} {
		if !strings.Contains(status, line) {
			t.Errorf("status lacks %q in\n%s", line, status)
		}
	}
}

// R268: a virtual host for a test comes and goes whole.
func TestAVirtualHostForATest(t *testing.T) {
	n := newPlace(t).run(t)
	o := operator{t, n}
	o.ctl("add_vhost", "test/1")
	o.ctl("set_permissions", "-p", "test/1", "guest", ".*", ".*", ".*")
	for _, queue := range []string{"a", "b/c", "ü"} {
		o.ctl("publish", "-p", "test/1", "--declare", queue, "x")
	}
	if out := o.ctl("-s", "list_queues", "-p", "test/1", "name"); out != "a\nb/c\nü\n" {
		t.Errorf("%q", out)
	}
	o.ctl("delete_vhost", "test/1")
	if out := o.ctl("-s", "list_vhosts"); out != "/\n" {
		t.Errorf("%q", out)
	}
	o.ctl("add_vhost", "test/1")
	if out := o.ctl("-s", "list_queues", "-p", "test/1"); out != "" {
		t.Errorf("queues of the former virtual host: %q", out)
	}
	if out := o.ctl("-s", "list_permissions", "-p", "test/1"); out != "" {
		t.Errorf("permissions of the former virtual host: %q", out)
	}
}

// freePort is a port of loopback for a setting that cannot say "any".
func freePort(t *testing.T) int {
	t.Helper()
	addr, err := rig.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return int(netip.MustParseAddrPort(addr).Port())
}

// However few files may be open, some are left for the log, and some clients are served.
func TestConnectionLimit(t *testing.T) {
	for files, want := range map[uint64]int{0: 0, 1 << 63: 0, 20: 1, 48: 16, 1024: 768, 20000: 15904, 1 << 20: 1<<20 - 4096} {
		if got := connectionLimit(files); got != want {
			t.Errorf("of %d files, %d clients; want %d", files, got, want)
		}
	}
}
