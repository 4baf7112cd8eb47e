package harness

import (
	"context"
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

// settings are the command line of bench/run and bench/compare.
type settings struct {
	rounds           int
	only, list, name string
	limit            float64
	rest             time.Duration
	dir, results     string
	long             bool
	extra            map[string][]string
	kinds            []string
}

// Main is the command: it measures the brokers that the arguments name, at
// least as many as least, and prints and writes down the comparison.
func Main(args []string, least int, out io.Writer) error {
	s, err := parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err == nil && len(s.kinds) < least {
		err = fmt.Errorf("at least %d brokers have to be named", least)
	}
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	return s.measure(ctx, out)
}

func parse(args []string, out io.Writer) (*settings, error) {
	s := &settings{extra: map[string][]string{}}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(out)
	s.flags(f)
	f.Usage = func() {
		fmt.Fprint(out, "usage: [OPTIONS] BROKER...\n\nA broker is holdfast, holdfast@COMMIT, holdfast=PATH, rabbitmq, echo, or HOST:PORT[#PID,...]; see docs/benchmarking.md.\n\n")
		f.PrintDefaults()
	}
	err := f.Parse(args)
	s.kinds = f.Args()
	return s, err
}

// flags are of all commands that run scenarios.
func (s *settings) flags(f *flag.FlagSet) {
	f.IntVar(&s.rounds, "rounds", 3, "rounds; each runs every broker once, in turn")
	f.StringVar(&s.only, "only", "", "scenarios to run, as names or beginnings of names, separated by commas (all but the long ones)")
	f.StringVar(&s.list, "list", filepath.Join(rig.Root(), "bench", "scenarios.txt"), "file of scenarios")
	f.Float64Var(&s.limit, "disturbed", 0.1, "cores of other work above which a run does not count")
	f.DurationVar(&s.rest, "rest", 2*time.Second, "time between a broker's start and the load")
	f.StringVar(&s.dir, "dir", os.TempDir(), "folder for data folders: the disk that is measured")
	f.StringVar(&s.results, "results", filepath.Join(rig.Root(), "bench", "results"), `folder for the results, or "none"`)
	f.StringVar(&s.name, "name", "", "name of the files of results (the time and the brokers)")
	f.BoolVar(&s.long, "long", false, "run the long scenarios too")
	f.Func("set", "more options for a scenario: NAME=OPTIONS; may be repeated", func(text string) error {
		name, options, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("NAME=OPTIONS")
		}
		s.extra[name] = append(s.extra[name], strings.Fields(options)...)
		return nil
	})
}

// choose are the scenarios to run.
func (s *settings) choose() ([]Scenario, error) {
	file, err := os.Open(s.list)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	all, err := ReadScenarios(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.list, err)
	}
	for name := range s.extra {
		if !slices.ContainsFunc(all, func(c Scenario) bool { return c.Name == name }) {
			return nil, fmt.Errorf("-set: no scenario is called %s", name)
		}
	}
	return pick(all, s.only, s.long)
}

// pick takes those that were asked for by name, or all.
func pick(all []Scenario, only string, long bool) ([]Scenario, error) {
	if only == "" {
		return slices.DeleteFunc(all, func(c Scenario) bool { return c.Is("long") && !long }), nil
	}
	var chosen []Scenario
	for part := range strings.SplitSeq(only, ",") {
		found := false
		for _, c := range all {
			exact := slices.ContainsFunc(all, func(o Scenario) bool { return o.Name == part })
			if c.Name == part || !exact && strings.HasPrefix(c.Name, part) && (long || !c.Is("long")) {
				chosen, found = append(chosen, c), true
			}
		}
		if !found {
			return nil, fmt.Errorf("-only: no scenario begins with %s", part)
		}
	}
	return chosen, nil
}

func (s *settings) measure(ctx context.Context, out io.Writer) error {
	scenarios, err := s.choose()
	if err != nil {
		return err
	}
	b, built, err := s.prepare()
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	var kinds []*Kind
	for _, text := range s.kinds {
		k, err := ParseKind(ctx, text, built, b.perf)
		if err != nil {
			return err
		}
		for n := 2; slices.ContainsFunc(kinds, func(o *Kind) bool { return o.Name == k.Name }); n++ {
			k.Name = fmt.Sprintf("%s (%d)", text, n) // the same twice shows the noise
		}
		kinds = append(kinds, k)
	}
	file, err := s.file(kinds)
	if err != nil {
		return err
	}
	if file != nil {
		defer file.Close()
	}
	results, err := b.rounds(ctx, s.rounds, scenarios, kinds, file, out)
	return errors.Join(err, s.conclude(out, file, results, scenarios, kinds, b.machine))
}

// prepare builds what runs need, in a folder of their own that the caller removes.
func (s *settings) prepare() (b *bench, built string, err error) {
	filesOpen()
	dir, err := os.MkdirTemp(s.dir, "holdfast-bench-")
	if err != nil {
		return nil, "", err
	}
	perf := ""
	if built, err = tools(dir); err == nil {
		perf, err = rig.Binary(built)
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, "", err
	}
	return &bench{perf: perf, dir: dir, rest: s.rest, limit: s.limit, machine: ThisMachine(dir), extra: s.extra}, built, nil
}

// rounds runs everything, brokers in turn, so that what changes on the machine
// meanwhile hits all of them alike.
func (b *bench) rounds(ctx context.Context, n int, scenarios []Scenario, kinds []*Kind, file *os.File, out io.Writer) ([]Result, error) {
	var results []Result
	for round := 1; round <= n; round++ {
		for _, s := range scenarios {
			for _, k := range kinds {
				r := b.run(ctx, k, s, round)
				if ctx.Err() != nil {
					return results, ctx.Err()
				}
				results = append(results, r)
				if file != nil {
					if err := r.write(file); err != nil {
						return results, err
					}
				}
				fmt.Fprintln(out, r.line(s))
			}
		}
	}
	return results, nil
}

// line is a run in one line of progress.
func (r Result) line(s Scenario) string {
	var b strings.Builder
	fmt.Fprintf(&b, "round %d  %-18s %-20s", r.Round, r.Scenario, r.Broker)
	for _, f := range s.Figs {
		if v, ok := lookup(r.Report, f.Path); ok {
			fmt.Fprintf(&b, " %s=%s", f.Path[strings.LastIndexByte(f.Path, '.')+1:], short(v))
		}
	}
	fmt.Fprintf(&b, " other=%.2f", r.Other)
	switch {
	case r.Error != "":
		fmt.Fprintf(&b, " FAILED: %s", strings.TrimSpace(r.Error))
	case r.Disturbed:
		b.WriteString(" disturbed")
	}
	return b.String()
}

// file opens the file of results, nil if there is to be none.
func (s *settings) file(kinds []*Kind) (*os.File, error) {
	if s.results == "none" {
		return nil, nil
	}
	name := s.name
	if name == "" {
		name = time.Now().UTC().Format("20060102-150405")
		for _, k := range kinds {
			name += "-" + strings.Map(fileName, k.Name)
		}
	}
	if err := os.MkdirAll(s.results, 0o755); err != nil {
		return nil, err
	}
	return os.Create(filepath.Join(s.results, name+".jsonl"))
}

func fileName(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' {
		return r
	}
	return '_'
}

// conclude prints the table, and writes it beside the results.
func (s *settings) conclude(out io.Writer, file *os.File, results []Result, scenarios []Scenario, kinds []*Kind, m Machine) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s, %d cores, %s, %s, %s. Medians of %d rounds; ~ marks figures of disturbed runs only, which do not count.\n\n",
		m.CPU, m.Cores, m.Memory, m.System, m.Disk, s.rounds)
	for _, k := range kinds {
		commit := ""
		if k.Commit != "" {
			commit = " (" + k.Commit + ")"
		}
		fmt.Fprintf(&b, "- %s%s: %s\n", k.Name, commit, k.Sync)
	}
	b.WriteByte('\n')
	table(&b, results, scenarios, kinds)
	b.WriteByte('\n')
	remarks(&b, results, s.limit)
	fmt.Fprint(out, b.String())
	if file != nil {
		page := strings.TrimSuffix(file.Name(), ".jsonl") + ".md"
		if err := os.WriteFile(page, []byte(strings.TrimLeft(b.String(), "\n")), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(out, "\nResults: %s and %s\n", file.Name(), page)
	}
	for _, r := range results {
		if r.Error != "" {
			return fmt.Errorf("there were runs that failed")
		}
	}
	return nil
}
