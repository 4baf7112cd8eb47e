package devcluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// node is one process, again and again.
type node struct {
	name, address string // address: for clients
	folder        string // its data folder
	program       string
	arguments     []string
	out           *paper

	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended and all it printed is written
	ended  error         // how, once exited is closed
}

// paper is where all lines go, whole and one at a time.
type paper struct {
	mu sync.Mutex
	to io.Writer
}

func (p *paper) write(line []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.to.Write(line) // nobody is there to be told
}

func (p *paper) say(format string, args ...any) { p.write(fmt.Appendf(nil, format+"\n", args...)) }

// column writes what a process prints with its name before each line.
type column struct {
	paper  *paper
	prefix string
	mu     sync.Mutex // the process has two streams
	rest   []byte     // a line that is not whole yet
}

// longestLine is cut in two: memory is not for a process that prints no end of line.
const longestLine = 64 << 10

// Write takes a piece of what the process prints.
func (c *column) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest = append(c.rest, b...)
	for {
		n := bytes.IndexByte(c.rest, '\n')
		if n < 0 && len(c.rest) < longestLine {
			return len(b), nil
		}
		line := c.rest
		if n >= 0 {
			line = c.rest[:n]
		}
		c.paper.write(fmt.Appendf(nil, "%s%s\n", c.prefix, line))
		c.rest = append(c.rest[:0], c.rest[min(len(line)+1, len(c.rest)):]...)
	}
}

// finish writes what has no end of line.
func (c *column) finish() {
	if len(c.rest) > 0 {
		_, _ = c.Write([]byte{'\n'})
	}
}

// start runs the process.
func (n *node) start() error {
	out := &column{paper: n.out, prefix: n.name + " | "}
	cmd := exec.Command(n.program, n.arguments...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = ofItsOwn()
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	n.cmd, n.exited, n.ended = cmd, exited, nil
	go func() {
		err := cmd.Wait()
		out.finish()
		n.ended = err
		close(exited)
	}()
	return nil
}

func (n *node) pid() int { return n.cmd.Process.Pid }

func (n *node) runs() bool {
	if n.exited == nil {
		return false
	}
	select {
	case <-n.exited:
		return false
	default:
		return true
	}
}

// how says how the process ended.
func (n *node) how() string {
	if n.ended == nil {
		return "exit status 0"
	}
	return n.ended.Error()
}

// readyEvery is how often a node that starts is tried.
const readyEvery = 20 * time.Millisecond

// ready waits until clients are served; false: the process has ended, or ctx has. A node for which that takes longer than
// patience is asked why, now and then: waits is told what it says, whenever that is something new.
func (n *node) ready(ctx context.Context, exited <-chan struct{}, patience time.Duration, waits func(why string)) bool {
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	ask := time.NewTicker(patience)
	defer ask.Stop()
	said := ""
	for {
		if c, err := net.DialTimeout("tcp", n.address, time.Second); err == nil {
			c.Close()
			return true
		}
		select {
		case <-tick.C:
		case <-ask.C:
			if why := n.why(ctx); why != "" && why != said {
				said = why
				waits(why)
			}
		case <-exited:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// why asks a node that does not serve for the reason, the way a user would; "" if it serves, or says nothing.
func (n *node) why(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, n.program, "ctl", "--data", n.folder, "ping")
	cmd.Stderr = &said
	if cmd.Run() == nil || ctx.Err() != nil {
		return ""
	}
	return strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(said.String()), "Error:"))
}

// askWait bounds a question to a node.
const askWait = 10 * time.Second

// signal does nothing to a process that has ended.
func (n *node) signal(s syscall.Signal) {
	if n.runs() {
		_ = n.cmd.Process.Signal(s)
	}
}
