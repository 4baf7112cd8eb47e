// Command micro runs the benchmarks of the rooms that a message passes, and prints for each what one message costs:
//
//	go run ./bench/micro > bench/results/micro-COMMIT.txt
//	go run ./bench/micro -only queue -benchtime 1s
//
// A benchmark whose operation handles several messages says so with the metric msg/op.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"holdfast/bench/harness"
	"holdfast/test/rig"
)

// rooms are the benchmarks of one message's way, from the socket down and up.
var rooms = []struct{ name, pattern string }{
	{"wire", "PublishFrames|AppendPublish|DecodePublish|AppendDelivery|ParseProperties"},
	{"message", "Build|Parse"},
	{"routing", "Match|Fanout1000|Topic100k"},
	{"broker", "Route"},
	{"queue", "Flow|Requeue"},
	{"replica", "Round"},
	{"queuehost", "Direct|Solo"},
	{"seglog", "Encode|Commit|Read"},
	{"session", "Transient|Confirms|Unacked"},
}

func main() {
	only := flag.String("only", "", "rooms to run, separated by commas (all)")
	long := flag.String("benchtime", "300ms", "time of each benchmark")
	flag.Parse()
	if err := run(*only, *long, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(only, long string, out io.Writer) error {
	m := harness.ThisMachine(os.TempDir())
	fmt.Fprintf(out, "%s, %d cores, %s, %s, %s. Holdfast %s. One message costs:\n\n", m.CPU, m.Cores, m.Memory, m.System, m.Disk, harness.HeadCommit())
	fmt.Fprintf(out, "%-10s %-52s %10s %9s %11s  %s\n", "room", "benchmark", "ns/msg", "B/msg", "allocs/msg", "")
	for _, r := range rooms {
		if only != "" && !strings.Contains(","+only+",", ","+r.name+",") {
			continue
		}
		cmd := exec.Command("go", "test", "-run", "^$", "-bench", "^Benchmark("+r.pattern+")", "-benchmem", "-benchtime", long, "./internal/"+r.name)
		cmd.Dir, cmd.Stderr = rig.Root(), os.Stderr
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		var rest strings.Builder // what a failure says
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			if text, is := line(r.name, lines.Text()); is {
				fmt.Fprintln(out, text)
			} else {
				fmt.Fprintln(&rest, lines.Text())
			}
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("the benchmarks of %s: %w\n%s", r.name, err, rest.String())
		}
	}
	return nil
}

// line turns a benchmark's result into a row of the table.
func line(room, text string) (string, bool) {
	f := strings.Fields(text)
	if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
		return "", false
	}
	name := strings.TrimPrefix(f[0], "Benchmark")
	if at := strings.LastIndexByte(name, '-'); at > 0 {
		name = name[:at] // the number of processors
	}
	per := map[string]float64{}
	var order []string
	for i := 2; i+1 < len(f); i += 2 {
		v, err := strconv.ParseFloat(f[i], 64)
		if err != nil {
			return "", false
		}
		per[f[i+1]] = v
		order = append(order, f[i+1])
	}
	messages := per["msg/op"]
	if messages == 0 {
		messages = 1
	}
	var rest []string
	for _, unit := range order {
		switch unit {
		case "ns/op", "B/op", "allocs/op", "msg/op", "MB/s":
		default:
			rest = append(rest, strconv.FormatFloat(per[unit], 'g', 4, 64)+" "+unit)
		}
	}
	return strings.TrimRight(fmt.Sprintf("%-10s %-52s %10.1f %9.1f %11.3f  %s", room, name, per["ns/op"]/messages, per["B/op"]/messages,
		per["allocs/op"]/messages, strings.Join(rest, ", ")), " "), true
}
