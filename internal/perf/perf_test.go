package perf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"holdfast/test/rig"
)

// result is a report as a reader of the JSON sees it.
type result struct {
	Report
	Figures map[string]float64 `json:"figures"`
}

// measured runs the command with --json.
func measured(t *testing.T, args ...string) (result, error) {
	t.Helper()
	var out bytes.Buffer
	err := Main(context.Background(), append(args, "--json"), &out)
	var r result
	if out.Len() == 0 {
		return r, err
	}
	if e := json.Unmarshal(out.Bytes(), &r); e != nil {
		t.Fatalf("%v in %s", e, out.String())
	}
	return r, err
}

func echo(t *testing.T, fault string) string {
	t.Helper()
	s, err := ListenEcho("127.0.0.1:0", fault)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.Addr()
}

// real starts the broker itself, once for all tests; a test that kills it
// starts its own.
func startReal(t *testing.T) *rig.Broker {
	t.Helper()
	binary, err := rig.Binary(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b, err := rig.New(binary, t.TempDir())
	if err == nil {
		err = b.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Kill() })
	return b
}

// Every message of a counted run is sent, confirmed and received, whatever the
// frame size and the number of everything.
func TestCounts(t *testing.T) {
	addr := echo(t, "")
	for _, c := range []struct {
		args           string
		sent, received uint64
	}{
		{"throughput -C 3000 -a", 3000, 3000},
		{"throughput -C 3000 -c 1 -q 50", 3000, 3000},
		{"throughput -C 1000 -c 100 -x 3 -y 2 -A 10 -q 20 -qp q-%d -qpf 1 -qpt 7", 3000, 3000},
		{"throughput -C 100 -s 300000 -a", 100, 100},
		{"throughput -C 100 -s 10000 -M 4096 -c 10", 100, 100},
		{"throughput -C 500 -y 0 -c 100 -f persistent", 500, 0},
		{"throughput -C 500 -e x -t direct -k key -u a,b -a", 500, 1000},
		{"latency -C 400 -r 4000 -a", 400, 400},
		{"fanout -C 300 -a", 300, 3000},
		{"backlog --messages 2000 --settle 0 -x 2 -c 100", 2000, 2000},
	} {
		r, err := measured(t, append(strings.Fields(c.args), "-h", addr)...)
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		if r.Sent.Total != c.sent || c.received > 0 && r.Received.Total != c.received {
			t.Errorf("%s: sent %v, received %v", c.args, r.Sent, r.Received)
		}
		if strings.Contains(c.args, "-c ") && r.Confirmed.Total != c.sent {
			t.Errorf("%s: confirmed %v", c.args, r.Confirmed)
		}
		if c.received > 0 && !strings.HasPrefix(c.args, "backlog") && r.Latency.Count != c.received {
			t.Errorf("%s: %d latencies", c.args, r.Latency.Count)
		}
	}
}

// A run that consumes what another one has left stops after its count.
func TestConsumeOnly(t *testing.T) {
	addr := echo(t, "")
	if _, err := measured(t, "-h", addr, "-y", "0", "-C", "100", "-u", "kept", "--keep"); err != nil {
		t.Fatal(err)
	}
	r, err := measured(t, "-h", addr, "-x", "0", "-D", "100", "-u", "kept", "-a")
	if err != nil || r.Received.Total != 100 || r.Sent != nil {
		t.Fatalf("%v %+v", err, r.Received)
	}
}

// The audit passes where nothing is wrong, and notices each fault. A swap
// shows where a queue has one consumer, as it has if nothing else is said.
func TestAuditNoticesFaults(t *testing.T) {
	for fault, figure := range map[string]string{
		"": "", "lose:777": "confirmed_lost", "duplicate:777": "duplicates_unmarked", "swap:777": "out_of_order",
	} {
		idle := "60" // the run ends when everything has come
		if figure == "confirmed_lost" {
			idle = "3" // only waiting shows that one does not
		}
		r, err := measured(t, "audit", "-h", echo(t, fault), "--messages", "4000", "--idle", idle)
		want := "fault"
		if fault == "" {
			want = "ok"
		}
		if r.Verdict != want || errors.Is(err, ErrFault) != (fault != "") || figure != "" && r.Figures[figure] != 1 {
			t.Errorf("%q: verdict %q, %v, %v", fault, r.Verdict, err, r.Figures)
		}
	}
}

func TestManyThings(t *testing.T) {
	addr := echo(t, "")
	pid := strconv.Itoa(os.Getpid())
	r, err := measured(t, "connections", "-h", addr, "-n", "5,20", "--settle", "0", "--broker-pid", pid)
	if err != nil || r.Figures["rate_at_20"] <= 0 {
		t.Errorf("connections: %v %v", err, r.Figures)
	}
	if _, is := r.Figures["anonymous_kib_slope_at_20"]; !is {
		t.Errorf("no slope: %v", r.Figures)
	}
	r, err = measured(t, "queues", "-h", addr, "-n", "50", "--settle", "0")
	if err != nil || r.Call.Count != 50 || r.Figures["delete_rate"] <= 0 {
		t.Errorf("queues: %v %+v", err, r.Report)
	}
	for options, figure := range map[string]string{
		"-n 40":                           "commands_rate",
		"--what unbind -n 40 -x 2 -z 0.1": "confirm_p999_ratio",
	} {
		r, err = measured(t, append([]string{"topology", "-h", addr}, strings.Fields(options)...)...)
		if err != nil || r.Figures[figure] <= 0 {
			t.Errorf("topology %s: %v %+v", options, err, r.Report)
		}
	}
	if _, err = measured(t, "topology", "-h", addr, "--what", "nothing"); err == nil {
		t.Error("nothing was changed")
	}
	for _, what := range []string{"connection", "channel", "queue"} {
		r, err = measured(t, "churn", "-h", addr, "--what", what, "-z", "0.05")
		if err != nil || r.Call == nil || r.Figures["failed"] != 0 {
			t.Errorf("churn of %ss: %v %+v", what, err, r.Report)
		}
	}
	if _, err = measured(t, "churn", "-h", addr, "--what", "nothing"); err == nil {
		t.Error("churn of nothing")
	}
}

func TestReports(t *testing.T) {
	var out bytes.Buffer
	err := Main(context.Background(), strings.Fields("-h amqp://guest:guest@"+echo(t, "")+" -z 1 -i 0.02 -c 10 -a --disk "+t.TempDir()), &out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{", time ", "p50/p75", "confirmed", "client: ", "p99.9", "fdatasync takes"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if shown := withoutPasswords([]string{"-h", "amqp://u:secret@h/x"}); shown[1] != "amqp://u:...@h/x" {
		t.Errorf("a password is shown: %v", shown)
	}
}

// A broker that is not there, and one that goes away, are errors.
func TestBrokerGone(t *testing.T) {
	s, err := ListenEcho("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	addr := s.Addr()
	var out lines
	ended := make(chan error)
	go func() { ended <- Main(context.Background(), []string{"-h", addr, "-i", "0.01"}, &out) }()
	out.wait(t, "received")
	s.Close()
	if err := <-ended; err == nil {
		t.Error("the run did not notice")
	}
	if _, err := measured(t, "-h", addr, "-z", "1"); err == nil {
		t.Error("nobody is there")
	}
}

// lines is output that a test waits for.
type lines struct {
	mu   sync.Mutex
	cond sync.Cond
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(b)
	if l.cond.L != nil {
		l.cond.Broadcast()
	}
	return len(b), nil
}

func (l *lines) wait(t *testing.T, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cond.L = &l.mu
	for !strings.Contains(l.text.String(), text) {
		l.cond.Wait()
	}
}

// The same against the broker itself.
func TestAgainstTheBroker(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the broker")
	}
	b := startReal(t)
	pid := strconv.Itoa(b.Pid())
	for _, args := range []string{
		"throughput -C 5000 -f persistent -c 200 -q 200 -A 50 --metrics http://" + b.HTTP + "/metrics",
		"throughput -C 1000 -x 4 -y 2 -qp q-%d -qpf 1 -qpt 9 -c 1 -a -s 40000",
		"fanout -C 500 -a",
		"backlog --messages 5000 -f persistent -c 500 -q 100 -A 10 --settle 0",
	} {
		r, err := measured(t, append(strings.Fields(args), "-h", b.Addr, "--broker-pid", pid)...)
		if err != nil || r.Received == nil || r.Received.Total == 0 || r.Received.Total%r.Sent.Total != 0 {
			t.Errorf("%s: %v, sent %v, received %v", args, err, r.Sent, r.Received)
			continue
		}
		if r.Costs.Broker == nil || r.Costs.Broker.ResidentMB == 0 {
			t.Errorf("%s: no costs: %+v", args, r.Costs)
		}
		if !strings.HasPrefix(r.Broker, "Holdfast ") {
			t.Errorf("%s: against %q", args, r.Broker)
		}
		if strings.Contains(args, "--metrics") && r.Figures["messages_per_sync"] <= 0 {
			t.Errorf("%s: no messages per sync: %v", args, r.Figures)
		}
	}
	r, err := measured(t, "audit", "-h", b.Addr, "--messages", "20000", "--drop-consumers", "2")
	if err != nil || r.Verdict != "ok" || r.Figures["confirmed"] != 20000 {
		t.Errorf("audit: %v %s %v %v", err, r.Verdict, r.Figures, r.Errors)
	}
	d, err := measured(t, "delay", "-h", b.Addr, "--broker-pid", pid, "--messages", "2000", "-r", "500", "-z", "0.2", "--settle", "0")
	if err != nil || d.Received == nil || d.Received.Total != 100 || d.Latency.Count != 100 || d.Figures["early"] != 0 || len(d.Errors) > 0 {
		t.Errorf("delay: %v %v %v %v", err, d.Received, d.Figures, d.Errors)
	}
	if out, err := b.Ctl("list_queues", "-s"); err != nil || out != "" {
		t.Errorf("queues are left behind: %q %v", out, err)
	}
}

// A broker that is killed and started again has everything it confirmed.
func TestRecovery(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and kills the broker")
	}
	b := startReal(t)
	pid, ended := strconv.Itoa(b.Pid()), b.Ended()
	relaunched := make(chan error, 1)
	go func() {
		<-ended
		relaunched <- b.Launch()
	}()
	r, err := measured(t, "recovery", "-h", b.Addr, "--broker-pid", pid, "--messages", "3000", "--idle", "60")
	if e := <-relaunched; e != nil {
		t.Fatal(e)
	}
	if err != nil || r.Verdict != "ok" || r.Figures["confirmed"] < 3000 || r.Figures["first_message_s"] <= 0 {
		t.Errorf("%v %s %v %v", err, r.Verdict, r.Figures, r.Errors)
	}
}
