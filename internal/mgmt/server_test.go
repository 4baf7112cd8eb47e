package mgmt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/config"
	"holdfast/internal/metrics"
	"holdfast/internal/mgmt/ctl"
	"holdfast/test/rig"
)

// start runs a server over a fake broker; its HTTP pages are at the returned URL.
func start(t *testing.T, change func(*Options)) (*fakeBroker, *Options, string) {
	t.Helper()
	b := newFakeBroker()
	settings := config.Default()
	settings.DataDir = t.TempDir()
	settings.HTTPIP, settings.HTTPPort, settings.MetricsPort = "127.0.0.1", freePort(t), 0
	registry := metrics.NewRegistry()
	registry.Serve(func() metrics.Values { return metrics.Values{Queues: metrics.Queues{Queues: 3}} })
	o := Options{
		Broker: b, Settings: settings, ConfigFile: "/etc/holdfast.conf",
		Facts: func() Facts {
			return Facts{Node: "n1", Version: "1.2.3", Uptime: 90 * time.Second, DiskFree: 5e9, Syncs: 4, SyncedMessages: 10,
				Listeners: []Listener{ListenerAt(&net.TCPAddr{IP: net.IPv6zero, Port: 5672}, "amqp", "AMQP 0-9-1")}}
		},
		Metrics: registry.Handler(),
		Objects: metrics.Objects{Queues: func(yield func(*metrics.Queue) bool) { yield(&metrics.Queue{VHost: "/", Name: "q", Ready: 9}) }},
		Logger:  slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	url := ""
	if at := s.Addresses(); len(at) > 0 {
		url = "http://" + at[0].String()
	}
	return b, &o, url
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

// run is one ctl command against the server.
func run(o *Options, args ...string) (string, int) {
	var out bytes.Buffer
	cmd := ctl.Command(ctl.Streams{In: strings.NewReader(""), Out: &out, Err: &out}, o.Settings.DataDir)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		var known *ctl.Error
		if errors.As(err, &known) {
			return out.String() + known.Text, known.Code
		}
		return err.Error(), -1
	}
	return out.String(), 0
}

// must is a command that has to succeed; it gives what it printed.
func must(t *testing.T, o *Options, args ...string) string {
	t.Helper()
	out, code := run(o, args...)
	if code != 0 {
		t.Fatalf("ctl %v: code %d: %s", args, code, out)
	}
	return out
}

// Names may hold anything: each is one segment of a path and comes out as it went in.
func TestOddNames(t *testing.T) {
	_, o, _ := start(t, nil)
	for _, name := range []string{"a/b", "a%2Fb", "a+b", "a?b=c", "a#b", "a b", "..", ".", "ü", "a//b", "%", "amq.default/x", "&;=@:"} {
		must(t, o, "-q", "add_vhost", name)
		must(t, o, "-q", "declare_queue", "-p", name, name)
		if out := must(t, o, "-s", "list_queues", "-p", name, "name", "vhost"); out != name+"\t"+name+"\n" {
			t.Errorf("%q is listed as %q", name, out)
		}
		must(t, o, "-q", "publish", "-p", name, name, "x")
		if out := must(t, o, "-q", "purge_queue", "-p", name, name); out != "" {
			t.Errorf("%q: %q", name, out)
		}
		must(t, o, "-q", "add_user", name, "secret")
		must(t, o, "-q", "set_permissions", "-p", name, name, "a", "b", "c")
		if out := must(t, o, "-s", "list_user_permissions", name); out != name+"\ta\tb\tc\n" {
			t.Errorf("permissions of %q: %q", name, out)
		}
		must(t, o, "-q", "clear_permissions", "-p", name, name)
		must(t, o, "-q", "delete_user", name)
		must(t, o, "-q", "delete_queue", "-p", name, name)
		must(t, o, "-q", "delete_vhost", name)
	}
}

// R475 R477: what a redrive is asked for arrives, its progress is printed as it comes, and it ends with its command.
func TestRedrive(t *testing.T) {
	b, o, _ := start(t, nil)
	out := must(t, o, "redrive", "a/b", "-p", "v", "--to", "first", "--reason", "expired", "--queue", "x", "--older-than", "90m", "--limit", "7", "--rate", "1.5", "--dry-run")
	if want := (broker.Redrive{VHost: "v", Queue: "a/b", First: true, Reason: "expired", From: "x", OlderThan: 90 * time.Minute, Limit: 7, Rate: 1.5, DryRun: true}); b.redrive != want {
		t.Errorf("asked for %+v", b.redrive)
	}
	if want := "Looking which messages of queue 'a/b' in vhost 'v' could be sent back ...\n1 sent back, 2 passed over, 3 left\n" +
		"4 would be sent back: q 3\n2 passed over\n3 left: they died in a queue that is gone\n"; out != want {
		t.Errorf("%q", out)
	}
	out = must(t, o, "-q", "redrive", "a/b", "--exchange", "", "--routing-key", "k")
	if r := b.redrive; out != "" || r.Exchange == nil || *r.Exchange != "" || *r.Key != "k" {
		t.Errorf("%q, asked for %+v", out, r)
	}
	if out := must(t, o, "redrive", "a/b", "--formatter", "json"); strings.TrimSpace(out) != `{"sent":4,"passed":2,"left":{"no_queue":3},"to":{"q":3}}` {
		t.Errorf("%s", out)
	}
	for queue, want := range map[string]int{"nowhere": ctl.ExitData, "ends": ctl.ExitUnavailable} {
		if out, code := run(o, "redrive", queue); code != want {
			t.Errorf("%s: code %d: %s", queue, code, out)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	b.redriving = make(chan struct{})
	go func() {
		defer close(ended)
		c := ctl.Command(ctl.Streams{Out: io.Discard, Err: io.Discard}, o.Settings.DataDir)
		c.SetArgs([]string{"redrive", "long"})
		_ = c.ExecuteContext(ctx)
	}()
	<-b.redriving
	cancel()
	<-ended
	<-b.redriving // the broker has heard of it
}

// R470: a queue is paused, listed as that, and goes on.
func TestPauseQueue(t *testing.T) {
	_, o, _ := start(t, nil)
	must(t, o, "declare_queue", "a/b")
	for _, c := range []struct{ command, paused string }{{"pause_queue", "true"}, {"resume_queue", "false"}} {
		must(t, o, c.command, "a/b")
		if out := must(t, o, "-s", "list_queues", "name", "paused"); out != "a/b\t"+c.paused+"\n" {
			t.Errorf("%s: %q", c.command, out)
		}
		if out, code := run(o, c.command, "nowhere"); code != ctl.ExitData {
			t.Errorf("%s of nothing: code %d: %s", c.command, code, out)
		}
	}
}

// R330: policies are set, listed and cleared, those of operators apart.
// R54: there is HTTP for what an operator does.
func TestPolicies(t *testing.T) {
	b, o, _ := start(t, nil)
	const header = "vhost\tname\tpattern\tapply-to\tdefinition\tpriority\n"
	must(t, o, "set_policy", "a/b", "^q", `{"max-length":5,"overflow":"reject-publish"}`, "--priority", "7", "--apply-to", "queues")
	must(t, o, "set_operator_policy", "a/b", ".*", `{"expires":1}`)
	if out := must(t, o, "-q", "list_policies"); out != header+"/\ta/b\t^q\tqueues\t{\"max-length\":5,\"overflow\":\"reject-publish\"}\t7\n" {
		t.Errorf("policies: %q", out)
	}
	if out := must(t, o, "-q", "list_operator_policies"); out != header+"/\ta/b\t.*\tall\t{\"expires\":1}\t0\n" {
		t.Errorf("operator policies: %q", out)
	}
	if n := b.policies[false][0].Definition["max-length"]; n != json.Number("5") {
		t.Errorf("a number arrives as %T", n)
	}
	if out, code := run(o, "-q", "set_policy", "p", ".*", "[1]"); code != ctl.ExitUnavailable || out != "Error:\nValidation failed\n\nit is no dictionary\n" {
		t.Errorf("code %d, %q", code, out)
	}
	if out, code := run(o, "-q", "set_policy", "-p", "none", "p", ".*", "{}"); code != ctl.ExitData || !strings.Contains(out, "Virtual host 'none' does not exist") {
		t.Errorf("code %d, %q", code, out)
	}
	must(t, o, "clear_policy", "a/b")
	if out, code := run(o, "-q", "clear_policy", "a/b"); code != ctl.ExitUnavailable || out != "Error:\nParameter does not exist" {
		t.Errorf("code %d, %q", code, out)
	}
	must(t, o, "clear_operator_policy", "a/b")
	if out := must(t, o, "-q", "list_operator_policies"); out != "" {
		t.Errorf("after clearing: %q", out)
	}
}

func TestUsers(t *testing.T) {
	b, o, _ := start(t, nil)
	must(t, o, "add_user", "u", "pw")
	must(t, o, "set_user_tags", "u", "monitoring", "x")
	must(t, o, "change_password", "u", "pw2")
	must(t, o, "authenticate_user", "u", "pw2")
	if out := must(t, o, "-q", "list_users"); out != "user\ttags\nguest\t[administrator]\nu\t[monitoring, x]\n" {
		t.Errorf("users: %q", out)
	}
	for _, c := range []struct {
		args string
		code int
	}{
		{"add_user u pw", ctl.ExitSoftware},
		{"authenticate_user u wrong", ctl.ExitData},
		{"change_password nobody pw", ctl.ExitNoUser},
		{"set_user_tags nobody x", ctl.ExitNoUser},
		{"delete_user nobody", ctl.ExitNoUser},
		{"set_permissions nobody . . .", ctl.ExitNoUser},
		{"set_permissions -p nowhere u . . .", ctl.ExitUnavailable},
		{"list_permissions -p nowhere", ctl.ExitData},
		{"list_user_permissions nobody", ctl.ExitNoUser},
		{"delete_vhost nowhere", ctl.ExitData},
		{"list_queues -p nowhere", ctl.ExitData},
	} {
		if out, code := run(o, strings.Fields(c.args)...); code != c.code {
			t.Errorf("%s: code %d, want %d: %s", c.args, code, c.code, out)
		}
	}
	if b.passwords["u"] != "pw2" {
		t.Errorf("the password is %q", b.passwords["u"])
	}
}

func TestMessages(t *testing.T) {
	b, o, _ := start(t, nil)
	must(t, o, "publish", "--declare", "q", "first")
	must(t, o, "publish", "--header", "n=1", "--properties", `{"priority":3,"headers":{"big":9007199254740993}}`, "q", "second")
	got := b.messages[[2]string{"/", "q"}][1]
	if got.Properties["priority"] != 3.0 || got.Properties["headers"].(map[string]any)["n"] != "1" || got.Properties["headers"].(map[string]any)["big"] != int64(9007199254740993) {
		t.Errorf("properties %#v", got.Properties)
	}
	if out := must(t, o, "-s", "get", "q", "--count", "5", "--ack"); !strings.Contains(out, "first") || !strings.Contains(out, "second") {
		t.Errorf("get: %q", out)
	}
	if len(b.messages[[2]string{"/", "q"}]) != 0 {
		t.Error("get --ack left messages")
	}
	for args, want := range map[string]int{
		"publish --exchange nowhere k x": ctl.ExitData,
		"publish nowhere x":              ctl.ExitData,
		"get nowhere":                    ctl.ExitData,
		"get q --count 1000000":          ctl.ExitData,
		"purge_queue nowhere":            ctl.ExitUnavailable,
		"delete_queue nowhere":           ctl.ExitUsage,
		"delete_queue q -e":              ctl.ExitUsage,
		"discard q":                      ctl.ExitSoftware,
		"discard --group 77":             ctl.ExitData,
	} {
		if out, code := run(o, strings.Fields(args)...); code != want {
			t.Errorf("%s: code %d, want %d: %s", args, code, want, out)
		}
	}
	if out := must(t, o, "explain", "q", "-t", "500"); out != "There is no consumer.\n" {
		t.Errorf("explain: %q", out)
	}
	if b.within <= requestWait || b.within > 400*time.Second {
		t.Errorf("the broker was given %v", b.within)
	}
	must(t, o, "list_queues", "name", "members", "online")
	if !b.known {
		t.Error("other nodes are asked for what this one knows")
	}
	must(t, o, "list_queues", "name", "messages")
	if b.known {
		t.Error("nobody is asked how many messages there are")
	}
}

func TestAMessageAboveTheLimitIsRefused(t *testing.T) {
	_, o, _ := start(t, func(o *Options) { o.Settings.MaxMessageSize = 10 })
	must(t, o, "publish", "--declare", "q", "0123456789")
	if out, code := run(o, "publish", "q", "0123456789a"); code != ctl.ExitData || !strings.Contains(out, "the most is 10") {
		t.Fatalf("code %d: %s", code, out)
	}
}

// Who asks for the status may be in another folder than the node.
func TestStatusNamesTheWholeFolder(t *testing.T) {
	var whole string
	_, o, _ := start(t, func(o *Options) {
		whole = o.Settings.DataDir
		t.Chdir(filepath.Dir(whole))
		o.Settings.DataDir = filepath.Base(whole)
	})
	if out := must(t, o, "status"); !strings.Contains(out, "Node data directory: "+whole+"\n") {
		t.Error(out)
	}
}

func TestDamage(t *testing.T) {
	b, o, _ := start(t, nil)
	must(t, o, "declare_queue", "broken")
	q := b.queues[[2]string{"/", "broken"}]
	q.State, q.Reason = "quarantined", "a frame is damaged"
	b.orphans = []broker.OrphanInfo{{Group: 77, Reason: "unknown"}}
	b.alarms = []broker.Alarm{diskAlarm()}
	b.sick = fail(broker.Unavailable, "the disk alarm is on: 1 GiB is free")
	out := must(t, o, "status")
	for _, line := range []string{
		"Queue 'broken' in vhost '/' is quarantined: a frame is damaged\n", "Group 77 belongs to no queue: unknown\n",
		" * disk alarm since 1970-01-01T00:00:00Z: 1 GiB is free\n", "Health: the disk alarm is on: 1 GiB is free\n", "Queue count: 1\n",
		"Holdfast version: 1.2.3\n", "Uptime (seconds): 90\n", " * /etc/holdfast.conf\n", "Free disk space: 5.0000 gb\n", "Messages per sync: 2.5\n",
		"Interface: [::], port: 5672, protocol: amqp, purpose: AMQP 0-9-1\n", "protocol: http, purpose: health and metrics\n",
	} {
		if !strings.Contains(out, line) {
			t.Errorf("missing %q in\n%s", line, out)
		}
	}
	must(t, o, "ping") // an alarm does not make the node absent
	if out, code := run(o, "publish", "q", "x"); code != ctl.ExitUnavailable || !strings.Contains(out, "1 GiB is free") {
		t.Errorf("publish under an alarm: code %d: %s", code, out)
	}
	must(t, o, "discard", "broken")
	must(t, o, "discard", "--group", "77")
	if out := must(t, o, "status"); strings.Contains(out, "Damaged") {
		t.Errorf("still damaged:\n%s", out)
	}
}

func TestConnections(t *testing.T) {
	b, o, _ := start(t, nil)
	must(t, o, "close_connection", "127.0.0.1:1 -> 127.0.0.1:5672", "upgrade")
	if b.said != "closed by the operator: upgrade" {
		t.Errorf("the client hears %q", b.said)
	}
	if out := must(t, o, "close_all_connections", "x"); !strings.Contains(out, "Closed 1 connections") {
		t.Error(out)
	}
	if _, code := run(o, "close_connection", "nobody", "x"); code != ctl.ExitUnavailable {
		t.Errorf("code %d", code)
	}
	if _, code := run(o, "close_all_connections", "-p", "nowhere", "x"); code != ctl.ExitData {
		t.Errorf("code %d", code)
	}
	for _, list := range []string{"list_connections", "list_channels", "list_consumers", "list_bindings", "list_exchanges", "list_vhosts"} {
		if out := must(t, o, "-s", list); strings.Count(out, "\n") != 1 {
			t.Errorf("%s: %q", list, out)
		}
	}
}

func TestEnvironmentIsAConfigurationFile(t *testing.T) {
	_, o, _ := start(t, nil)
	s := config.Default()
	if _, err := config.Parse("environment", must(t, o, "environment"), s); err != nil {
		t.Fatal(err)
	}
	if s.DataDir != o.Settings.DataDir {
		t.Errorf("data_dir %q", s.DataDir)
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func TestPublicPages(t *testing.T) {
	b, _, url := start(t, nil)
	if code, body := get(t, url+"/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("healthz: %d %q", code, body)
	}
	if code, body := get(t, url+"/metrics"); code != 200 || !strings.Contains(body, "rabbitmq_queues 3\n") {
		t.Errorf("metrics: %d %q", code, body)
	}
	if code, body := get(t, url+"/metrics/per-object"); code != 200 || !strings.Contains(body, `rabbitmq_queue_messages_ready{vhost="/",queue="q"} 9`) {
		t.Errorf("per-object: %d %q", code, body)
	}
	b.sick = fail(broker.Unavailable, "stopping")
	if code, body := get(t, url+"/healthz"); code != 503 || body != "stopping\n" {
		t.Errorf("healthz: %d %q", code, body)
	}
	for _, path := range []string{"/api/overview", "/api/users", "/debug/pprof/", "/"} { // nothing of the local API is public
		if code, _ := get(t, url+path); code != 404 {
			t.Errorf("%s: %d", path, code)
		}
	}
}

func TestATakenAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := func(o *Options) { o.Settings.HTTPPort = l.Addr().(*net.TCPAddr).Port }
	_, o, url := start(t, func(o *Options) { taken(o); o.Lenient = true })
	if url != "" {
		t.Errorf("serves at %s", url)
	}
	must(t, o, "ping")
	strict := *o
	strict.Lenient = false
	strict.Settings = config.Default()
	strict.Settings.DataDir = t.TempDir()
	strict.Settings.HTTPIP, strict.Settings.MetricsPort = "127.0.0.1", 0
	taken(&strict)
	if s, err := Start(strict); err == nil {
		s.Close()
		t.Error("started with an address that is taken")
	}
}

func TestBadRequests(t *testing.T) {
	_, o, _ := start(t, nil)
	s := &Server{options: *o}
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/api/users", `{"name":`, 400},
		{"POST", "/api/users", `{"nam":"x"}`, 400},
		{"POST", "/api/users", `{"name":""}`, 400},
		{"POST", "/api/vhosts", `{}`, 400},
		{"GET", "/api/queues/%2F?skip=x", ``, 400},
		{"GET", "/api/queues/%2F?limit=-1", ``, 400},
		{"DELETE", "/api/queues/%2F/q?if-empty=maybe", ``, 400},
		{"POST", "/api/exchanges/%2F/amq.default/publish", `{"payload":"*","payload_encoding":"base64"}`, 400},
		{"POST", "/api/exchanges/%2F/amq.default/publish", `{"payload_encoding":"gzip"}`, 400},
		{"DELETE", "/api/groups/x", ``, 400},
		{"GET", "/api/nothing", ``, 400},
		{"PATCH", "/api/users", ``, 400},
		{"GET", "/api/queues/%2F/none", ``, 404},
	} {
		r, err := http.NewRequest(c.method, "http://x"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		w := recorder{header: http.Header{}}
		s.localAPI().ServeHTTP(&w, r)
		var answer struct{ Error, Reason string }
		if w.status != c.status || json.Unmarshal(w.body.Bytes(), &answer) != nil || answer.Reason == "" {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, w.status, w.body.String(), c.status)
		}
	}
}

type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

func TestQueuesAreCounted(t *testing.T) {
	b, o, _ := start(t, nil)
	for i := range 5 {
		name := "q" + time.Duration(i).String()
		b.queues[[2]string{"/", name}] = &broker.QueueInfo{Name: name, VHost: "/", State: "running"}
	}
	if out := must(t, o, "status"); !strings.Contains(out, "Queue count: 5\n") {
		t.Error(out)
	}
}

// Routes are kept in a map: were two to match one path, chance would choose.
func TestNoTwoRoutesMatchOnePath(t *testing.T) {
	var rt router
	for pattern := range (&Server{}).routes() {
		rt.handle(pattern, nil)
	}
	for i, a := range rt.routes {
		for _, b := range rt.routes[i+1:] {
			if a.method == b.method && len(a.segments) == len(b.segments) && overlap(a.segments, b.segments) {
				t.Errorf("%s %v and %v", a.method, a.segments, b.segments)
			}
		}
	}
}

func overlap(a, b []string) bool {
	for i := range a {
		_, any := wildcard(a[i])
		_, other := wildcard(b[i])
		if !any && !other && a[i] != b[i] {
			return false
		}
	}
	return true
}
