package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// bench is what all runs share.
type bench struct {
	perf    string // the load generator
	dir     string // for data folders
	rest    time.Duration
	limit   float64
	machine Machine
	extra   map[string][]string // more options by scenario
}

// run starts a fresh broker, puts the scenario's load on it, and ends it.
func (b *bench) run(ctx context.Context, k *Kind, s Scenario, round int) Result {
	r := Result{Scenario: s.Name, Broker: k.Name, Commit: k.Commit, Round: round, Sync: k.Sync, Machine: b.machine}
	dir, err := os.MkdirTemp(b.dir, "broker-")
	if err != nil {
		r.Error = err.Error()
		return r
	}
	defer os.RemoveAll(dir)
	i, err := k.start(ctx, dir, s.shape())
	if err != nil {
		r.Error = err.Error()
		return r
	}
	defer func() {
		if err := i.stop(); err != nil && r.Error == "" {
			r.Error = err.Error()
		}
	}()
	select { // what a start leaves to do is not part of the scenario
	case <-time.After(b.rest):
	case <-ctx.Done():
	}
	if err := b.load(ctx, i, s, &r); err != nil {
		r.Error = err.Error()
	}
	r.Other = 0
	for _, path := range []string{"costs.broker.other_cores", "figures.drain_other_cores", "figures.other_cores_after"} {
		r.Other = max(r.Other, figure(r.Report, path))
	}
	r.Client = figure(r.Report, "costs.client_cores")
	r.Disturbed = r.Other > b.limit
	return r
}

func figure(report map[string]any, path string) float64 {
	v, _ := lookup(report, path)
	return v
}

// load runs the load generator, and a second one beside it if there is one.
func (b *bench) load(ctx context.Context, i *instance, s Scenario, r *Result) error {
	args := append([]string{"perf"}, s.Args...)
	args = append(args, b.extra[s.Name]...)
	if err := i.fill(b, args); err != nil {
		return err
	}
	args = append(args, "--json")
	if !slices.Contains(args, "-h") {
		args = append(args, "-h", i.urls[0])
	}
	if len(i.pids) > 0 {
		args = append(args, "--broker-pid", join(i.pids))
	}
	if s.Is("disk") && i.data != "" {
		args = append(args, "--disk", i.data)
	}
	if s.Is("log") && i.metrics != "" {
		args = append(args, "--metrics", i.metrics)
	}
	if len(s.Beside) > 0 {
		second := exec.Command(b.perf, slices.Concat([]string{"perf"}, s.Beside, []string{"--quiet", "-h", i.urls[0]})...)
		var out bytes.Buffer
		second.Stdout, second.Stderr = &out, &out
		c, err := spawn(second)
		if err != nil {
			return err
		}
		defer func() { c.end(syscall.SIGTERM, 40*time.Second) }()
		args = append(args, "--beside-pid", strconv.Itoa(c.pid()))
	}
	if i.links != nil { // what stands between the nodes is no other work
		args = append(args, "--beside-pid", strconv.Itoa(os.Getpid()))
	}
	if s.Is("kill") {
		if i.relaunch == nil {
			return fmt.Errorf("%s cannot be killed and started again here", r.Broker)
		}
		// The load generator kills it; whoever runs a broker starts it again.
		over, relaunched := make(chan struct{}), make(chan error, 1)
		go func() {
			select {
			case <-i.ended:
				relaunched <- i.relaunch()
			case <-over:
				relaunched <- nil
			}
		}()
		defer func() { close(over); <-relaunched }()
	}
	cmd := exec.Command(b.perf, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	c, err := spawn(cmd)
	if err != nil {
		return err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		c.end(syscall.SIGTERM, 40*time.Second)
		return ctx.Err()
	}
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &r.Report); err != nil {
			return fmt.Errorf("the report cannot be read: %w in %q", err, out.String())
		}
	}
	if state := c.cmd.ProcessState; !state.Success() {
		return fmt.Errorf("%v: %s%s", state, errs.String(), errorsOf(r.Report))
	}
	return nil
}

// errorsOf are the errors that a report lists.
func errorsOf(report map[string]any) string {
	list, _ := report["errors"].([]any)
	var all []string
	for _, e := range list {
		all = append(all, fmt.Sprint(e))
	}
	return strings.Join(all, "; ")
}

func join(pids []int) string {
	var all []string
	for _, p := range pids {
		all = append(all, strconv.Itoa(p))
	}
	return strings.Join(all, ",")
}

// tools is a folder for binaries that a comparison builds.
func tools(dir string) (string, error) {
	t := filepath.Join(dir, "tools")
	return t, os.MkdirAll(t, 0o755)
}
