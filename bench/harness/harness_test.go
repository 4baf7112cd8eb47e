package harness

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/perf"
	"holdfast/test/rig"
)

// The lists that are delivered can be read, and perf understands their options.
func TestTheLists(t *testing.T) {
	for name, least := range map[string]int{"scenarios.txt": 20, "scenarios-cluster.txt": 10} {
		t.Run(name, func(t *testing.T) { theList(t, name, least) })
	}
}

func theList(t *testing.T, name string, least int) {
	file, err := os.Open(filepath.Join(rig.Root(), "bench", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all, err := ReadScenarios(file)
	if err != nil || len(all) < least {
		t.Fatalf("%d scenarios, %v", len(all), err)
	}
	for _, s := range all {
		if len(s.Figs) == 0 {
			t.Errorf("%s compares nothing", s.Name)
		}
		i := &instance{urls: []string{"a", "b", "c"}, pids: []int{7, 8, 9}, links: &relays{}}
		for _, args := range [][]string{slices.Clone(s.Args), s.Beside} {
			for n, a := range args {
				args[n] = strings.ReplaceAll(a, "{outside}", "c")
			}
			if err := i.fill(nil, args); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
			if err := perf.Main(context.Background(), slices.Concat(args, []string{"--help"}), io.Discard); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
		}
	}
}

func TestScenarios(t *testing.T) {
	all, err := ReadScenarios(strings.NewReader(`
# a comment
one | | throughput -a | sent.rate+ latency_us.p99-
two | long kill | audit | figures.x-
& throughput -r 5
three | | churn |
`))
	if err != nil || len(all) != 3 || all[1].Beside[2] != "5" || !all[1].Is("kill") || all[0].Is("kill") || all[0].Figs[0] != (Fig{"sent.rate", true}) {
		t.Fatalf("%+v %v", all, err)
	}
	for only, want := range map[string]string{"": "one three", "t": "three", "two": "two", "three,one": "three one"} {
		chosen, err := pick(slices.Clone(all), only, false)
		var names []string
		for _, s := range chosen {
			names = append(names, s.Name)
		}
		if err != nil || strings.Join(names, " ") != want {
			t.Errorf("%q: %v %v", only, names, err)
		}
	}
	if chosen, err := pick(slices.Clone(all), "t", true); err != nil || len(chosen) != 2 {
		t.Errorf("long ones: %v %v", chosen, err)
	}
	if _, err := pick(all, "nosuch", false); err == nil {
		t.Error("nosuch was found")
	}
	for _, wrong := range []string{"a | b", "a | | x | y", "a | odd | x | y+", " | | x | y+", "& x", "a | | x | y+\na | | x | y+", "a | | | y+"} {
		if _, err := ReadScenarios(strings.NewReader(wrong)); err == nil {
			t.Errorf("%q was read", wrong)
		}
	}
}

func result(broker string, v float64, disturbed bool) Result {
	return Result{Scenario: "s", Broker: broker, Round: 1, Disturbed: disturbed, Other: 0.7,
		Report: map[string]any{"sent": map[string]any{"rate": v}}}
}

// Medians of the runs that count; disturbed ones are shown only where there is
// nothing else, and never compared.
func TestTable(t *testing.T) {
	kinds := []*Kind{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	results := []Result{
		result("a", 100, false), result("a", 300, false), result("a", 140, false), result("a", 9999, true),
		result("b", 35, false), result("b", 35, false),
		result("c", 7, true),
		{Scenario: "s", Broker: "c", Round: 2, Error: "it fell\n"},
	}
	var out bytes.Buffer
	table(&out, results, []Scenario{{Name: "s", Figs: []Fig{{"sent.rate", true}, {"sent.rate", false}, {"no.such", true}}}}, kinds)
	remarks(&out, results, 0.1)
	want := `| scenario | figure | a | b | b / a | c | c / a |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
| s | sent.rate | 140 (100 to 300) | 35 (35 to 35) | 0.25 worse | ~7 | - |
| s | sent.rate | 140 (100 to 300) | 35 (35 to 35) | 0.25 better | ~7 | - |
| s | no.such | - | - | - | - | - |
- round 1, s, a does not count: other work took 0.70 cores, the limit is 0.10
- round 1, s, c does not count: other work took 0.70 cores, the limit is 0.10
- round 2, s, c failed: it fell
`
	if out.String() != want {
		t.Errorf("have\n%s\nwant\n%s", out.String(), want)
	}
}

func TestNumbers(t *testing.T) {
	if median([]float64{3, 1, 2, 10}) != 2.5 || short(1234.5) != "1234" || short(12.34) != "12.3" || short(0.01234) != "0.0123" {
		t.Error("a number is wrong")
	}
	report := map[string]any{"a": map[string]any{"b": 2.0}, "c": "text"}
	if v, ok := lookup(report, "a.b"); !ok || v != 2 {
		t.Error("a.b was not found")
	}
	for _, path := range []string{"a", "c", "a.b.c", "x.y"} {
		if _, ok := lookup(report, path); ok {
			t.Errorf("%s was found", path)
		}
	}
}

func TestKinds(t *testing.T) {
	k, err := ParseKind(context.Background(), "amqp://u:secret@127.0.0.1:7#12,13", "", "")
	if err != nil || k.Name != "127.0.0.1:7" {
		t.Fatalf("%+v %v", k, err)
	}
	i, err := k.start(context.Background(), "", shape{nodes: 1})
	if err != nil || i.urls[0] != "amqp://u:secret@127.0.0.1:7" || len(i.pids) != 2 || i.pids[1] != 13 {
		t.Fatalf("%+v %v", i, err)
	}
	for _, wrong := range []string{"nosuch", "holdfast=nowhere/at/all", "127.0.0.1:7#x", "holdfast@nosuchcommit"} {
		if _, err := ParseKind(context.Background(), wrong, t.TempDir(), ""); err == nil {
			t.Errorf("%q is a broker", wrong)
		}
	}
}

// What a scenario's options speak of is put into them.
func TestFill(t *testing.T) {
	i := &instance{urls: []string{"a", "b", "c"}, pids: []int{7, 8, 9}, data: "/d", links: &relays{pipe: "/p"}}
	args := strings.Fields("-h {others} --declare-uri {node1} --victim-pid {pid1} --data {data}/x --fault {cut} --mend {mend} {nodes}")
	if err := i.fill(nil, args); err != nil {
		t.Fatal(err)
	}
	want := []string{"-h", "b,c", "--declare-uri", "a", "--victim-pid", "7", "--data", "/d/x", "--fault", "echo cut >/p", "--mend", "echo mend >/p", "a,b,c"}
	if !slices.Equal(args, want) {
		t.Errorf("%q", args)
	}
	if err := i.fill(nil, []string{"{outside}"}); err == nil {
		t.Error("nobody can be asked who is outside")
	}
}

// What is on its way is held up, and passes when the links are mended; what does
// not touch the first node always passes.
func TestRelays(t *testing.T) {
	var addrs []string
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
		go func() { // an echo
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(c, c) }()
			}
		}()
	}
	r, between, err := newRelays(t.TempDir(), addrs)
	if err != nil {
		t.Skipf("there are not all loopback addresses here: %v", err)
	}
	defer r.close()
	if len(between) != 3 || !strings.Contains(r.hosts(1), "127.0.102.101 bench-node1\n127.0.0.1 bench-node2\n") {
		t.Errorf("%q %q", between, r.hosts(1))
	}
	open := func(from, to int) net.Conn {
		_, port, _ := net.SplitHostPort(addrs[to])
		c, err := net.Dial("tcp", net.JoinHostPort(relayHost(from, to), port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	echoed := func(c net.Conn) {
		t.Helper()
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	first, second := open(1, 0), open(1, 2)
	r.hold(true)
	for _, c := range []net.Conn{first, second} {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	echoed(second)
	if out, err := exec.Command("sh", "-c", r.command("mend")).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	echoed(first)
}

// brokers returns a folder to run brokers in, and the binary of those to be tested,
// which also stands in the environment. It skips a short test.
func brokers(t *testing.T) (dir, binary string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and runs brokers")
	}
	dir = t.TempDir()
	binary, err := rig.Binary(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(rig.BinaryEnv, binary)
	return dir, binary
}

// Two rounds of two brokers, from the command line to the files of results.
func TestComparison(t *testing.T) {
	dir, _ := brokers(t)
	list := filepath.Join(dir, "list")
	err := os.WriteFile(list, []byte(`
counted | disk | throughput -C 500 -f persistent -c 50 -a -z 1 | sent.total+ confirm_us.p50- disk.rate+
killed | kill | recovery --messages 500 --idle 60 | figures.confirmed_lost-
beside | | latency -C 200 -r 2000 -a | received.total+
& throughput -r 100 -a
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = Main([]string{"-list", list, "-results", dir, "-name", "r", "-rounds", "2", "-rest", "0", "-disturbed", "100", "-dir", dir, "-only", "counted,beside",
		"holdfast", "echo"}, 2, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	lines, _ := os.ReadFile(filepath.Join(dir, "r.jsonl"))
	page, _ := os.ReadFile(filepath.Join(dir, "r.md"))
	if n := strings.Count(string(lines), `"scenario":"`); strings.Count(string(lines), "\n") != 8 || n < 8 {
		t.Errorf("results:\n%s", lines)
	}
	for _, want := range []string{"| counted | sent.total | 500 (500 to 500) | 500 (500 to 500) | 1.00 same |", "| beside | received.total | 200 (", "fdatasync"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	out.Reset()
	if err := Main([]string{"-list", list, "-results", "none", "-rounds", "1", "-rest", "0", "-disturbed", "100", "-dir", dir, "-only", "killed", "holdfast"}, 1, &out); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "holdfast-bench-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	out.Reset()
	list = filepath.Join(dir, "three")
	err = os.WriteFile(list, []byte(`
outside | cluster | throughput -C 300 -f persistent -c 50 -p -u outside -h {outside} | received.total+
failover | cluster own | failover -r 500 --fault-at 0.5 -z 2 -h {others} --declare-uri {node1} --victim-pid {pid1} | figures.confirmed_lost-
takeover | cluster own | takeover -n 20 --fault-at 0.1 -h {others} --declare-uri {nodes} --victim-pid {pid1} | figures.all_s-
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	err = Main([]string{"-list", list, "-results", "none", "-rounds", "1", "-rest", "0", "-disturbed", "100", "-dir", dir, "holdfast"}, 1, &out)
	if err != nil || !strings.Contains(out.String(), "| outside | received.total | 300 |") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := Main([]string{"echo"}, 2, &out); err == nil {
		t.Error("one broker is no comparison")
	}
}
