package harness

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/test/rig"
)

// Every target of the list that is delivered names a scenario, and a figure
// that this scenario compares.
func TestTheTargets(t *testing.T) {
	t.Run("one node", func(t *testing.T) { theTargets(t, "scenarios.txt", "targets.txt", 30) })
	t.Run("cluster", func(t *testing.T) { theTargets(t, "scenarios-cluster.txt", "targets-cluster.txt", 20) })
}

func theTargets(t *testing.T, list, what string, least int) {
	open := func(name string) *os.File {
		file, err := os.Open(filepath.Join(rig.Root(), "bench", name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		return file
	}
	scenarios, err := ReadScenarios(open(list))
	if err != nil {
		t.Fatal(err)
	}
	targets, err := ReadTargets(open(what))
	if err != nil || len(targets) < least {
		t.Fatalf("%d targets, %v", len(targets), err)
	}
	figs := map[string]map[string]Fig{}
	for _, s := range scenarios {
		figs[s.Name] = map[string]Fig{}
		for _, f := range s.Figs {
			figs[s.Name][f.Path] = f
		}
	}
	for _, g := range targets {
		f, is := figs[g.Scenario][g.Figure]
		if !is {
			t.Errorf("%s: no scenario %s compares %s", g.What, g.Scenario, g.Figure)
		}
		if f.More != g.Least {
			t.Errorf("%s: %s is better the other way", g.What, g.Figure)
		}
		if _, is := figs[g.Of]; g.Of != "" && !is {
			t.Errorf("%s: no scenario %s", g.What, g.Of)
		}
	}
	for _, s := range needed(scenarios, targets) {
		own := true
		for _, g := range targets {
			own = own && (g.Scenario != s.Name || !g.Peer)
		}
		if s.Is("own") && !own {
			t.Errorf("%s is not run for the peer, and compared with it", s.Name)
		}
	}
}

func of(scenario, broker string, round int, v float64) Result {
	return Result{Scenario: scenario, Broker: broker, Round: round, Report: map[string]any{"v": v}}
}

func TestVerdict(t *testing.T) {
	targets, err := ReadTargets(strings.NewReader(`
cheap | s | v | <= 1/4 x
fast  | s | v | >= 0.1 x
small | s | v | <= 20
floor | s | v | <= 1/5 x above echo
wide  | w | v | <= 1.5 x s
none  | s | no | <= 1
`))
	if err != nil {
		t.Fatal(err)
	}
	results := []Result{of("s", "rabbit", 1, 110), of("s", "own", 1, 30), of("s", "own", 2, 28), of("s", "own", 3, 500), of("s", "echo", 1, 10), of("w", "own", 1, 48)}
	var out bytes.Buffer
	met, open := verdict(&out, targets, results, "rabbit", "own")
	want := `| what | scenario | figure | target | rabbit | own | ratio | met |
| --- | --- | --- | --- | ---: | ---: | ---: | --- |
| cheap | s | v | <= 1/4 x | 110 | 30 | 1/3.67 | no |
| fast | s | v | >= 0.1 x | 110 | 30 | 1/3.67 | yes |
| small | s | v | <= 20 | 110 | 30 | - | no |
| floor | s | v | <= 1/5 x above echo | 110 | 30 (echo 10) | 1/5 | yes |
| wide | w | v | <= 1.5 x s | - | 48 | 1.6 | no |
| none | s | no | <= 1 | - | - | - | not measured |
`
	if out.String() != want || met != 2 || open != 1 {
		t.Errorf("%d met, %d open, have\n%s\nwant\n%s", met, open, out.String(), want)
	}
	for _, wrong := range []string{"a | b | c", "a | b | c | = 3", "a | b | c | <= x", "a | b | c | <= 1/0 x", "a | b | c | <= 1 x over echo", "a | b | c | <="} {
		if _, err := ReadTargets(strings.NewReader(wrong)); err == nil {
			t.Errorf("%q was read", wrong)
		}
	}
	if !math.IsNaN(divided(1, 0)) {
		t.Error("divided by nothing")
	}
}

// What is there and counts is not run again; what is of another commit, failed
// or was disturbed is.
func TestMissing(t *testing.T) {
	kinds := []*Kind{{Name: "rabbit"}, {Name: "own", Commit: "new"}, {Name: "echo", Commit: "new"}}
	scenarios := []Scenario{{Name: "a"}, {Name: "b", Tags: []string{"own"}}, {Name: "c", Tags: []string{"floor"}}}
	done := []Result{of("a", "rabbit", 1, 1), of("a", "own", 1, 1), of("b", "own", 1, 1)}
	done[1].Commit, done[2].Commit = "old", "new"
	names := func() string {
		var all []string
		for _, p := range missing(scenarios, kinds, 1, done) {
			all = append(all, p.scenario.Name+" "+p.kind.Name)
		}
		return strings.Join(all, ", ")
	}
	if have := names(); have != "a own, c rabbit, c own, c echo" {
		t.Error(have)
	}
	done[0].Disturbed, done[2].Error = true, "it fell"
	if have := names(); have != "a rabbit, a own, b own, c rabbit, c own, c echo" {
		t.Error(have)
	}
	if have := current(done, kinds); len(have) != 2 {
		t.Errorf("%d are current", len(have))
	}
	if have := newest(append(done, of("a", "own", 2, 1))); len(have) != 2 {
		t.Errorf("%d are the newest", len(have))
	}
}

// What a campaign cannot do is refused before anything runs.
func TestCampaignRefuses(t *testing.T) {
	for _, args := range [][]string{{"holdfast"}, {"a", "b", "c"}, {"holdfast", "holdfast"}, {"-results", "none"}} {
		if _, err := parseCampaign(args, io.Discard); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	if c, err := parseCampaign(nil, io.Discard); err != nil || strings.Join(c.kinds, " ") != "rabbitmq holdfast" {
		t.Errorf("without arguments: %v", err)
	}
}

// A campaign that ran is only printed the second time.
func TestCampaign(t *testing.T) {
	dir, binary := brokers(t)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	list := write("list", "one | floor | throughput -C 500 -a -z 1 | sent.total+\ntwo | own log disk | throughput -C 500 -f persistent -c 10 -a -z 1 | sent.total+ figures.messages_per_sync+ figures.confirm_by_disk-\nidle | | throughput -a | sent.total+\n")
	targets := write("targets", "sent | one | sent.total | >= 1 x\nsynced | two | figures.messages_per_sync | >= 0.001\nsame | two | sent.total | >= 1 x one\n")
	args := []string{"-list", list, "-targets", targets, "-results", dir, "-rounds", "1", "-rest", "0", "-disturbed", "100", "-dir", dir}
	for again := range 2 {
		var out bytes.Buffer
		if err := Campaign(append(args, "holdfast="+binary, "holdfast"), &out); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		if ran := strings.Contains(out.String(), "1 of 4"); ran != (again == 0) || !strings.Contains(out.String(), "3 of 3 targets are met") {
			t.Errorf("call %d:\n%s", again+1, out.String())
		}
	}
	if lines, _ := os.ReadFile(filepath.Join(dir, "campaign.jsonl")); bytes.Count(lines, []byte("\n")) != 4 {
		t.Errorf("results:\n%s", lines)
	}
}
