package perf

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// parsed is the options of a command line of throughput.
func parsed(args string) (*options, error) {
	o, set := scenarios()[0].options()
	if err := set.parse(strings.Fields(args)); err != nil {
		return nil, err
	}
	return o, o.check()
}

// A command line of PerfTest means here what it means there.
func TestOptionsOfPerfTest(t *testing.T) {
	o, err := parsed("-h amqp://u:p%40@host:5673/vh -x 4 -y2 -s 1000 -r 50.5 -c 200 -q 100 -A 50 -f persistent -f mandatory " +
		"-qp perf-%02d -qpf 1 --queue-pattern-to=3 -qa x-queue-type=classic,x-max-length=10 -ad false -z 30 -C 10k -D 7 " +
		"-e ex -t topic -k some.key --id mine -mp priority=5,kind=odd")
	if err != nil {
		t.Fatal(err)
	}
	want := target{addr: "host:5673", user: "u", password: "p@", vhost: "vh"}
	if o.targets[0] != want {
		t.Errorf("target %+v", o.targets[0])
	}
	if o.producers != 4 || o.consumers != 2 || o.size != 1000 || o.rate != 50.5 || o.confirm != 200 || o.prefetch != 100 || o.ackEvery != 50 ||
		o.time != 30*time.Second || o.sends != 10_000 || o.receives != 7 || o.id != "mine" {
		t.Errorf("options %+v", o)
	}
	top := o.topology()
	if !reflect.DeepEqual(top.queues, []string{"perf-01", "perf-02", "perf-03"}) || !top.durable || top.exchange != "ex" || top.kind != "topic" ||
		top.keyOf("perf-01") != "some.key" || top.auto {
		t.Errorf("topology %+v", top)
	}
	if v, ok := top.args.Get("x-max-length"); !ok || v.Any() != int64(10) {
		t.Errorf("arguments %v", top.args.Map())
	}
	m := o.message()
	if p, _ := m.properties.Priority(); p != 5 || m.properties.DeliveryMode() != 2 || m.properties.Headers().Map()["kind"] != "odd" || !m.mandatory {
		t.Errorf("message %v", m.properties.Map())
	}
}

func TestDefaults(t *testing.T) {
	o, err := parsed("")
	if err != nil {
		t.Fatal(err)
	}
	want := target{addr: "localhost:5672", user: "guest", password: "guest", vhost: "/"}
	if o.targets[0] != want || o.confirm != -1 || o.autoAck || len(o.queues()) != 1 || o.queues()[0] != o.id || o.topology().durable {
		t.Errorf("options %+v", o)
	}
}

func TestTargets(t *testing.T) {
	for text, want := range map[string]target{
		"10.0.0.1":              {addr: "10.0.0.1:5672", user: "guest", password: "guest", vhost: "/"},
		"10.0.0.1:1":            {addr: "10.0.0.1:1", user: "guest", password: "guest", vhost: "/"},
		"amqp://":               {addr: "localhost:5672", user: "guest", password: "guest", vhost: "/"},
		"amqp://h/%2F":          {addr: "h:5672", user: "guest", password: "guest", vhost: "/"},
		"amqps://a:b@h/x":       {addr: "h:5671", user: "a", password: "b", vhost: "x", tls: true},
		"amqp://guest@[::1]:9/": {addr: "[::1]:9", user: "guest", password: "guest", vhost: "/"},
		"amqp://a@h":            {addr: "h:5672", user: "a", password: "guest", vhost: "/"},
		"amqp://a:@h":           {addr: "h:5672", user: "a", password: "guest", vhost: "/"},
	} {
		if have, err := parseTarget(text); err != nil || have != want {
			t.Errorf("%s: %+v %v", text, have, err)
		}
	}
	if _, err := parseTarget("http://h"); err == nil {
		t.Error("http is no broker")
	}
}

// A command line that makes no sense is refused with what is wrong.
func TestWrongOptions(t *testing.T) {
	for args, want := range map[string]string{
		"--nosuch":                        "unknown option --nosuch",
		"extra":                           `"extra" is not an option`,
		"-x":                              "-x needs a value",
		"-x many":                         `-x, --producers: "many" is not a whole number`,
		"-x -1":                           "-x, --producers: must be 0 or more",
		"-r fast":                         `"fast" is not a number`,
		"-z soon":                         "neither a number of seconds",
		"-a=perhaps":                      "-a, --autoack",
		"-f urgent":                       "--flag urgent",
		"-qa novalue":                     `"novalue" is not KEY=VALUE`,
		"-mp novalue":                     "--message-properties",
		"-mp priority=high":               "priority",
		"-qp q-%d":                        "go together",
		"-qp q -qpf 1 -qpt 2":             "needs one %d",
		"-qp q-%d -qpf 3 -qpt 2":          "below",
		"-q 10 -A 20":                     "cannot be reached",
		"-q 70000":                        "65535",
		"-M 100":                          "4096",
		"-h ftp://x":                      "neither amqp://",
		"-i 0":                            "--interval",
		"--broker-pid 0":                  "not a pid",
		"--random-routing-key":            "is an option of PerfTest that is not supported here",
		"-X 4":                            "is an option of PerfTest",
		"--queue-pattern-to notanumber=3": "not a whole number",
	} {
		var wrong *UsageError
		if _, err := parsed(args); !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// Every scenario explains its options, and its presets pass its own checks.
func TestScenariosExplainThemselves(t *testing.T) {
	for _, s := range scenarios() {
		var out bytes.Buffer
		if err := Main(context.Background(), []string{s.name, "--help"}, &out); err != nil || !strings.Contains(out.String(), "--json") {
			t.Errorf("%s: %v\n%s", s.name, err, out.String())
		}
		o, set := s.options()
		if err := errors.Join(set.parse(nil), o.check()); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
	var out bytes.Buffer
	if err := Main(context.Background(), []string{"--help"}, &out); err != nil || !strings.Contains(out.String(), "fanout") {
		t.Errorf("%v\n%s", err, out.String())
	}
	var wrong *UsageError
	if err := Main(context.Background(), []string{"nosuch"}, &out); !errors.As(err, &wrong) {
		t.Errorf("nosuch: %v", err)
	}
}

// An option that takes a list replaces the default and then adds.
func TestLists(t *testing.T) {
	o, err := parsed("-u a,b -u c -H 127.0.0.1:1,127.0.0.1:2")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(o.queues(), []string{"a", "b", "c"}) || len(o.targets) != 2 || o.target(3).addr != "127.0.0.1:2" {
		t.Errorf("queues %v, targets %v", o.queues(), o.targets)
	}
}

func TestShares(t *testing.T) {
	queues := []string{"a", "b", "c", "d", "e"}
	for _, c := range []struct {
		i, n int
		want string
	}{{0, 1, "a b c d e"}, {1, 2, "b d"}, {0, 2, "a c e"}, {4, 5, "e"}, {6, 9, "b"}} {
		if have := strings.Join(share(queues, c.i, c.n), " "); have != c.want {
			t.Errorf("%d of %d: %s, want %s", c.i, c.n, have, c.want)
		}
	}
}
