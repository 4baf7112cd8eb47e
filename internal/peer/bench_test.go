package peer

import (
	"encoding/binary"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// counts is a handler that only counts.
type counts struct {
	up     chan struct{}
	n      atomic.Int64
	window int64
	some   chan struct{} // for every window of messages
}

func (c *counts) Message(_ NodeID, _ Lane, msg []byte) {
	if c.n.Add(1)%c.window == 0 {
		c.some <- struct{}{}
	}
}
func (c *counts) Up(NodeID, uint64, []byte) { close(c.up) }
func (*counts) Down(NodeID, error)          {}
func (*counts) Beat(NodeID, []byte)         {}
func (*counts) Suspect(NodeID)              {}
func (*counts) Writable(NodeID, Lane)       {}
func (*counts) Trust(NodeID)                {}
func (*counts) Call(Hello, []byte) []byte   { return nil }

func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func benchNode(b *testing.B, id NodeID) (*TCP, *counts, Target) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	c := &counts{window: 1, up: make(chan struct{}), some: make(chan struct{}, 1<<20)}
	n := Open(Options{Node: id, Addr: ln.Addr().String(), Listener: ln, Handler: c, Logger: slog.New(slog.DiscardHandler)})
	b.Cleanup(n.Close)
	return n, c, Target{ID: id, Addr: ln.Addr().String()}
}

// stream sends b.N messages in one direction and measures the processor time
// of both ends together.
func stream(b *testing.B, size, batch int) {
	x, cx, tx := benchNode(b, 1)
	y, cy, ty := benchNode(b, 2)
	x.SetPeers([]Target{ty})
	y.SetPeers([]Target{tx})
	cy.window = max(4, int64(1<<20/(size*batch))) // up to five are under way
	<-cx.up
	<-cy.up
	body := make([]byte, size)
	write := func(dst []byte) []byte {
		for range batch {
			dst = binary.LittleEndian.AppendUint64(dst, 1)
			dst = append(dst, body[8:]...)
		}
		return dst
	}
	b.SetBytes(int64(size * batch))
	b.ReportAllocs()
	before := cpu()
	b.ResetTimer()
	for i := range b.N {
		if !x.Send(2, Data, write) {
			b.Fatal("no room")
		}
		if i := int64(i); i >= 4*cy.window && i%cy.window == 0 {
			<-cy.some
		}
	}
	for cy.n.Load() < int64(b.N) {
		<-time.After(time.Millisecond)
	}
	b.ReportMetric(float64(cpu()-before)/float64(b.N*batch), "cpu-ns/msg")
}

func BenchmarkLoopback1KiB(b *testing.B)         { stream(b, 1<<10, 1) }
func BenchmarkLoopback100B(b *testing.B)         { stream(b, 100, 1) }
func BenchmarkLoopback1KiBByRounds(b *testing.B) { stream(b, 1<<10, 32) }
