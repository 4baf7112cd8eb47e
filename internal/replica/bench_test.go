package replica

import (
	"fmt"
	"log/slog"
	"testing"

	"holdfast/internal/seglog"
)

// plain is a host that packs as many commands of a few bytes as it was given,
// each with an item for the log, and keeps nothing.
type plain struct {
	g       *Group
	pending int
	item    []byte
	next    uint64
	applied int
	stable  uint64
}

func (p *plain) Pack(e *Entry) bool {
	for range p.pending {
		p.next++
		if e.Logged {
			e.Meta = append(e.Meta, 1, 0, 0, 0)
			e.Item(p.next, p.item)
		}
	}
	p.pending = 0
	e.Sync = true
	e.Pack()
	return false
}

func (p *plain) Apply(*Entry)                                 { p.applied++ }
func (p *plain) Stable(index uint64)                          { p.stable = index }
func (p *plain) Overdue(uint64)                               {}
func (p *plain) Failed(error)                                 {}
func (p *plain) Replay(seglog.Replayed) error                 { return nil }
func (p *plain) Restore([]byte) error                         { return nil }
func (p *plain) AppendSnapshot(dst []byte) []byte             { return append(dst, 1) }
func (p *plain) Live(d []seglog.Range) ([]seglog.Range, bool) { return d, true }
func (p *plain) Recover(bool) bool                            { return false }

// instantLog writes nothing, and a batch is stable as soon as it was appended.
type instantLog struct{}

func (instantLog) Append(b *seglog.Batch)                        { b.Stable(b) }
func (instantLog) Replay(func(seglog.Replayed) error) error      { return nil }
func (instantLog) Clean() bool                                   { return true }
func (instantLog) Start()                                        {}
func (instantLog) SetLive(seglog.GroupID, []seglog.Range) uint64 { return 0 }

// BenchmarkRound is a round of a shard: so many groups are woken, each with so
// many commands of a 1 KiB item, packed into an entry a group, handed to a log
// that does nothing, applied, and told to be stable in the next round.
func BenchmarkRound(b *testing.B) {
	for _, logged := range []bool{false, true} {
		for _, c := range []struct{ groups, messages int }{{1, 1}, {1, 100}, {100, 1}, {100, 100}, {1000, 1}} {
			b.Run(fmt.Sprintf("%s/groups=%d/messages=%d", map[bool]string{false: "direct", true: "solo"}[logged], c.groups, c.messages), func(b *testing.B) {
				n := Open(Options{Log: instantLog{}, Shards: 1, Logger: slog.New(slog.DiscardHandler)})
				item := make([]byte, 1024)
				hosts := make([]*plain, c.groups)
				for i := range hosts {
					hosts[i] = &plain{item: item}
					hosts[i].g = n.NewGroup(seglog.GroupID(i+1), hosts[i], logged)
				}
				s := n.Shard(0)
				b.ReportAllocs()
				for b.Loop() {
					for _, h := range hosts {
						h.pending = c.messages
						h.g.Wake()
					}
					s.Step()
				}
				s.Step()
				if logged && hosts[0].stable != uint64(hosts[0].applied) {
					b.Fatalf("%d entries were applied, %d are stable", hosts[0].applied, hosts[0].stable)
				}
				b.ReportMetric(float64(c.groups*c.messages), "msg/op")
			})
		}
	}
}

// BenchmarkRaftEntry is an entry of a group with three members in one process: packed,
// encoded, sent, decoded, written to logs that do nothing, committed and applied on all.
func BenchmarkRaftEntry(b *testing.B) {
	for _, messages := range []int{1, 32, 256} {
		b.Run(fmt.Sprintf("messages=%d", messages), func(b *testing.B) {
			c := &benchCluster{}
			item := make([]byte, 1024)
			var list []Member
			for id := uint64(1); id <= 3; id++ {
				list = append(list, Member{ID: id, Node: id})
			}
			for id := uint64(1); id <= 3; id++ {
				n := Open(Options{
					Log: instantRaftLog{}, Reader: nothingToRead{}, Shards: 1, Logger: slog.New(slog.DiscardHandler),
					NodeID: id, Transport: benchTransport{c, id},
				})
				h := &plainRaft{plain: plain{item: item}}
				h.g = n.NewRaftGroup(1, h, list)
				n.Prepare()
				c.nodes, c.hosts = append(c.nodes, n), append(c.hosts, h)
			}
			for c.lead() == nil {
				c.run()
			}
			l := c.lead()
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				l.pending = messages
				l.g.Wake()
				c.run()
			}
			b.StopTimer()
			for _, h := range c.hosts {
				if h.applied != b.N {
					b.Fatalf("%d entries of %d were applied", h.applied, b.N)
				}
			}
			b.ReportMetric(float64(messages), "msg/op")
		})
	}
}

type benchCluster struct {
	nodes []*Node
	hosts []*plainRaft
	queue []benchMessage
	dead  uint64 // a node that does nothing
}

type benchMessage struct {
	from, to uint64
	msg      []byte
}

func (c *benchCluster) run() {
	for again := true; again; {
		again = false
		for _, n := range c.nodes {
			for n.o.NodeID != c.dead && n.Shard(0).Step() {
				again = true
			}
		}
		q := c.queue
		c.queue = nil
		for _, m := range q {
			if m.to == c.dead {
				continue
			}
			c.nodes[m.to-1].Receive(m.from, m.msg)
		}
	}
}

func (c *benchCluster) lead() *plainRaft {
	for _, h := range c.hosts {
		if h.serving {
			return h
		}
	}
	return nil
}

type benchTransport struct {
	c  *benchCluster
	id uint64
}

func (t benchTransport) Send(to uint64, _ Lane, add func([]byte) []byte) bool {
	t.c.queue = append(t.c.queue, benchMessage{t.id, to, add(nil)})
	return true
}

// plainRaft is plain as a member of a group.
type plainRaft struct {
	plain
	serving bool
}

func (p *plainRaft) Pack(e *Entry) bool {
	if p.pending == 0 {
		return false
	}
	return p.plain.Pack(e)
}

func (p *plainRaft) ApplyForeign(*Entry, []byte, []seglog.Range, [][]byte) { p.applied++ }
func (p *plainRaft) Abandoned()                                            {}
func (p *plainRaft) Role(_, _ uint64, serving bool)                        { p.serving = serving }

type instantRaftLog struct{ instantLog }

func (instantRaftLog) KeepTail(seglog.GroupID, uint64)                {}
func (instantRaftLog) Release(seglog.GroupID, uint64, []seglog.Range) {}

type nothingToRead struct{}

func (nothingToRead) ReadEntry(seglog.GroupID, uint64) (seglog.Replayed, [][]byte, error) {
	return seglog.Replayed{}, nil, errGone
}
func (nothingToRead) Pin(seglog.GroupID, []seglog.Range) (Pinned, error) { return nil, errGone }
