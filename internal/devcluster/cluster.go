package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Options say what to run.
type Options struct {
	Program  string // the binary of the nodes
	Called   string // how a user calls it, for commands to be pasted
	Folder   string // of the cluster: data folders, secret; made if it is not there
	BasePort int    // 0: as before, or DefaultBasePort
	Restart  bool   // nodes that end are started again
	Out      io.Writer
	// Force ends the nodes at once when it is closed while they are being stopped.
	Force <-chan struct{}

	patience time.Duration // before a node that does not serve is asked why; 0: askWhyAfter
}

// How long a node may take to stop, and how long to wait before one that ended is started again: twice as long each time
// it did not live for a while.
const (
	stopWait       = 30 * time.Second
	restartWait    = time.Second
	restartWaitMax = 30 * time.Second
	livedWell      = time.Minute
)

// askWhyAfter is how long a node that was started may serve nobody before it is asked why; so often it is asked again.
const askWhyAfter = 3 * time.Second

// cluster is three nodes that run.
type cluster struct {
	o      Options
	plan   plan
	out    *paper
	nodes  [size]*node
	events chan event
	waits  [size]time.Duration // before the next restart
	since  [size]time.Time     // of the last start
}

// event is what happened to a node.
type event struct {
	node int
	kind eventKind
	text string // of nodeWaits: why it does not serve
}

type eventKind uint8

const (
	nodeReady eventKind = iota
	nodeEnded
	nodeDue   // to be started again
	nodeWaits // it runs, and does not serve
)

var errStopped = errors.New("it was stopped before all nodes were up")

// Run starts the cluster and runs it until ctx ends; then it stops the nodes, one after the other.
func Run(ctx context.Context, o Options) error {
	p, err := prepare(o.Folder, o.BasePort)
	if err != nil {
		return err
	}
	c := &cluster{o: o, plan: p, out: &paper{to: o.Out}, events: make(chan event)}
	if c.o.patience == 0 {
		c.o.patience = askWhyAfter
	}
	for i := range c.nodes {
		c.nodes[i] = &node{name: nodeName(i), address: p.clients(i), folder: filepath.Join(o.Folder, nodeName(i)), program: o.Program, arguments: p.arguments(o.Folder, i), out: c.out}
	}
	inner, cancel := context.WithCancel(context.Background())
	defer cancel()
	err = c.run(ctx, inner)
	return errors.Join(err, c.stop())
}

// run runs the nodes until ctx ends or none is left. inner ends with the cluster.
func (c *cluster) run(ctx, inner context.Context) error {
	for i := range c.nodes {
		if err := c.start(inner, i); err != nil {
			return err
		}
	}
	ready, told := [size]bool{}, false
	for {
		select {
		case <-ctx.Done():
			if !told {
				return errStopped
			}
			return nil
		case e := <-c.events:
			n := c.nodes[e.node]
			switch e.kind {
			case nodeReady:
				ready[e.node] = true
				switch {
				case told:
					c.out.say("%s is back: pid %d", n.name, n.pid())
				case ready == [size]bool{true, true, true}:
					told = true
					c.tell()
				}
			case nodeEnded:
				ready[e.node] = false
				if !told {
					return fmt.Errorf("%s ended while it started: %s", n.name, n.how())
				}
				if err := c.lost(inner, e.node); err != nil {
					return err
				}
			case nodeWaits:
				c.out.say("%s runs and does not serve: %s", n.name, e.text)
			case nodeDue:
				if err := c.start(inner, e.node); err != nil {
					return err
				}
			}
		}
	}
}

// start starts a node and has its further course told.
func (c *cluster) start(inner context.Context, i int) error {
	n := c.nodes[i]
	if err := n.start(); err != nil {
		return fmt.Errorf("%s cannot be started: %w", n.name, err)
	}
	c.since[i] = time.Now()
	exited := n.exited
	go func() {
		waits := func(text string) { c.put(inner, event{i, nodeWaits, text}) }
		if n.ready(inner, exited, c.o.patience, waits) {
			c.put(inner, event{i, nodeReady, ""})
		}
		select {
		case <-exited:
			c.put(inner, event{i, nodeEnded, ""})
		case <-inner.Done():
		}
	}()
	return nil
}

func (c *cluster) put(inner context.Context, e event) {
	select {
	case c.events <- e:
	case <-inner.Done():
	}
}

// lost says that a node has ended, and starts it again where that was asked for.
func (c *cluster) lost(inner context.Context, i int) error {
	n := c.nodes[i]
	if !c.o.Restart {
		left := 0
		for _, other := range c.nodes {
			if other.runs() {
				left++
			}
		}
		c.out.say("%s has ended: %s; %d of %d nodes run. To have it back, in another terminal:\n  %s %s",
			n.name, n.how(), left, size, c.o.Called, strings.Join(n.arguments, " "))
		if left == 0 {
			return errors.New("all nodes have ended")
		}
		return nil
	}
	if c.waits[i] = min(2*c.waits[i], restartWaitMax); c.waits[i] == 0 || time.Since(c.since[i]) > livedWell {
		c.waits[i] = restartWait
	}
	c.out.say("%s has ended: %s; it is started again in %v", n.name, n.how(), c.waits[i])
	wait := time.NewTimer(c.waits[i])
	go func() {
		defer wait.Stop()
		select {
		case <-wait.C:
			c.put(inner, event{i, nodeDue, ""})
		case <-inner.Done():
		}
	}()
	return nil
}

// tell says where the nodes are and what to do with them.
func (c *cluster) tell() {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	folder := func(i int) string { return filepath.Join(c.o.Folder, nodeName(i)) }
	line("")
	line("A cluster of three nodes is running.")
	line("")
	for i, n := range c.nodes {
		line("  %s  amqp://guest:guest@%s  http://%s/metrics  pid %d  data %s", n.name, n.address, c.plan.http(i), n.pid(), folder(i))
	}
	line("")
	line("To try:")
	line("  %s ctl --data %s cluster_status", c.o.Called, folder(0))
	line("  %s ctl --data %s publish --declare greetings 'hello from n1'", c.o.Called, folder(0))
	line("  %s ctl --data %s get greetings", c.o.Called, folder(2))
	line("  %s perf -h %s,%s,%s -z 10", c.o.Called, c.nodes[0].address, c.nodes[1].address, c.nodes[2].address)
	line("  kill -9 %d    # %s is gone; the others go on", c.nodes[1].pid(), c.nodes[1].name)
	line("")
	line("Ctrl-C stops all three; the same command starts them again with what they hold.")
	line("")
	c.out.write([]byte(b.String()))
}

// stop stops the nodes that run, the last one first.
func (c *cluster) stop() (err error) {
	patience := stopWait
	for i := size - 1; i >= 0; i-- {
		n := c.nodes[i]
		if !n.runs() {
			continue
		}
		c.out.say("stopping %s", n.name)
		n.signal(syscall.SIGTERM)
		wait := time.NewTimer(patience)
		select {
		case <-n.exited:
		case <-c.o.Force:
			patience = 0
			n.signal(syscall.SIGKILL)
			<-n.exited
		case <-wait.C:
			n.signal(syscall.SIGKILL)
			<-n.exited
		}
		wait.Stop()
		if n.ended != nil {
			err = errors.Join(err, fmt.Errorf("%s did not stop in an orderly way: %s", n.name, n.how()))
		}
	}
	c.out.say("all nodes have ended")
	return err
}
