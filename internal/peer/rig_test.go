package peer

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/clock"
)

// patience is how long a test waits for what must come. Nothing is measured by it.
const patience = 60 * time.Second

// board is where everything that happens in a test is noted, and awaited.
type board struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced with every change
}

func newBoard() *board { return &board{changed: make(chan struct{})} }

// note changes something that others may wait for.
func (b *board) note(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
	close(b.changed)
	b.changed = make(chan struct{})
}

// holds says whether something is so.
func (b *board) holds(cond func() bool) (bool, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return cond(), b.changed
}

// await waits until something is so.
func (b *board) await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		ok, changed := b.holds(cond)
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			t.Fatalf("never: %s", what)
		}
	}
}

// life is one link's life as a handler saw it.
type life struct {
	incarnation uint64
	info        string
	messages    [Lanes][]uint64
	ended       bool
	why         error
}

// hears is a handler that notes everything and checks the rules of Handler.
type hears struct {
	*board
	t     *testing.T
	name  string
	lives map[NodeID][]*life
	beats map[NodeID][]string
	doubt map[NodeID]bool
	room  map[NodeID][Lanes]int // how often Writable came
	after func(NodeID, Lane)    // called by Writable, without the board; nil: nothing
	said  []string              // in order, without messages and beats
	order []string              // messages too; for comparing courses
}

func newHears(t *testing.T, b *board, name string) *hears {
	return &hears{board: b, t: t, name: name, lives: map[NodeID][]*life{}, beats: map[NodeID][]string{}, doubt: map[NodeID]bool{}, room: map[NodeID][Lanes]int{}}
}

func (h *hears) last(n NodeID) *life {
	if l := h.lives[n]; len(l) > 0 {
		return l[len(l)-1]
	}
	return nil
}

func (h *hears) isUp(n NodeID) bool { return h.last(n) != nil && !h.last(n).ended }

func (h *hears) say(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	h.said, h.order = append(h.said, s), append(h.order, s)
}

func (h *hears) Message(from NodeID, l Lane, msg []byte) {
	h.note(func() {
		if !h.isUp(from) {
			h.t.Errorf("%s: a message of %d without a link", h.name, from)
			return
		}
		if len(msg) < 8 {
			h.t.Errorf("%s: a message of %d bytes", h.name, len(msg))
			return
		}
		n := binary.LittleEndian.Uint64(msg)
		if !bytes.Equal(msg, numbered(n, len(msg))(nil)) {
			h.t.Errorf("%s: message %d is not what was sent", h.name, n)
		}
		h.last(from).messages[l] = append(h.last(from).messages[l], n)
		h.order = append(h.order, fmt.Sprint(from, l, n))
	})
}

func (h *hears) Up(n NodeID, incarnation uint64, info []byte) {
	h.note(func() {
		if h.isUp(n) {
			h.t.Errorf("%s: %d is up twice", h.name, n)
		}
		h.lives[n] = append(h.lives[n], &life{incarnation: incarnation, info: string(info)})
		h.say("up %d", n)
	})
}

func (h *hears) Down(n NodeID, why error) {
	h.note(func() {
		if !h.isUp(n) {
			h.t.Errorf("%s: %d is down without a link", h.name, n)
			return
		}
		if why == nil {
			h.t.Errorf("%s: %d is down without a reason", h.name, n)
		}
		h.last(n).ended, h.last(n).why = true, why
		h.say("down %d", n)
	})
}

func (h *hears) Writable(n NodeID, l Lane) {
	h.note(func() {
		if !h.isUp(n) {
			h.t.Errorf("%s: room for %d without a link", h.name, n)
		}
		room := h.room[n]
		room[l]++
		h.room[n] = room
		h.order = append(h.order, fmt.Sprint("room ", n, l))
	})
	if h.after != nil {
		h.after(n, l)
	}
}

func (h *hears) Beat(from NodeID, payload []byte) {
	h.note(func() {
		if !h.isUp(from) {
			h.t.Errorf("%s: a heartbeat of %d without a link", h.name, from)
		}
		h.beats[from] = append(h.beats[from], string(payload))
	})
}

func (h *hears) Suspect(n NodeID) {
	h.note(func() {
		if h.doubt[n] {
			h.t.Errorf("%s: %d is suspect twice", h.name, n)
		}
		h.doubt[n] = true
		h.say("suspect %d", n)
	})
}

func (h *hears) Trust(n NodeID) {
	h.note(func() {
		if !h.doubt[n] {
			h.t.Errorf("%s: %d is trusted twice", h.name, n)
		}
		h.doubt[n] = false
		h.say("trust %d", n)
	})
}

func (h *hears) Call(from Hello, msg []byte) []byte {
	return fmt.Appendf(nil, "%s heard %q from %s", h.name, msg, from.Name)
}

// numbered is a message with a number and more bytes that follow from it.
func numbered(n uint64, size int) func([]byte) []byte {
	return func(dst []byte) []byte {
		dst = binary.LittleEndian.AppendUint64(dst, n)
		for i := 8; i < size; i++ {
			dst = append(dst, byte(n)+byte(i))
		}
		return dst
	}
}

// upTo is the numbers 0 to n-1.
func upTo(n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = uint64(i)
	}
	return out
}

// logged is a slog.Handler that keeps its lines.
type logged struct {
	*board
	lines []string
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }
func (l *logged) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logged) WithGroup(string) slog.Handler            { return l }
func (l *logged) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	l.note(func() { l.lines = append(l.lines, line) })
	return nil
}

// has says whether a line has all of these texts; the board is held.
func (l *logged) has(texts ...string) bool {
	return slices.ContainsFunc(l.lines, func(line string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) })
	})
}

// tcpNode is a node of a test with TCP links.
type tcpNode struct {
	*TCP
	hears *hears
	log   *logged
	addr  string
}

// startTCP starts a node; change may alter its options.
func startTCP(t *testing.T, b *board, id NodeID, change func(*Options)) *tcpNode {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &tcpNode{hears: newHears(t, b, fmt.Sprint("n", id)), log: &logged{board: b}, addr: ln.Addr().String()}
	o := Options{
		Node: id, Incarnation: 1, Name: fmt.Sprint("n", id), Addr: n.addr, Info: fmt.Append(nil, "info of ", id), Handler: n.hears,
		Listener: ln, Logger: slog.New(n.log), Clock: ticksByHand(),
		Stall: patience, Greet: patience, BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond,
	}
	if change != nil {
		change(&o)
	}
	n.TCP = Open(o)
	t.Cleanup(n.Close)
	return n
}

// handClock is the system's clock for waits, but its monotonic time moves by
// hand and its ticks never come, so that a test steps the pulse.
type handClock struct {
	clock.Clock
	m *clock.Manual
}

func ticksByHand() handClock { return handClock{clock.System(), clock.NewManual(time.Unix(0, 0))} }

func (c handClock) Mono() int64 { return c.m.Mono() }

func (c handClock) NewTicker(d time.Duration) clock.Ticker {
	return clock.NewManual(time.Unix(0, 0)).NewTicker(d)
}

// steps moves the node's clock and steps its pulse.
func (n *tcpNode) steps(d time.Duration) {
	n.o.Clock.(handClock).m.Advance(d)
	n.step()
}

func (n *tcpNode) target() Target { return Target{ID: n.o.Node, Addr: n.addr} }

// connect makes nodes peers of each other.
func connect(t *testing.T, nodes ...*tcpNode) {
	t.Helper()
	var list []Target
	for _, n := range nodes {
		list = append(list, n.target())
	}
	for _, n := range nodes {
		n.SetPeers(list)
	}
	for i, n := range nodes {
		n.awaitUp(t, 1, slices.Delete(slices.Clone(nodes), i, i+1)...)
	}
}

// The following are for conditions: the board is held.

func (n *tcpNode) isUp(other *tcpNode) bool            { return n.hears.isUp(other.o.Node) }
func (n *tcpNode) lives(other *tcpNode) []*life        { return n.hears.lives[other.o.Node] }
func (n *tcpNode) got(other *tcpNode, l Lane) []uint64 { return n.hears.last(other.o.Node).messages[l] }

// awaitUp waits until the m-th link to each of the others is up, or has been.
func (n *tcpNode) awaitUp(t *testing.T, m int, others ...*tcpNode) {
	t.Helper()
	for _, other := range others {
		n.hears.await(t, fmt.Sprintf("link %d of %s to %s", m, n.hears.name, other.hears.name), func() bool {
			return len(n.lives(other)) >= m
		})
	}
}

// awaitDown waits until the m-th link to another node has ended, and returns why.
func (n *tcpNode) awaitDown(t *testing.T, m int, other *tcpNode) (why error) {
	t.Helper()
	n.hears.await(t, fmt.Sprintf("the end of link %d of %s to %s", m, n.hears.name, other.hears.name), func() bool {
		l := n.lives(other)
		if len(l) < m || !l[m-1].ended {
			return false
		}
		why = l[m-1].why
		return true
	})
	return why
}

// awaitLog waits for a line that has all of these texts.
func (n *tcpNode) awaitLog(t *testing.T, texts ...string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			n.hears.holds(func() bool {
				t.Logf("%s has written:\n%s", n.hears.name, strings.Join(n.log.lines, "\n"))
				return true
			})
		}
	}()
	n.hears.await(t, fmt.Sprintf("a line of %s with %q", n.hears.name, texts), func() bool { return n.log.has(texts...) })
}
