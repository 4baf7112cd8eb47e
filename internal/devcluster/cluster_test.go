package devcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/test/rig"
)

// asEnv makes the test's binary a node, of the kind it names.
const asEnv = "DEVCLUSTER_TEST_AS"

func TestMain(m *testing.M) {
	if kind := os.Getenv(asEnv); kind != "" {
		os.Exit(pretend(kind, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// pretend is a node that serves nobody. n2 of kind "broken" ends at once, one of kind "stubborn" ends for SIGKILL only, and one
// of kind "waits" listens only when ctl has asked it why it does not.
func pretend(kind string, args []string) int {
	value := func(flag string) string { return args[slices.Index(args, flag)+1] }
	if args[0] == "ctl" {
		asked, err := os.OpenFile(value("--data")+".asked", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = asked.WriteString("once ")
		}
		if err != nil {
			return 2
		}
		fmt.Fprintln(os.Stderr, "Error:\nit is stopped")
		return 64
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	for kind == "waits" {
		if asked, err := os.ReadFile(value("--data") + ".asked"); err == nil && len(asked) > len("once once ") {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if kind == "broken" && value("--name") == "n2" {
		fmt.Fprintln(os.Stderr, "something is wrong")
		return 3
	}
	l, err := net.Listen("tcp", value("--listen"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer l.Close()
	fmt.Println("up")
	<-signals
	if kind == "stubborn" {
		select {}
	}
	fmt.Println("down")
	return 0
}

// screen is what a user sees.
type screen struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
	return s.text.Write(b)
}

func (s *screen) look() (string, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String(), s.changed
}

// await waits for a text and returns what comes behind it.
func (s *screen) await(t *testing.T, text string) string {
	t.Helper()
	patience := time.NewTimer(5 * time.Minute) // processes start slowly where many do
	defer patience.Stop()
	for {
		have, changed := s.look()
		if _, behind, found := strings.Cut(have, text); found {
			return behind
		}
		select {
		case <-changed:
		case <-patience.C:
			t.Fatalf("never seen: %q\n%s", text, have)
		}
	}
}

// pid is the pid of a node in the summary.
func (s *screen) pid(t *testing.T, name string) int {
	t.Helper()
	line, _, _ := strings.Cut(s.await(t, "\n  "+name+"  amqp://"), "\n")
	_, rest, _ := strings.Cut(line, " pid ")
	pid, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatalf("no pid in %q", line)
	}
	return pid
}

// freeBase finds a base whose ports are all free, and stay so while nobody listens on them.
func freeBase(t *testing.T) int {
	t.Helper()
	var above []int
	for i := range size {
		above = append(above, i, httpAbove+i, nodeAbove+i)
	}
	base, err := rig.FreePorts(above...)
	if err != nil {
		t.Fatal(err)
	}
	return base
}

// begin runs a cluster of pretended nodes; end stops it and returns how it ended.
func begin(t *testing.T, kind string, change func(*Options)) (s *screen, o Options, end func() error) {
	t.Helper()
	t.Setenv(asEnv, kind)
	s = &screen{changed: make(chan struct{})}
	o = Options{Program: os.Args[0], Called: "holdfast", Folder: filepath.Join(t.TempDir(), "dev"), BasePort: freeBase(t), Out: s}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	once := sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = once() })
	return s, o, once
}

// Three nodes are started and shown; one that is killed is told of; the others are stopped in order; the folder starts again.
func TestRunAndStop(t *testing.T) {
	s, o, end := begin(t, "well", nil)
	pid := s.pid(t, "n2")
	for _, text := range []string{"n1 | up\n", "n2 | up\n", "n3 | up\n", "kill -9 " + fmt.Sprint(pid)} {
		s.await(t, text)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.await(t, "n2 has ended: signal: killed; 2 of 3 nodes run.")
	s.await(t, "\n  holdfast serve --name n2 --data "+filepath.Join(o.Folder, "n2")+" --listen ")
	if err := end(); err != nil {
		t.Errorf("ended with %v", err)
	}
	all, _ := s.look()
	order := []string{"stopping n3\n", "n3 | down\n", "stopping n1\n", "n1 | down\n", "all nodes have ended\n"}
	for rest, i := all, 0; i < len(order); i++ {
		_, behind, found := strings.Cut(rest, order[i])
		if !found {
			t.Fatalf("%q is missing, or in the wrong place:\n%s", order[i], all)
		}
		rest = behind
	}
	if strings.Contains(all, "stopping n2") {
		t.Error("a node that is gone was stopped")
	}

	secret, err := os.ReadFile(filepath.Join(o.Folder, secretName))
	if err != nil || len(strings.TrimSpace(string(secret))) < 20 {
		t.Fatalf("the secret: %q, %v", secret, err)
	}
	again, _, end := begin(t, "well", func(n *Options) { n.Folder, n.BasePort = o.Folder, 0 })
	again.await(t, fmt.Sprintf("127.0.0.1:%d", o.BasePort+2))
	if err := end(); err != nil {
		t.Errorf("the second start ended with %v", err)
	}
	if same, err := os.ReadFile(filepath.Join(o.Folder, secretName)); err != nil || !bytes.Equal(same, secret) {
		t.Errorf("the secret has become %q, %v", same, err)
	}
}

// A node that ends is started again where that was asked for.
func TestRestart(t *testing.T) {
	s, _, end := begin(t, "well", func(o *Options) { o.Restart = true })
	pid := s.pid(t, "n1")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.await(t, "n1 has ended: signal: killed; it is started again in 1s\n")
	s.await(t, "n1 is back: pid ")
	if err := end(); err != nil {
		t.Errorf("ended with %v", err)
	}
	s.await(t, "stopping n1\n")
}

// A start of which one node fails is a failure, and nothing is left running.
func TestFailedStart(t *testing.T) {
	s, _, end := begin(t, "broken", nil)
	s.await(t, "n2 | something is wrong\n")
	s.await(t, "all nodes have ended\n")
	if err := end(); err == nil || !strings.Contains(err.Error(), "n2 ended while it started: exit status 3") {
		t.Errorf("ended with %v", err)
	}
}

// A node that runs and does not serve, as one that its cluster has removed, is asked why, and what it says is shown once.
func TestWhoDoesNotServeIsAskedWhy(t *testing.T) {
	s, _, end := begin(t, "waits", func(o *Options) { o.patience = time.Millisecond })
	s.await(t, "A cluster of three nodes is running.")
	all, _ := s.look()
	for _, name := range []string{"n1", "n2", "n3"} {
		if n := strings.Count(all, name+" runs and does not serve: it is stopped\n"); n != 1 {
			t.Errorf("%s: said %d times:\n%s", name, n, all)
		}
	}
	if err := end(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// When all nodes are gone the cluster is over.
func TestNoneLeft(t *testing.T) {
	s, _, end := begin(t, "well", nil)
	for _, name := range []string{"n1", "n2", "n3"} {
		if err := syscall.Kill(s.pid(t, name), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	s.await(t, "all nodes have ended\n")
	if err := end(); err == nil || !strings.Contains(err.Error(), "all nodes have ended") {
		t.Errorf("ended with %v", err)
	}
}

// Nodes that do not stop are killed when the user has had enough.
func TestForce(t *testing.T) {
	force := make(chan struct{})
	s, _, end := begin(t, "stubborn", func(o *Options) { o.Force = force })
	s.await(t, "A cluster of three nodes is running.")
	go func() {
		s.await(t, "stopping n3\n")
		close(force)
	}()
	if err := end(); err == nil || strings.Count(err.Error(), "did not stop in an orderly way: signal: killed") != 3 {
		t.Errorf("ended with %v", err)
	}
}

func TestPlans(t *testing.T) {
	base := freeBase(t)
	folder := filepath.Join(t.TempDir(), "dev")
	l, err := net.Listen("tcp", loopback(base+httpAbove+1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := prepare(folder, base); err == nil || !strings.Contains(err.Error(), "--base-port") {
		t.Errorf("with a port that is taken: %v", err)
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("a cluster that cannot start has made its folder: %v", err)
	}
	l.Close()
	for _, port := range []int{-1, MaxBasePort + 1} {
		if _, err := prepare(folder, port); err == nil {
			t.Errorf("base port %d is taken", port)
		}
	}
	if p, err := prepare(folder, base); err != nil || p.BasePort != base {
		t.Fatalf("%+v, %v", p, err)
	}
	if p, err := prepare(folder, 0); err != nil || p.BasePort != base {
		t.Errorf("again: %+v, %v", p, err)
	}
	if _, err := prepare(folder, base); err != nil {
		t.Errorf("again with the same port: %v", err)
	}
	if _, err := prepare(folder, base+1); err == nil {
		t.Error("the ports of a cluster were changed")
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "letter"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := prepare(other, base); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("in somebody's folder: %v", err)
	}
	text, _ := json.Marshal(plan{BasePort: 70000})
	if err := os.WriteFile(filepath.Join(folder, planName), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := prepare(folder, 0); err == nil {
		t.Error("a plan with ports that do not exist is carried out")
	}
}

// What a process prints comes in whole lines with its name, whatever pieces it comes in.
func TestColumns(t *testing.T) {
	var out bytes.Buffer
	c := &column{paper: &paper{to: &out}, prefix: "n1 | "}
	for _, piece := range []string{"one\ntw", "o", "\n\nthree\nfour"} {
		if n, err := c.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	if have := out.String(); have != "n1 | one\nn1 | two\nn1 | \nn1 | three\n" {
		t.Errorf("%q", have)
	}
	c.finish()
	c.finish()
	if !strings.HasSuffix(out.String(), "\nn1 | four\n") || strings.Count(out.String(), "four") != 1 {
		t.Errorf("%q", out.String())
	}
	out.Reset()
	for range 3 * longestLine / 1000 {
		_, _ = c.Write(bytes.Repeat([]byte{'x'}, 1000))
	}
	if len(c.rest) > longestLine || strings.Count(out.String(), "\n") < 2 {
		t.Errorf("%d bytes are kept of a line without end", len(c.rest))
	}
}
