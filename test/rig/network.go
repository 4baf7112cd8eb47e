package rig

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Way is how bytes travel from one node to another. The zero value passes them on as they come.
type Way struct {
	Held  bool          // they wait, and so do ends of connections: as on a line that is dead without a word
	Cut   bool          // connections that use it are reset, and new ones are, too
	Delay time.Duration // each byte arrives so much later
	Rate  int           // bytes per second at most; 0: any number
}

// Network is what lies between nodes: everything they send each other goes through a proxy in front of the one that is
// dialled, which knows the one that dials by the name in its greeting. Its methods may be called by any goroutine.
type Network struct {
	mu      sync.Mutex
	ways    map[[2]string]Way
	changed chan struct{} // closed at the next change
	lines   map[*line]bool
	fronts  []net.Listener
	closed  bool
}

// NewNetwork is a network in which all is well.
func NewNetwork() *Network {
	return &Network{ways: map[[2]string]Way{}, changed: make(chan struct{}), lines: map[*line]bool{}}
}

// Front opens the address at which others reach the node of this name, which listens at target.
func (n *Network) Front(name, target string) (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	n.fronts = append(n.fronts, l)
	n.mu.Unlock()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go n.serve(conn.(*net.TCPConn), name, target)
		}
	}()
	return l.Addr().String(), nil
}

// Set says how bytes travel from one node to another, from now on.
func (n *Network) Set(from, to string, w Way) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ways[[2]string{from, to}] = w
	n.turn()
}

// Between sets both directions.
func (n *Network) Between(a, b string, w Way) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ways[[2]string{a, b}], n.ways[[2]string{b, a}] = w, w
	n.turn()
}

// Heal makes all well again: what was held goes on.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.ways)
	n.turn()
}

// turn makes a change known. mu is held.
func (n *Network) turn() {
	close(n.changed)
	n.changed = make(chan struct{})
	for l := range n.lines {
		if n.ways[[2]string{l.from, l.to}].Cut || n.ways[[2]string{l.to, l.from}].Cut {
			l.reset()
		}
	}
}

// Close ends all connections and closes the fronts.
func (n *Network) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for _, l := range n.fronts {
		l.Close()
	}
	for l := range n.lines {
		l.reset()
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

// way is how bytes travel now, and what is closed when that changes.
func (n *Network) way(from, to string) (Way, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ways[[2]string{from, to}], n.changed
}

// line is one connection from a node to another.
type line struct {
	from, to string
	ends     [2]*net.TCPConn // of the side that dialled, of the other one
	over     chan struct{}
	once     sync.Once
}

// reset ends both sides at once.
func (l *line) reset() {
	l.once.Do(func() {
		close(l.over)
		for _, c := range l.ends {
			_ = c.SetLinger(0)
			c.Close()
		}
	})
}

// serve passes the bytes of a connection to a node and back.
func (n *Network) serve(dialled *net.TCPConn, to, target string) {
	first, from, err := greeting(dialled)
	if err != nil {
		dialled.Close()
		return
	}
	conn, err := net.DialTimeout("tcp", target, 2*time.Second)
	if err != nil {
		_ = dialled.SetLinger(0)
		dialled.Close()
		return
	}
	l := &line{from: from, to: to, ends: [2]*net.TCPConn{dialled, conn.(*net.TCPConn)}, over: make(chan struct{})}
	n.mu.Lock()
	n.lines[l] = true
	if n.closed || n.ways[[2]string{from, to}].Cut || n.ways[[2]string{to, from}].Cut {
		l.reset()
	}
	n.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { n.pass(l, from, to, l.ends[0], l.ends[1], first) })
	both.Go(func() { n.pass(l, to, from, l.ends[1], l.ends[0], nil) })
	both.Wait()
	l.ends[0].Close()
	l.ends[1].Close()
	n.mu.Lock()
	delete(n.lines, l)
	n.mu.Unlock()
}

// greeting reads the first message of a node that dials and finds its name in it. The message is drawn in
// internal/peer/hello.go.
func greeting(conn net.Conn) (raw []byte, name string, err error) {
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	defer conn.SetReadDeadline(time.Time{})
	const head, before = 16, 2 + 16 + 4*8 + 32
	raw = make([]byte, head, 512)
	if _, err := io.ReadFull(conn, raw); err != nil {
		return nil, "", err
	}
	size := binary.LittleEndian.Uint32(raw[12:])
	if string(raw[:6]) != "hfpeer" || size < before+2 || size > 64<<10 {
		return nil, "", errors.New("it is no node that dials")
	}
	raw = append(raw, make([]byte, size)...)
	if _, err := io.ReadFull(conn, raw[head:]); err != nil {
		return nil, "", err
	}
	rest := raw[head+before:]
	n := int(binary.LittleEndian.Uint16(rest))
	if n > len(rest)-2 {
		return nil, "", errors.New("the name in the greeting is cut off")
	}
	return raw, string(rest[2 : 2+n]), nil
}

// piece is bytes under way, or (nil) the end of them.
type piece struct {
	bytes []byte
	came  time.Time
}

// pass carries the bytes of one direction, each when it is due, until the connection ends.
func (n *Network) pass(l *line, from, to string, src, dst *net.TCPConn, first []byte) {
	under := make(chan piece, 64)
	go func() {
		defer close(under)
		put := func(p piece) bool {
			select {
			case under <- p:
				return true
			case <-l.over:
				return false
			}
		}
		if first != nil && !put(piece{first, time.Now()}) {
			return
		}
		for {
			buf := make([]byte, 32<<10)
			k, err := src.Read(buf)
			if k > 0 && !put(piece{buf[:k], time.Now()}) {
				return
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() {
		for range under { // so that the reader ends
		}
	}()
	for p := range under {
		if !n.due(l, from, to, p) {
			return
		}
		if _, err := dst.Write(p.bytes); err != nil {
			l.reset()
			return
		}
	}
	if n.due(l, from, to, piece{came: time.Now()}) {
		_ = dst.CloseWrite()
	}
}

// due waits until a piece may go on; false: the line is over.
func (n *Network) due(l *line, from, to string, p piece) bool {
	for {
		w, changed := n.way(from, to)
		wait := max(0, time.Until(p.came.Add(w.Delay)))
		if w.Rate > 0 { // pieces go one after the other, so each has the line for itself
			wait += time.Duration(len(p.bytes)) * time.Second / time.Duration(w.Rate)
		}
		if !w.Held && wait <= 0 {
			return true
		}
		var timer <-chan time.Time
		if !w.Held {
			timer = time.After(wait)
		}
		select {
		case <-timer:
			return true
		case <-changed:
		case <-l.over:
			return false
		}
	}
}
