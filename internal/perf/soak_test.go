package perf

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A soak runs at half of what its probe reached, and has figures for each
// quarter of the time.
func TestSoak(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "segment"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := measured(t, "soak", "-h", echo(t, ""), "-z", "0.8", "-i", "0.05", "--probe", "0.2", "--warmup", "0.05", "-a",
		"--broker-pid", strconv.Itoa(os.Getpid()), "--data", folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"highest_rate", "received_rate_q1", "latency_p99_q4", "latency_p99_growth", "confirm_p99_q1", "anonymous_mib_q1",
		"anonymous_mib_growth", "disk_mib_q1", "broker_cores_q1"} {
		if v, is := r.Figures[name]; !is || v <= 0 && !strings.Contains(name, "cores") {
			t.Errorf("%s: %v", name, v)
		}
	}
	if d := r.Figures["disk_mib_q1"]; d < 0.9 || d > 1.1 {
		t.Errorf("a folder of 1 MiB has %v MiB", d)
	}
}

// With several numbers a backlog is read at each, and has a slope.
func TestBacklogSteps(t *testing.T) {
	r, err := measured(t, "backlog", "-h", echo(t, ""), "--messages", "1000,3k", "--settle", "0", "-c", "100", "-a",
		"--broker-pid", strconv.Itoa(os.Getpid()))
	if err != nil || r.Sent.Total != 3000 || r.Received.Total != 3000 || r.Confirm.Count != 3000 {
		t.Fatalf("%v %+v", err, r.Report)
	}
	for _, name := range []string{"anonymous_mib_at_1000", "anonymous_mib_at_3000", "anonymous_bytes_each_at_1000", "anonymous_bytes_slope_at_3000"} {
		if _, is := r.Figures[name]; !is {
			t.Errorf("no %s in %v", name, r.Figures)
		}
	}
}

func TestPage(t *testing.T) {
	s, err := parsePage(strings.NewReader("# HELP x y\nrabbitmq_io_sync_ops_total 10\nother{a=\"b\"} 7\nholdfast_log_stable_messages_total 1.5e+03\n"))
	if err != nil || s != (synced{1500, 10}) {
		t.Fatalf("%+v %v", s, err)
	}
	var r Report
	r.perSync(synced{500, 5}, s, 2)
	if len(r.Figures) != 2 || r.Figures[0].Value != 200 || r.Figures[1].Value != 2.5 {
		t.Errorf("%+v", r.Figures)
	}
	for _, page := range []string{"", "rabbitmq_io_sync_ops_total 1\n", "rabbitmq_io_sync_ops_total x\nholdfast_log_stable_messages_total 1\n"} {
		if _, err := parsePage(strings.NewReader(page)); err == nil {
			t.Errorf("%q was read", page)
		}
	}
}
