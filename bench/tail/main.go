// Command tail shows what holds others up: it puts loads on a broker of this tree, one after another, and prints how
// long its pauses, rounds, commits, checkpoints and rewriting took, from the histograms of its metrics page.
//
//	go run ./bench/tail -only large -z 10
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"

	"holdfast/test/rig"
)

// situation is a load of small messages whose latency is taken, and what there is beside it.
type situation struct {
	name, about string
	watched     string   // options of holdfast perf
	beside      []string // of others at the same time
	settings    string
}

const (
	steady    = "latency -r 5000 -s 100 -f persistent -c 10000 -q 200 -A 1"
	transient = "latency -r 5000 -s 100 -a"
	saturate  = "throughput -s 1024 -f persistent -c 200 -q 200 -A 50"
	// Checkpoints every few megabytes and small segments make of seconds what is otherwise an hour.
	hurried = "storage.segment_size.min = 4MiB\nstorage.segment_size.max = 16MiB\nstorage.checkpoint.bytes = 8MiB\n"
)

var situations = []situation{
	{"alone", "5,000 persistent messages a second", steady, nil, ""},
	{"saturated", "the same beside a stream of persistent messages as fast as it goes", steady, []string{saturate}, ""},
	{"held", "the same with small segments, and messages that are never consumed in between: checkpoints and rewriting all the time", steady,
		[]string{saturate, "throughput -s 100 -f persistent -y 0 -r 2000 -c 1000"}, hurried},
	{"large", "5,000 persistent messages a second beside eight persistent ones of 16 MiB", steady,
		[]string{"throughput -s 16777216 -r 8 -f persistent -c 4 -q 2 -A 1"}, ""},
	{"large-saturated", "the same beside 16 MiB messages as fast as they go", steady,
		[]string{"throughput -s 16777216 -f persistent -c 2 -q 2 -A 1"}, ""},
	{"large-transient", "5,000 transient messages a second beside transient ones of 16 MiB as fast as they go", transient,
		[]string{"throughput -s 16777216 -q 2 -A 1 -c 2"}, ""},
}

func main() {
	only := flag.String("only", "", "situations, separated by commas (all)")
	seconds := flag.Int("z", 10, "seconds of each")
	dir := flag.String("dir", os.TempDir(), "folder for data folders: the disk that is measured")
	flag.Parse()
	if err := run(os.Stdout, *only, *dir, *seconds); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, only, dir string, seconds int) error {
	dir, err := os.MkdirTemp(dir, "holdfast-tail-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, err := rig.Binary(dir)
	if err != nil {
		return err
	}
	for _, s := range situations {
		if only != "" && !strings.Contains(","+only+",", ","+s.name+",") {
			continue
		}
		fmt.Fprintf(out, "\n%s: %s\n", s.name, s.about)
		if err := s.measure(out, binary, filepath.Join(dir, s.name), seconds); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// measure runs the situation on a broker of its own.
func (s situation) measure(out io.Writer, binary, dir string, seconds int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	settings := filepath.Join(dir, "holdfast.conf")
	if err := os.WriteFile(settings, []byte(s.settings), 0o644); err != nil {
		return err
	}
	b, err := rig.New(binary, dir, "--config", settings)
	if err != nil {
		return err
	}
	if err := b.Start(); err != nil {
		return err
	}
	defer b.Kill()
	defer os.RemoveAll(b.Data)
	for _, load := range s.beside {
		c := perf(binary, b, load)
		if err := c.Start(); err != nil {
			return err
		}
		defer func() { _ = c.Process.Signal(syscall.SIGTERM); _ = c.Wait() }()
	}
	before, err := scrape(b)
	if err != nil {
		return err
	}
	bare, err := startBare(dir)
	if err != nil {
		return err
	}
	load := perf(binary, b, fmt.Sprintf("%s --warmup 2 -z %d --json --broker-pid %d", s.watched, seconds, b.Pid()))
	var report, errs bytes.Buffer
	load.Stdout, load.Stderr = &report, &errs
	err = load.Run()
	floor, ferr := bare.stop()
	if err != nil {
		return fmt.Errorf("%w: %s", err, errs.String())
	}
	if ferr != nil {
		return ferr
	}
	after, err := scrape(b)
	if err != nil {
		return err
	}
	if err := latencies(out, report.Bytes()); err != nil {
		return err
	}
	fmt.Fprintf(out, "  a bare 4 KiB overwrite and fdatasync beside it, %d times: mean %s, p99 %s, longest %s\n", len(floor),
		duration(mean(floor)), duration(floor[len(floor)*99/100]), duration(floor[len(floor)-1]))
	return table(out, before, after)
}

func perf(binary string, b *rig.Broker, options string) *exec.Cmd {
	args := append([]string{"perf"}, strings.Fields(options)...)
	return exec.Command(binary, append(args, "--quiet", "-h", b.URL())...)
}

// latencies prints what the watched load saw.
func latencies(out io.Writer, report []byte) error {
	type spread struct{ P50, P99, P999, Max float64 }
	var r struct {
		Latency spread `json:"latency_us"`
		Confirm spread `json:"confirm_us"`
		Costs   struct {
			Broker struct{ Cores float64 }
		}
	}
	if err := json.Unmarshal(report, &r); err != nil {
		return fmt.Errorf("the report cannot be read: %w", err)
	}
	for _, l := range []struct {
		name string
		spread
	}{{"latency", r.Latency}, {"confirm", r.Confirm}} {
		if l.Max > 0 {
			fmt.Fprintf(out, "  %s of the watched messages, us: p50 %.0f, p99 %.0f, p99.9 %.0f, longest %.0f\n", l.name, l.P50, l.P99, l.P999, l.Max)
		}
	}
	_, err := fmt.Fprintf(out, "  broker: %.2f cores\n", r.Costs.Broker.Cores)
	return err
}

func scrape(b *rig.Broker) (map[string]*histogram, error) {
	page, err := b.MetricsPage()
	if err != nil {
		return nil, err
	}
	return histograms(bytes.NewReader(page))
}

// table prints the histograms as they grew between two looks.
func table(out io.Writer, before, after map[string]*histogram) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\ttimes\tmean\tp99 at most\tlongest at most\t")
	for _, one := range shown {
		h := after[one.metric].less(before[one.metric])
		if h.count() == 0 {
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t\n", one.name, h.count(), one.show(h.mean()), one.show(h.quantile(0.99)), one.show(h.quantile(1)))
	}
	return w.Flush()
}
