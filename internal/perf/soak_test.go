package perf

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A soak runs at half of what its probe reached, and has figures for each
// quarter of the time.
func TestSoak(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "segment"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := measured(t, "soak", "-h", echo(t, ""), "-z", "2", "-i", "0.02", "--probe", "0.5", "--warmup", "0.05", "-a",
		"--broker-pid", strconv.Itoa(os.Getpid()), "--data", folder)
	if err != nil {
		t.Fatal(err)
	}
	if r.Figures["highest_rate"] <= 0 {
		t.Errorf("figures %v", r.Figures)
	}
	// How much falls into which quarter is the machine's affair.
	most := func(name string) (v float64) {
		for _, q := range []string{"_q1", "_q2", "_q3", "_q4"} {
			of, is := r.Figures[name+q]
			if !is {
				t.Errorf("no %s%s", name, q)
			}
			v = max(v, of)
		}
		return v
	}
	for _, name := range []string{"received_rate", "latency_p99", "confirm_p99", "anonymous_mib"} {
		if v := most(name); v <= 0 {
			t.Errorf("%s is %v in all quarters", name, v)
		}
	}
	most("broker_cores")
	if d := most("disk_mib"); d < 0.9 || d > 1.1 {
		t.Errorf("a folder of 1 MiB has %v MiB", d)
	}
}

// What the last quarter is to the first, from samples that are written by hand.
func TestQuarters(t *testing.T) {
	q := &quarters{meter: &meter{roots: []int{1}}, folder: "data"}
	for i := range q.part {
		p, from := &q.part[i], time.Unix(int64(10*i), 0)
		for range 100 {
			p.latency.Add(int64(i+1) * 1e6)
		}
		p.samples, p.anonymous, p.resident, p.disk = 2, 2*float64(i+1)*(1<<20), 1, uint64(i+1)<<20
		p.first, p.last = reading{at: from}, reading{at: from.Add(8 * time.Second), broker: 4}
		p.received = uint64(800 * (i + 1))
	}
	var r Report
	q.report(&r)
	have := map[string]float64{}
	for _, f := range r.Figures {
		have[f.Name] = f.Value
	}
	for name, want := range map[string]float64{"received_rate_q1": 100, "received_rate_q4": 400, "received_rate_growth": 4,
		"anonymous_mib_q2": 2, "anonymous_mib_growth": 4, "disk_mib_q3": 3, "broker_cores_q1": 0.5, "broker_cores_growth": 1} {
		if have[name] != want {
			t.Errorf("%s is %v, want %v", name, have[name], want)
		}
	}
	if g := have["latency_p99_growth"]; g < 3.8 || g > 4.2 {
		t.Errorf("latency_p99_growth is %v", g)
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
