package replica

import (
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/seglog"
)

var noRest = flag.Bool("raft.norest", false, "the benchmarks' groups do not rest")

// idleCluster is three nodes in one process with many groups, and a clock that only the benchmark moves.
type idleCluster struct {
	benchCluster
	clk *clock.Manual
}

func newIdleCluster(groups int) *idleCluster {
	c := &idleCluster{clk: clock.NewManual(testTime)}
	var list []Member
	for id := uint64(1); id <= 3; id++ {
		list = append(list, Member{ID: id, Node: id})
	}
	for id := uint64(1); id <= 3; id++ {
		n := Open(Options{
			Log: instantRaftLog{}, Reader: nothingToRead{}, Shards: 1, Logger: slog.New(slog.DiscardHandler), Clock: c.clk,
			NodeID: id, Transport: benchTransport{&c.benchCluster, id}, Rest: !*noRest,
		})
		for g := range groups {
			h := &plainRaft{}
			h.g = n.NewRaftGroup(seglog.GroupID(g+1), h, list)
			c.hosts = append(c.hosts, h)
		}
		c.nodes = append(c.nodes, n)
	}
	for _, n := range c.nodes {
		n.Prepare()
	}
	c.run()
	return c
}

// second lets a second pass.
func (c *idleCluster) second() {
	for range 10 {
		c.clk.Advance(100 * time.Millisecond)
		for _, n := range c.nodes {
			n.TickRaft()
		}
		c.run()
	}
}

func (c *idleCluster) led() (n int64) {
	for _, node := range c.nodes {
		n += node.leading.Load()
	}
	return n
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkRaftIdle is a second of three nodes with so many groups and nothing to do; an operation of 10 ms is one percent of a
// core, for all three nodes. What a member takes of memory is measured besides.
func BenchmarkRaftIdle(b *testing.B) {
	for _, groups := range []int{1000, 5000, 10000} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			before := heap()
			c := newIdleCluster(groups)
			for range 10 {
				c.second()
			}
			if c.led() != int64(groups) {
				b.Fatalf("%d of %d groups are led", c.led(), groups)
			}
			size := float64(heap()-before) / float64(3*groups)
			b.ReportAllocs()
			for b.Loop() {
				c.second()
			}
			b.ReportMetric(size, "B/member")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e7, "%core")
			runtime.KeepAlive(c)
		})
	}
}

// BenchmarkRaftNodeLost is what the loss of one of three nodes costs until all its groups are led again: the time in which
// both others, on one core, do all that is to be done, and the ticks of 100 ms that pass besides.
func BenchmarkRaftNodeLost(b *testing.B) {
	const groups = 5000
	ticks := 0
	for b.Loop() {
		b.StopTimer()
		c := newIdleCluster(groups)
		for range 10 {
			c.second()
		}
		lost := c.nodes[0]
		if lost.leading.Load() < groups/4 {
			b.Fatalf("the node leads %d groups", lost.leading.Load())
		}
		c.dead = 1
		led := func() int64 { return c.nodes[1].leading.Load() + c.nodes[2].leading.Load() }
		b.StartTimer()
		for _, n := range c.nodes[1:] {
			n.PeerDown(1)
		}
		c.run()
		for led() < groups {
			ticks++
			c.clk.Advance(100 * time.Millisecond)
			for _, n := range c.nodes[1:] {
				n.TickRaft()
			}
			c.run()
		}
	}
	b.ReportMetric(float64(ticks)/float64(b.N), "ticks/op")
}
