package harness

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"holdfast/test/rig"
)

// campaign is the command line of bench/campaign.
type campaign struct {
	settings
	targets string
	print   bool
}

// Campaign is the command: it runs every scenario that a target looks at, for a
// peer and for a broker of our own, and prints which targets are met. Each run
// is kept as it ends; a second call does what is missing.
func Campaign(args []string, out io.Writer) error {
	c, err := parseCampaign(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	return c.measure(ctx, out)
}

func parseCampaign(args []string, out io.Writer) (*campaign, error) {
	c := &campaign{settings: settings{extra: map[string][]string{}}}
	f := flag.NewFlagSet("campaign", flag.ContinueOnError)
	f.SetOutput(out)
	c.flags(f)
	f.StringVar(&c.targets, "targets", filepath.Join(rig.Root(), "bench", "targets.txt"), "file of targets")
	f.BoolVar(&c.print, "print", false, "run nothing, print the table of what there is")
	f.Usage = func() {
		fmt.Fprint(out, "usage: [OPTIONS] [PEER OWN]\n\nPEER and OWN are brokers as for bench/compare (rabbitmq and holdfast). "+
			"The soak runs only if -only names it.\n\n")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	switch c.kinds = f.Args(); len(c.kinds) {
	case 0:
		c.kinds = []string{"rabbitmq", "holdfast"}
	case 2:
	default:
		return nil, fmt.Errorf("a peer and a broker of our own have to be named, or none")
	}
	if c.kinds[0] == c.kinds[1] {
		return nil, fmt.Errorf("%s cannot be its own peer: runs are told apart by the broker's name", c.kinds[0])
	}
	if c.results == "none" {
		return nil, fmt.Errorf("a campaign keeps its runs: -results names their folder")
	}
	if c.name == "" {
		c.name = "campaign"
	}
	return c, nil
}

// plan is one run that is to be done.
type plan struct {
	scenario Scenario
	kind     *Kind
	round    int
}

// path is where the runs are kept.
func (c *campaign) path() string { return filepath.Join(c.results, c.name+".jsonl") }

func (c *campaign) measure(ctx context.Context, out io.Writer) error {
	targets, scenarios, err := c.lists()
	if err != nil {
		return err
	}
	done, err := readResults(c.path())
	if err != nil {
		return err
	}
	if c.print {
		return c.conclude(out, targets, newest(done))
	}
	b, built, err := c.prepare()
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	var kinds []*Kind
	for _, text := range append(slices.Clone(c.kinds), floor) {
		k, err := ParseKind(ctx, text, built, b.perf)
		if err != nil {
			return err
		}
		kinds = append(kinds, k)
	}
	if err := os.MkdirAll(c.results, 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(c.path(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	todo := missing(scenarios, kinds, c.rounds, done)
	begun := time.Now()
	for n, p := range todo {
		r := b.run(ctx, p.kind, p.scenario, p.round)
		if ctx.Err() != nil {
			break
		}
		if err := r.write(file); err != nil {
			return err
		}
		done = append(done, r)
		fmt.Fprintf(out, "%d of %d, %v  %s\n", n+1, len(todo), time.Since(begun).Round(time.Second), r.line(p.scenario))
	}
	return errors.Join(ctx.Err(), c.conclude(out, targets, current(done, kinds)))
}

// lists reads targets and the scenarios to run.
func (c *campaign) lists() ([]Target, []Scenario, error) {
	file, err := os.Open(c.targets)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	targets, err := ReadTargets(file)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.targets, err)
	}
	long := c.only != "" || c.long
	c.long = true
	all, err := c.choose()
	if err != nil {
		return nil, nil, err
	}
	all = needed(all, targets)
	if !long { // a soak is as long as all the rest
		all = slices.DeleteFunc(all, func(s Scenario) bool { return s.Args[0] == "soak" })
	}
	return targets, all, nil
}

// missing are the runs that are not among those done, scenario by scenario, the
// brokers of each in turn. kinds are peer, own and floor. A run that failed, was
// disturbed, or is of another commit is done again.
func missing(scenarios []Scenario, kinds []*Kind, rounds int, done []Result) (todo []plan) {
	for _, s := range scenarios {
		for round := 1; round <= rounds; round++ {
			for i, k := range kinds {
				if i == 0 && s.Is("own") || i == 2 && !s.Is("floor") {
					continue
				}
				have := func(r Result) bool {
					return r.Scenario == s.Name && r.Broker == k.Name && r.Round == round && r.Commit == k.Commit && r.counts()
				}
				if !slices.ContainsFunc(done, have) {
					todo = append(todo, plan{s, k, round})
				}
			}
		}
	}
	return todo
}

// current are the results of the commits that are measured now.
func current(done []Result, kinds []*Kind) []Result {
	return slices.DeleteFunc(slices.Clone(done), func(r Result) bool {
		return slices.ContainsFunc(kinds, func(k *Kind) bool { return k.Name == r.Broker && k.Commit != r.Commit })
	})
}

// newest are, of each broker, the results of the commit that was measured last.
func newest(done []Result) []Result {
	last := map[string]string{}
	for _, r := range done {
		last[r.Broker] = r.Commit
	}
	return slices.DeleteFunc(slices.Clone(done), func(r Result) bool { return r.Commit != last[r.Broker] })
}

// readResults reads a file of results; one that is not there has none.
func readResults(path string) (all []Result, err error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for lines := json.NewDecoder(file); lines.More(); {
		var r Result
		if err := lines.Decode(&r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// conclude prints the table of targets and writes it beside the results.
func (c *campaign) conclude(out io.Writer, targets []Target, results []Result) error {
	if len(results) == 0 {
		return fmt.Errorf("%s has no results; -name NAME reads another file of bench/results, NAME.jsonl", c.path())
	}
	var b strings.Builder
	m, commit := results[len(results)-1].Machine, ""
	for _, r := range results {
		if r.Commit != "" && r.Broker == c.kinds[1] {
			commit = " (" + r.Commit + ")"
		}
	}
	fmt.Fprintf(&b, "%s%s against %s. %s, %d cores, %s, %s, %s. Medians of the runs that count.\n\n",
		c.kinds[1], commit, c.kinds[0], m.CPU, m.Cores, m.Memory, m.System, m.Disk)
	met, open := verdict(&b, targets, results, c.kinds[0], c.kinds[1])
	fmt.Fprintf(&b, "\n%d of %d targets are met, %d were not measured.\n\n", met, len(targets), open)
	remarks(&b, results, c.limit)
	fmt.Fprint(out, "\n", b.String())
	page := strings.TrimSuffix(c.path(), ".jsonl") + ".md"
	fmt.Fprintf(out, "\nResults: %s and %s\n", c.path(), page)
	return os.WriteFile(page, []byte(b.String()), 0o644)
}
