package harness

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"holdfast/test/rig"
)

// Kind is a broker that can be started as often as wanted.
type Kind struct {
	Name   string // what the table calls it
	Commit string // of Holdfast, "" otherwise
	Sync   string // when a confirm is given
	start  func(ctx context.Context, dir string, want shape) (*instance, error)
}

// shape is what a scenario wants of a broker.
type shape struct {
	nodes int  // 1, or a cluster
	links bool // what goes between its nodes can be held up
}

// instance is a broker that runs.
type instance struct {
	urls     []string // of its nodes
	names    []string // what the broker calls them; nil for one node
	pids     []int
	data     string // folder on the disk that the broker writes to, "" if unknown
	metrics  string // its metrics page, or its first node's; "" if it has none that perf can read
	ended    <-chan struct{}
	relaunch func() error
	ctl      func(args ...string) (string, error) // the command to manage it; nil if there is none
	links    *relays                              // nil: nobody stands between its nodes
	stop     func() error
}

const (
	syncHoldfast = "a persistent message is confirmed after fdatasync"
	syncRabbit   = "a persistent message is confirmed after fsync"
)

// ParseKind reads what the command line calls a broker.
//
//	holdfast            this tree, built now (or what HOLDFAST_BINARY names)
//	holdfast@COMMIT     another commit, built now
//	holdfast=PATH       a binary
//	holdfast@COMMIT=PATH the same, and of which commit it is
//	rabbitmq            the package rabbitmq-server
//	echo                the echo server of holdfast perf: the floor
//	HOST:PORT[#PID,...] a broker that runs already; with its pids, costs are measured. HOST:PORT,... are the nodes of one
func ParseKind(ctx context.Context, text, tools, perf string) (*Kind, error) {
	name, rest, _ := strings.Cut(text, "=")
	if commit, is := strings.CutPrefix(text, "holdfast@"); is {
		if commit, path, built := strings.Cut(commit, "="); built {
			_, err := os.Stat(path)
			return holdfast("holdfast", commit, path), err
		}
		binary, full, err := buildCommit(ctx, commit, tools)
		return holdfast(text, full, binary), err
	}
	switch {
	case text == "holdfast":
		if os.Getenv(rig.BinaryEnv) != "" {
			return holdfast(text, versionOf(perf), perf), nil
		}
		return holdfast(text, HeadCommit(), perf), nil
	case name == "holdfast" && rest != "":
		path, err := filepath.Abs(rest)
		if err == nil {
			_, err = os.Stat(path)
		}
		return holdfast(text, versionOf(path), path), err
	case text == "rabbitmq":
		server, err := findRabbitMQ()
		k := &Kind{Name: text, Sync: syncRabbit}
		k.start = func(_ context.Context, dir string, want shape) (*instance, error) {
			if want.links {
				return nil, fmt.Errorf("the links between nodes of RabbitMQ cannot be held up")
			}
			return startRabbitMQ(server, dir, want.nodes)
		}
		return k, err
	case text == "echo":
		k := &Kind{Name: text, Commit: HeadCommit(), Sync: "nothing is stored"}
		k.start = func(ctx context.Context, _ string, want shape) (*instance, error) {
			if want.nodes > 1 {
				return nil, fmt.Errorf("the echo server is one node")
			}
			return startEcho(ctx, perf)
		}
		return k, nil
	case strings.Contains(text, ":"):
		return external(text)
	}
	return nil, fmt.Errorf("%q is no broker: holdfast, holdfast@COMMIT, holdfast=PATH, rabbitmq, echo or HOST:PORT[#PID]", text)
}

func versionOf(binary string) string {
	out, err := exec.Command(binary, "version").Output()
	if err != nil {
		return "unknown"
	}
	f := strings.Fields(string(out))
	if len(f) < 2 {
		return "unknown"
	}
	return f[1]
}

func holdfast(name, commit, binary string) *Kind {
	k := &Kind{Name: name, Commit: commit, Sync: syncHoldfast}
	k.start = func(_ context.Context, dir string, want shape) (*instance, error) {
		if want.nodes > 1 {
			return startHoldfasts(binary, dir, want)
		}
		b, err := rig.New(binary, dir)
		if err != nil {
			return nil, err
		}
		if err := b.Start(); err != nil {
			return nil, err
		}
		return &instance{
			urls: []string{"amqp://" + b.Addr}, pids: []int{b.Pid()}, data: dir, metrics: "http://" + b.HTTP + "/metrics",
			ended: b.Ended(), relaunch: b.Launch, ctl: b.Ctl, stop: b.Kill,
		}, nil
	}
	return k
}

// external is a broker that somebody else runs.
func external(text string) (*Kind, error) {
	addr, list, _ := strings.Cut(text, "#")
	i := instance{urls: strings.Split(addr, ","), stop: func() error { return nil }}
	for n, u := range i.urls {
		if !strings.Contains(u, "://") {
			i.urls[n] = "amqp://" + u
		}
	}
	if list != "" {
		for p := range strings.SplitSeq(list, ",") {
			pid, err := strconv.Atoi(p)
			if err != nil {
				return nil, fmt.Errorf("%q is not a pid", p)
			}
			i.pids = append(i.pids, pid)
		}
	}
	shown, _, _ := strings.Cut(addr, ",")
	if at := strings.LastIndexByte(shown, '@'); at >= 0 {
		shown = shown[at+1:] // not the password
	}
	return &Kind{
		Name: shown, Sync: "unknown",
		start: func(_ context.Context, _ string, want shape) (*instance, error) {
			if len(i.urls) < want.nodes || want.links {
				return nil, fmt.Errorf("%d nodes are wanted", want.nodes)
			}
			copied := i
			return &copied, nil
		},
	}, nil
}

// child is a process that the harness started.
type child struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// spawn starts a process that is not hit by the terminal's interrupt, so that
// the harness can end it in order.
func spawn(cmd *exec.Cmd) (*child, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd, make(chan struct{})}
	go func() { _ = cmd.Wait(); close(c.done) }()
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// end sends a signal, waits, and kills what is still there.
func (c *child) end(signal syscall.Signal, wait time.Duration) {
	_ = c.cmd.Process.Signal(signal)
	select {
	case <-c.done:
	case <-time.After(wait):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}

// startEcho runs the echo server and reads where it listens.
func startEcho(_ context.Context, perf string) (*instance, error) {
	cmd := exec.Command(perf, "perf", "echo", "--listen", "127.0.0.1:0")
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	c, err := spawn(cmd)
	w.Close()
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	f := strings.Fields(line)
	if err != nil || len(f) == 0 {
		c.end(syscall.SIGKILL, time.Second)
		return nil, fmt.Errorf("the echo server said %q: %w", line, err)
	}
	return &instance{
		urls: []string{"amqp://" + strings.TrimSuffix(f[len(f)-1], ".")}, pids: []int{c.pid()},
		stop: func() error { c.end(syscall.SIGTERM, 5*time.Second); return nil },
	}, nil
}

// freePorts are n ports of loopback that nobody has.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
