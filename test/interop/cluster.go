package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"holdfast/test/rig"
)

// clusterSuites are sessions against three nodes that end and come back. A session publishes to a quorum queue with confirms and
// consumes from it with acknowledgements, over connections that its client recovers as it does. It is told by its standard
// input what the driver is about to do:
//
//	mark   from here on nodes end that it may be connected to
//	stop   publish no more: end when everything confirmed has come
//
// and says "confirmed N" now and then, which paces the driver, and at the end what it found, in the lines of every session.
var clusterSuites = []suite{
	clusterSession("pika-cluster", []string{"python3-pika"}, nil, func(string) []string {
		return []string{"/usr/bin/python3", sessionFile("pika_cluster.py")}
	}),
	clusterSession("java-cluster", javaPackages, compileJava("ClusterSession"), func(dir string) []string {
		return []string{"java", "-cp", dir + ":" + javaJars, "ClusterSession"}
	}),
}

func sessionFile(name string) string {
	return filepath.Join(rig.Root(), "test", "interop", "sessions", name)
}

const (
	clusterQueue = "orders"
	stepCount    = 300 // confirmed publishes between two things that the driver does
	stepBound    = time.Minute
)

// clusterSession is a session against three nodes; argv is the command without the nodes' addresses.
func clusterSession(name string, packages []string, prepare func(dir string) error, argv func(dir string) []string) suite {
	return suite{
		name: name, packages: packages, prepare: prepare,
		cluster: func(dir, binary string) (map[string]result, error) {
			c, err := rig.NewCluster(binary, dir, 3)
			if err != nil {
				return nil, err
			}
			defer c.Close()
			if err := c.Start(); err != nil {
				return nil, err
			}
			if _, err := c.Nodes[0].Ctl("declare_queue", clusterQueue, "--arguments", `{"x-queue-type": "quorum"}`); err != nil {
				return nil, err
			}
			s, err := startSession(dir, append(argv(dir), clusterQueue, urlOf(c.Nodes[1]), urlOf(c.Nodes[2])))
			if err != nil {
				return nil, err
			}
			drove := drive(c, s)
			results, err := s.finish(drove != nil)
			if drove != nil {
				results["the cluster is driven to the end"] = result{fail, drove.Error()}
			}
			for _, n := range c.Nodes {
				if err := n.Stop(); err != nil {
					results["the nodes stop in order"] = result{fail, err.Error()}
				}
			}
			return results, err
		},
	}
}

func urlOf(n *rig.Node) string { return "amqp://guest:guest@" + n.Addr + "/%2F" }

// drive does to the cluster what happens to clusters, while the session publishes and consumes: the leader is killed, to which no client
// is connected; then the node of the publisher; then the one of the consumer is stopped.
func drive(c *rig.Cluster, s *liveSession) error {
	steps := []func() error{
		func() error { return c.Nodes[0].Kill() },
		func() error { return c.Nodes[0].Start() },
		func() error { return follow(c) },
		func() error { return s.say("mark") },
		func() error { return c.Nodes[1].Kill() },
		func() error { return c.Nodes[1].Start() },
		func() error { return follow(c) },
		func() error { return c.Nodes[2].Stop() },
		func() error { return c.Nodes[2].Start() },
		func() error { return follow(c) },
		func() error { return s.say("stop") },
	}
	for i, step := range steps {
		if i == 0 || i == 1 || i == 5 || i == 8 || i == 10 {
			if err := s.flows(); err != nil {
				return fmt.Errorf("before step %d: %w", i, err)
			}
		}
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// follow waits until every member of the queue has what the leader has at first.
func follow(c *rig.Cluster) error {
	var why string
	least := -1.0
	for end := time.Now().Add(stepBound); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		out, err := c.Nodes[0].Ctl("quorum_status", clusterQueue, "--formatter", "json")
		if err != nil {
			why = err.Error()
			continue
		}
		var rows []struct {
			Last any `json:"Last Log Index"`
		}
		if err := json.Unmarshal([]byte(out), &rows); err != nil {
			return err
		}
		if why = out; len(rows) != 3 {
			continue
		}
		low, high := -1.0, 0.0
		for _, r := range rows {
			n, _ := r.Last.(float64)
			if high = max(high, n); low < 0 || n < low {
				low = n
			}
		}
		if least < 0 {
			least = high
		}
		if low >= least && low > 0 {
			return nil
		}
	}
	return errors.New("the members do not follow: " + why)
}

// liveSession is a session that runs.
type liveSession struct {
	cmd       *exec.Cmd
	in        io.WriteCloser
	confirmed atomic.Int64
	lines     []byte // what it found; whole once read is closed
	read      chan struct{}
}

func startSession(dir string, argv []string) (*liveSession, error) {
	log, err := os.OpenFile(filepath.Join(dir, "output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s := &liveSession{cmd: rig.Command(argv[0], argv[1:]...), read: make(chan struct{})}
	s.cmd.Dir, s.cmd.Stderr = dir, log
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			line := lines.Text()
			if n, is := strings.CutPrefix(line, "confirmed "); is {
				if n, err := strconv.ParseInt(n, 10, 64); err == nil {
					s.confirmed.Store(n)
				}
				continue
			}
			s.lines = append(append(s.lines, line...), '\n')
		}
	}()
	return s, nil
}

func (s *liveSession) say(word string) error {
	_, err := io.WriteString(s.in, word+"\n")
	return err
}

// flows waits until the session has had some more publishes confirmed.
func (s *liveSession) flows() error {
	want := s.confirmed.Load() + stepCount
	for end := time.Now().Add(stepBound); s.confirmed.Load() < want; time.Sleep(10 * time.Millisecond) {
		select {
		case <-s.read:
			return errors.New("the session has ended")
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d publishes are confirmed, and no more within %v", s.confirmed.Load(), stepBound)
		}
	}
	return nil
}

// finish waits for the end of the session, or ends it.
func (s *liveSession) finish(now bool) (map[string]result, error) {
	if now {
		_ = s.cmd.Process.Signal(syscall.SIGKILL)
	}
	timer := time.AfterFunc(2*stepBound, func() { _ = s.cmd.Process.Kill() })
	defer timer.Stop()
	<-s.read
	err := s.cmd.Wait()
	return sessionResults(s.lines, err)
}
