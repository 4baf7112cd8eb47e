// Command rooms says which room of the broker a CPU profile's time went to, and what of it was system calls, allocation,
// collection and scheduling:
//
//	curl --unix-socket DATA/ctl.sock -o cpu.prof 'http://node/debug/pprof/profile?seconds=5'
//	go tool pprof -traces cpu.prof | go run ./bench/rooms
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	totals, err := read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	print(os.Stdout, totals)
}

// read adds up the samples of `go tool pprof -traces`: blocks between dashed
// lines, the first line with the time and the leaf, the others up to the root.
func read(r io.Reader) (map[string]time.Duration, error) {
	totals := map[string]time.Duration{}
	var spent time.Duration
	var stack []string
	end := func() {
		if spent > 0 && len(stack) > 0 {
			totals[place(stack)] += spent
		}
		spent, stack = 0, nil
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(text, "-----------") {
			end()
			continue
		}
		f := strings.Fields(strings.TrimSuffix(text, " (inline)"))
		if len(f) >= 2 && len(stack) == 0 {
			if d, err := time.ParseDuration(f[0]); err == nil {
				spent, stack = d, append(stack, f[1])
			}
			continue
		}
		if len(f) > 0 && spent > 0 {
			stack = append(stack, f[0])
		}
	}
	end()
	return totals, lines.Err()
}

// place says what a sample's time was spent on; the stack begins with the leaf.
func place(stack []string) string {
	has := func(parts ...string) bool {
		return slices.ContainsFunc(stack, func(f string) bool {
			return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(f, p) })
		})
	}
	switch {
	case has("runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.bgsweep", "runtime.bgscavenge", "runtime.gcStart"):
		return "runtime: collector"
	case has("runtime.mallocgc", "runtime.growslice", "runtime.newobject"):
		return "runtime: allocation"
	case has("runtime.mcall", "runtime.schedule", "runtime.findRunnable", "runtime.sysmon", "runtime.mstart"):
		return "runtime: scheduler"
	case has("syscall.Syscall", "syscall.RawSyscall", "syscall.Syscall6", "runtime/syscall"):
		switch {
		case has("Fdatasync", "fdatasync"):
			return "system calls: fdatasync"
		case has("Pwrite", "pwrite"):
			return "system calls: pwrite"
		case has("Pread", "pread"):
			return "system calls: pread"
		case has("net.(*conn).Write", "net.(*Buffers)", "Writev", "writev", "syscall.write", "syscall.Write"):
			return "system calls: socket write"
		case has("net.(*conn).Read", "syscall.read", "syscall.Read", "Recv"):
			return "system calls: socket read"
		}
		return "system calls: others"
	case has("runtime.ready", "runtime.goready", "runtime.futex", "runtime.wakep", "runtime.startm"):
		return "runtime: waking goroutines"
	}
	for _, f := range stack {
		if _, rest, is := strings.Cut(f, "holdfast/internal/"); is {
			room, _, _ := strings.Cut(rest, ".")
			if strings.HasPrefix(stack[0], "runtime.memmove") {
				return room + " (copying)"
			}
			return room
		}
	}
	return "runtime: others"
}

func print(w io.Writer, totals map[string]time.Duration) {
	var all time.Duration
	var places []string
	for p, d := range totals {
		all += d
		places = append(places, p)
	}
	slices.SortFunc(places, func(a, b string) int { return int(totals[b] - totals[a]) })
	for _, p := range places {
		fmt.Fprintf(w, "%6.1f %%  %-28s %v\n", 100*float64(totals[p])/float64(all), p, totals[p])
	}
}
