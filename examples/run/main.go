// Command run runs the examples and checks what they print: each against a broker of this tree, on loopback, with a data folder
// that goes with it. The Python ones need Debian's python3-pika, which is installed if it is missing; with -python=false they are
// left out.
//
// What an example prints stands beside it, in output.txt, the same for all languages. Of several programs the order is the one in the
// list below.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast/test/rig"
)

// example is one subject: a folder with the programs of each language.
type example struct {
	name   string
	golang []string // folders with a main package
	python []string // scripts
}

var examples = []example{
	{"dead-lettering", []string{"go"}, []string{"dead_lettering.py"}},
	{"ttl", []string{"go"}, []string{"ttl.py"}},
	{"limits", []string{"go"}, []string{"limits.py"}},
	{"priority", []string{"go"}, []string{"priority.py"}},
	{"single-active", []string{"go"}, []string{"single_active.py"}},
	{"retries", []string{"go"}, []string{"retries.py"}},
	{"delay", []string{"go"}, []string{"delay.py"}},
	{"deduplication", []string{"go"}, []string{"deduplication.py"}},
	{"policies", []string{"go"}, []string{"policies.py"}},
	{"flow-control", []string{"go"}, []string{"flow_control.py"}},
	{"reliable", []string{"go/publisher", "go/consumer"}, []string{"publisher.py", "consumer.py"}},
}

// limit bounds each program.
const limit = 2 * time.Minute

func main() {
	only := flag.String("only", "", "examples to run, separated by commas")
	python := flag.Bool("python", true, "run the Python ones, too")
	flag.Parse()
	if err := run(*only, *python); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(only string, python bool) error {
	dir, err := os.MkdirTemp("", "holdfast-examples-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if python {
		if err := rig.Install("python3-pika"); err != nil {
			return err
		}
	}
	binary, err := rig.Binary(dir)
	if err != nil {
		return err
	}
	var failed []error
	for _, e := range examples {
		if only != "" && !slices.Contains(strings.Split(only, ","), e.name) {
			continue
		}
		if err := e.check(dir, binary, python); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", e.name, err))
		}
	}
	return errors.Join(failed...)
}

// check runs the programs of an example, one language after the other, on a broker of its own.
func (e example) check(dir, binary string, python bool) (err error) {
	began := time.Now()
	folder := filepath.Join(rig.Root(), "examples", e.name)
	want, err := os.ReadFile(filepath.Join(folder, "output.txt"))
	if err != nil {
		return err
	}
	var extra []string
	config := filepath.Join(folder, "holdfast.conf")
	if _, err := os.Stat(config); err == nil {
		extra = []string{"--config", config}
	}
	b, err := rig.New(binary, filepath.Join(dir, e.name), extra...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Kill()) }()
	if err := b.Start(); err != nil {
		return fmt.Errorf("%w\n%s", err, b.Tail())
	}
	env := append(os.Environ(), "AMQP_URL="+b.URL(), "HOLDFAST_CTL="+binary+" ctl --data "+b.Data)

	programs := map[string][]*exec.Cmd{}
	for i, p := range e.golang {
		program := filepath.Join(dir, fmt.Sprintf("%s-%d", e.name, i))
		build := exec.Command("go", "build", "-o", program, "./"+filepath.Join("examples", e.name, p))
		build.Dir = rig.Root()
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", p, err, out)
		}
		programs["Go"] = append(programs["Go"], exec.Command(program))
	}
	for _, p := range e.python {
		if python {
			programs["Python"] = append(programs["Python"], exec.Command("/usr/bin/python3", p)) // Debian's package is for Debian's interpreter
		}
	}
	for _, language := range []string{"Go", "Python"} {
		got := ""
		for _, p := range programs[language] {
			p.Dir, p.Env = folder, env
			out, err := bounded(p)
			if got += out; err != nil {
				return fmt.Errorf("%s: %w\n%s", language, err, got)
			}
		}
		if programs[language] != nil && got != string(want) {
			return fmt.Errorf("%s: printed\n%s\ninstead of\n%s", language, got, want)
		}
	}
	fmt.Printf("%-16s ok (%.1f s)\n", e.name, time.Since(began).Seconds())
	return nil
}

// bounded runs a program and returns what it printed.
func bounded(p *exec.Cmd) (string, error) {
	var out strings.Builder
	p.Stdout, p.Stderr = &out, &out
	if err := p.Start(); err != nil {
		return "", err
	}
	timer := time.AfterFunc(limit, func() { _ = p.Process.Kill() })
	defer timer.Stop()
	err := p.Wait()
	return out.String(), err
}
