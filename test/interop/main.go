// Command interop runs the clients of others against a broker: the test suites
// that client libraries come with, and scripted sessions in several languages.
//
// It runs the built binary, one fresh broker for each suite. With -peer it runs
// another broker by a script that takes "start" (prints addr=HOST:PORT) and
// "stop"; that is how the suites are checked against RabbitMQ.
//
// A test that fails for a reason that is not a fault stands in a skip file:
// skips/SUITE.txt names those that need what the broker does not have yet; one
// that passes all the same is a failure, just as one that fails and is not
// named. skips/SUITE.any names tests that can pass on no broker.
//
// It never touches a broker that it did not start, and installs only packages
// of the system's and the languages' own registries.
//
// Map of the files: main.go runs the suites and sums up; broker.go starts and
// stops the broker; suite.go has the kinds of suites; skips.go reads the skip
// files; standin.go answers the two requests of the management API that a
// suite makes; cluster.go has the sessions against three nodes, which end and
// come back meanwhile; sessions/ has the scripts.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"holdfast/test/rig"
)

func main() {
	peer := flag.String("peer", "", "script that starts another broker")
	only := flag.String("only", "", "suites to run, separated by commas")
	keep := flag.Bool("keep", false, "keep the temporary folder, with each suite's output")
	nightly := flag.Bool("cluster", false, "run the sessions against three nodes that end and come back, and no others")
	flag.Parse()
	list := suites
	if *nightly {
		list = clusterSuites
	}
	failed, err := run(list, *peer, *only, *keep)
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

// run is the whole: whether anything is not as it should be.
func run(list []suite, peer, only string, keep bool) (failed bool, err error) {
	dir, err := os.MkdirTemp("", "holdfast-interop-")
	if err != nil {
		return false, err
	}
	if keep {
		fmt.Println("output in", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	chosen, err := choose(list, only)
	if err != nil {
		return false, err
	}
	if err := install(chosen); err != nil {
		return false, err
	}
	binary := ""
	if peer == "" {
		if binary, err = rig.Binary(dir); err != nil {
			return false, err
		}
	}
	start := starter(peer, binary)
	reports := make([]string, len(chosen))
	verdicts := make([]verdict, len(chosen))
	errs := make([]error, len(chosen))
	// Brokers of ours do not meet, so that two suites may run at a time; they
	// wait more than they work. A peer is one broker.
	atOnce := make(chan struct{}, 2)
	if peer != "" {
		atOnce = make(chan struct{}, 1)
	}
	var all sync.WaitGroup
	for i, s := range chosen {
		atOnce <- struct{}{}
		all.Go(func() {
			defer func() { <-atOnce }()
			reports[i], verdicts[i], errs[i] = report(s, start, binary, filepath.Join(dir, s.name), peer == "")
			fmt.Print(reports[i])
		})
	}
	all.Wait()
	var passed, bad, skipped int
	for _, v := range verdicts {
		passed, bad, skipped = passed+v.passed, bad+len(v.bad), skipped+v.skipped
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, bad, skipped)
	return bad > 0, errors.Join(errs...)
}

// report runs a suite and says in a few lines how it went.
func report(s suite, start func(dir string) (*broker, error), binary, dir string, ours bool) (string, verdict, error) {
	began := time.Now()
	skips, err := readSkips(filepath.Join(rig.Root(), "test", "interop", "skips"), s.name, ours)
	if err != nil {
		return "", verdict{}, err
	}
	results, err := runSuite(s, start, binary, dir, skips)
	if err != nil {
		return "", verdict{}, fmt.Errorf("%s: %w", s.name, err)
	}
	v := judge(results, skips)
	text := fmt.Sprintf("%-16s %4d passed, %d failed, %d skipped (%.0f s)\n", s.name, v.passed, len(v.bad), v.skipped, time.Since(began).Seconds())
	for _, line := range v.bad {
		text += "    " + line + "\n"
	}
	return text, v, nil
}

// runSuite runs one suite against a broker of its own.
func runSuite(s suite, start func(dir string) (*broker, error), binary, dir string, skips skipFiles) (map[string]result, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if s.prepare != nil {
		if err := s.prepare(dir); err != nil {
			return nil, fmt.Errorf("preparing: %w", err)
		}
	}
	if s.cluster != nil {
		return s.cluster(dir, binary)
	}
	b, err := start(dir)
	if err != nil {
		return nil, fmt.Errorf("starting the broker: %w", err)
	}
	results, err := s.run(dir, b, skips.any)
	if stopped := b.stop(); err == nil && stopped != nil {
		results["the broker stops in order"] = result{outcome: fail, why: stopped.Error()}
	}
	if err == nil && len(results) == 0 {
		err = fmt.Errorf("no test ran")
	}
	return results, err
}

// verdict is what a suite's results mean.
type verdict struct {
	passed, skipped int
	bad             []string
}

// judge holds results against the skip files.
func judge(results map[string]result, skips skipFiles) verdict {
	v := verdict{skipped: len(skips.any)}
	for name, r := range results {
		_, named := skips.ours[name]
		switch {
		case r.outcome == pass && named:
			v.bad = append(v.bad, fmt.Sprintf("%s passes: take it out of the skip file", name))
		case r.outcome == pass:
			v.passed++
		case named, r.outcome == skip:
			v.skipped++
		default:
			v.bad = append(v.bad, name+": "+strings.TrimSpace(r.why))
		}
	}
	for name := range skips.ours {
		if _, ran := results[name]; !ran {
			v.bad = append(v.bad, fmt.Sprintf("%s did not run: take it out of the skip file", name))
		}
	}
	sort.Strings(v.bad)
	return v
}
