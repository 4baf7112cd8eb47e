package harness

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// relays stand between the nodes of a cluster, one for each node that dials and
// each that is dialled, on loopback addresses of their own. They can hold up what
// goes to and from the first node, as a cable does that is pulled: nothing is
// closed, nothing passes.
type relays struct {
	names []string // of the nodes, as addresses
	pipe  string   // where commands are written
	all   []net.Listener

	mu    sync.Mutex
	moved sync.Cond
	held  bool
	ended bool
	conns map[net.Conn]bool
}

// newRelays makes relays for nodes that listen at these addresses, and gives the
// names by which they know each other.
func newRelays(dir string, addrs []string) (*relays, []string, error) {
	r := &relays{pipe: filepath.Join(dir, "links"), conns: map[net.Conn]bool{}}
	r.moved.L = &r.mu
	var between []string
	for n, addr := range addrs {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, nil, err
		}
		r.names = append(r.names, fmt.Sprint("bench-node", n+1))
		between = append(between, net.JoinHostPort(r.names[n], port))
	}
	for from := range addrs {
		for to := range addrs {
			if from == to {
				continue
			}
			_, port, _ := net.SplitHostPort(addrs[to])
			l, err := net.Listen("tcp", net.JoinHostPort(relayHost(from, to), port))
			if err != nil {
				r.close()
				return nil, nil, err
			}
			r.all = append(r.all, l)
			go r.accept(l, addrs[to], from == 0 || to == 0)
		}
	}
	if err := syscall.Mkfifo(r.pipe, 0o600); err != nil {
		r.close()
		return nil, nil, err
	}
	pipe, err := os.OpenFile(r.pipe, os.O_RDWR, 0) // there is always a writer, so that reading does not end
	if err != nil {
		r.close()
		return nil, nil, err
	}
	go r.listen(pipe)
	return r, between, nil
}

// relayHost is where one node reaches another.
func relayHost(from, to int) string { return fmt.Sprintf("127.0.%d.%d", 101+from, 101+to) }

// hosts is what node n finds the others by.
func (r *relays) hosts(n int) string {
	text := "127.0.0.1 localhost\n"
	for to, name := range r.names {
		host := "127.0.0.1"
		if to != n {
			host = relayHost(n, to)
		}
		text += host + " " + name + "\n"
	}
	return text
}

// command is what a shell runs to have something done.
func (r *relays) command(what string) string { return "echo " + what + " >" + r.pipe }

// listen does what is written into the pipe.
func (r *relays) listen(pipe *os.File) {
	defer pipe.Close()
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		switch strings.TrimSpace(lines.Text()) {
		case "cut":
			r.hold(true)
		case "mend":
			r.hold(false)
		case "end":
			return
		}
	}
}

func (r *relays) hold(held bool) {
	r.mu.Lock()
	r.held = held
	r.moved.Broadcast()
	r.mu.Unlock()
}

// pass waits while the first node's links are held up; false: it is over.
func (r *relays) pass(first bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for first && r.held && !r.ended {
		r.moved.Wait()
	}
	return !r.ended
}

func (r *relays) accept(l net.Listener, to string, first bool) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go r.serve(in, to, first)
	}
}

// serve carries one connection's bytes both ways.
func (r *relays) serve(in net.Conn, to string, first bool) {
	defer in.Close()
	if !r.pass(first) {
		return
	}
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	r.mu.Lock()
	r.conns[in], r.conns[out] = true, true
	r.mu.Unlock()
	var both sync.WaitGroup
	carry := func(to, from net.Conn) {
		defer to.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if !r.pass(first) {
				return
			}
			if n > 0 {
				if _, err := to.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	both.Go(func() { carry(out, in) })
	both.Go(func() { carry(in, out) })
	both.Wait()
	r.mu.Lock()
	delete(r.conns, in)
	delete(r.conns, out)
	r.mu.Unlock()
}

func (r *relays) close() {
	for _, l := range r.all {
		l.Close()
	}
	r.mu.Lock()
	r.ended = true
	r.moved.Broadcast()
	for c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	if pipe, err := os.OpenFile(r.pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
		fmt.Fprintln(pipe, "end")
		pipe.Close()
	}
}
