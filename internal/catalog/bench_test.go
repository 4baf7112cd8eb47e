package catalog

import (
	"fmt"
	"runtime"
	"testing"

	"holdfast/internal/routing"
	"holdfast/internal/wire"
)

// benchMachine returns a machine with n durable queues q0, q1, ... each bound once to the direct exchange "x" and to the
// topic exchange "t".
func benchMachine(n int) *Machine {
	m := New()
	m.Apply(1, 1, Bootstrap(Defaults{VHost: "/"}))
	m.Apply(1, 1, NewIncarnation(NodeIDOf("node")))
	m.Apply(1, 1, DeclareExchange(ExchangeDecl{VHost: "/", Name: "x", Type: "direct", Durable: true}))
	m.Apply(1, 1, DeclareExchange(ExchangeDecl{VHost: "/", Name: "t", Type: "topic", Durable: true}))
	for i := range n {
		name := fmt.Sprintf("q%d", i)
		m.Apply(1, 1, DeclareQueue(QueueDecl{VHost: "/", Name: name, Durable: true}))
		m.Apply(1, 1, Bind(Binding{VHost: "/", Source: "x", Destination: name, Key: name}, 0))
		m.Apply(1, 1, Bind(Binding{VHost: "/", Source: "t", Destination: name, Key: "site.*." + name}, 0))
	}
	return m
}

var sizes = []int{100, 10_000, 100_000}

// A declare and a delete of one queue, encoding and view included.
func BenchmarkDeclareDelete(b *testing.B) {
	for _, n := range sizes {
		m := benchMachine(n)
		b.Run(fmt.Sprintf("queues=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				name := fmt.Sprintf("new%d", i)
				m.Apply(1, 1, DeclareQueue(QueueDecl{VHost: "/", Name: name, Durable: true}))
				m.Apply(1, 1, DeleteQueue("/", name, 0, 0))
			}
		})
	}
}

// A bind and an unbind, encoding and view included.
func BenchmarkBindUnbind(b *testing.B) {
	for _, n := range sizes {
		m := benchMachine(n)
		for _, x := range []string{"x", "t"} {
			b.Run(fmt.Sprintf("%s/bindings=%d", x, 2*n), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					bd := Binding{VHost: "/", Source: x, Destination: fmt.Sprintf("q%d", i%n), Key: "another.key"}
					m.Apply(1, 1, Bind(bd, 0))
					m.Apply(1, 1, Unbind(bd, 0))
				}
			})
		}
	}
}

// Growing from nothing: one exclusive queue and one binding per round, as clients with reply queues do.
func BenchmarkGrow(b *testing.B) {
	m := benchMachine(0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		conn := MakeConnID(1, uint64(i+1))
		name := fmt.Sprintf("reply%d", i)
		m.Apply(1, 1, DeclareQueue(QueueDecl{VHost: "/", Name: name, Exclusive: true, AutoDelete: true, Conn: conn}))
		m.Apply(1, 1, Bind(Binding{VHost: "/", Source: "t", Destination: name, Key: name + ".#"}, conn))
	}
}

// One queue with 10,000 bindings among 100,000 others goes. Lesson 20.
func BenchmarkDeleteQueueWith10000Bindings(b *testing.B) {
	m := benchMachine(50_000)
	m.Apply(1, 1, DeclareQueue(QueueDecl{VHost: "/", Name: "big", Durable: true}))
	for i := range 10_000 {
		m.Apply(1, 1, Bind(Binding{VHost: "/", Source: "t", Destination: "big", Key: fmt.Sprintf("a.%d.#", i)}, 0))
	}
	full := m.View()
	b.ReportAllocs()
	for b.Loop() {
		m.view.Store(full)
		m.Apply(1, 1, DeleteQueue("/", "big", 0, 0))
	}
}

// A connection with 100,000 exclusive queues closes. Lesson 21.
func BenchmarkClose100000ExclusiveQueues(b *testing.B) {
	m := benchMachine(0)
	conn := MakeConnID(1, 1)
	for i := range 100_000 {
		m.Apply(1, 1, DeclareQueue(QueueDecl{VHost: "/", Name: fmt.Sprintf("reply%d", i), Exclusive: true, Conn: conn}))
	}
	full := m.View()
	b.ReportAllocs()
	for b.Loop() {
		m.view.Store(full)
		m.Apply(1, 1, DeleteConnectionQueues(conn))
	}
}

// A vhost with 10,000 exchanges goes. Lesson 22.
func BenchmarkDeleteVHostWith10000Exchanges(b *testing.B) {
	m := benchMachine(0)
	m.Apply(1, 1, AddVHost("v", "", nil))
	for i := range 10_000 {
		m.Apply(1, 1, DeclareExchange(ExchangeDecl{VHost: "v", Name: fmt.Sprintf("x%d", i), Type: "fanout", Durable: true}))
	}
	full := m.View()
	b.ReportAllocs()
	for b.Loop() {
		m.view.Store(full)
		m.Apply(1, 1, DeleteVHost("v"))
	}
}

// One publish's way from names to queue ids.
func BenchmarkRoute(b *testing.B) {
	for _, n := range sizes {
		m := benchMachine(n)
		keys := make([]string, 1000)
		names := make([]string, 1000)
		for i := range keys {
			names[i] = fmt.Sprintf("q%d", i*7919%n)
			keys[i] = "site.a." + names[i]
		}
		for exchange, keys := range map[string][]string{"": names, "x": names, "t": keys} {
			b.Run(fmt.Sprintf("%q/queues=%d", exchange, n), func(b *testing.B) {
				b.ReportAllocs()
				dst := make([]QueueID, 0, 4)
				for i := 0; b.Loop(); i++ {
					v := m.View()
					dst = v.Route(v.Exchange("/", exchange), &routing.Message{Key: keys[i%len(keys)]}, dst[:0])
					if len(dst) != 1 {
						b.Fatal(len(dst))
					}
				}
			})
		}
	}
}

// The last page of 100 queues of 100,000.
func BenchmarkLastPage(b *testing.B) {
	v := benchMachine(100_000).View()
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for range v.Queues("/").From(99_900) {
			n++
		}
		if n != 100 {
			b.Fatal(n)
		}
	}
}

func BenchmarkSnapshot(b *testing.B) {
	m := benchMachine(100_000)
	snapshot := m.AppendSnapshot(nil)
	b.Run("append", func(b *testing.B) {
		b.ReportMetric(float64(len(snapshot)), "bytes")
		buf := make([]byte, 0, len(snapshot))
		for b.Loop() {
			m.AppendSnapshot(buf)
		}
	})
	b.Run("restore", func(b *testing.B) {
		for b.Loop() {
			if err := New().Restore(snapshot); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// What a queue costs in memory, and how much more one with three members does.
func BenchmarkQueueBytes(b *testing.B) {
	const n = 50_000
	quorum := wire.NewTable(map[string]any{"x-queue-type": "quorum"})
	classic := wire.NewTable(map[string]any{"x-queue-type": "classic"})
	for _, c := range []struct {
		name    string
		args    wire.Table
		members []Member
	}{{"classic", classic, nil}, {"quorum", quorum, []Member{{1, 1}, {2, 2}, {3, 3}}}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				m := New()
				m.Apply(1, 1, Bootstrap(Defaults{VHost: "/"}))
				for id := range uint64(3) {
					m.Apply(1, 1, AddNode(Node{ID: id + 1, Name: fmt.Sprint(id)}))
					m.Apply(1, 1, NewIncarnation(id+1))
				}
				heap := func() uint64 {
					var s runtime.MemStats
					runtime.GC()
					runtime.ReadMemStats(&s)
					return s.HeapAlloc
				}
				before := heap()
				for i := range n {
					m.Apply(1, 1, DeclareQueue(QueueDecl{
						VHost: "/", Name: fmt.Sprintf("q%d", i), Durable: true, Args: c.args, Members: c.members, Conn: MakeConnID(1, 1),
					}))
				}
				b.ReportMetric(float64(heap()-before)/n, "B/queue")
				runtime.KeepAlive(m)
			}
		})
	}
}

// policyMachine is benchMachine at level 2 with these policies: as many that match nothing, one that matches all.
func policyMachine(b *testing.B, queues, policies int) *Machine {
	m := benchMachine(queues)
	m.Apply(1, 1, SetLevels(NodeIDOf("node"), Levels{1, 2}))
	m.Apply(1, 1, RaiseLevel(2))
	for i := range policies - 1 {
		m.Apply(1, 1, benchPolicy(b, fmt.Sprint("p", i), fmt.Sprintf("^team%d\\.", i), i+1))
	}
	m.Apply(1, 1, benchPolicy(b, "all", ".*", 1))
	return m
}

func benchPolicy(b *testing.B, name, pattern string, n int) []byte {
	p, err := MakePolicy(Policy{VHost: "/", Name: name, Pattern: pattern, ApplyTo: "queues", Priority: int64(n)},
		map[string]any{"max-length": int64(n), "message-ttl": int64(60_000)})
	if err != nil {
		b.Fatal(err)
	}
	return SetPolicy(p)
}

// A policy is set that all of 10,000 queues get: the command itself, which the catalog's worker carries out; and finding
// which queues have other settings by it, which is done beside it.
func BenchmarkSetPolicy(b *testing.B) {
	for _, policies := range []int{1, 10} {
		m := policyMachine(b, 10_000, policies)
		b.Run(fmt.Sprintf("apply/policies=%d", policies), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				m.Apply(1, 1, benchPolicy(b, "all", ".*", i%1000))
			}
		})
		b.Run(fmt.Sprintf("whose/policies=%d", policies), func(b *testing.B) {
			var change *PolicyChange
			m.Policies = func(c *PolicyChange) { change = c }
			for i := 0; b.Loop(); i++ {
				m.Apply(1, 1, benchPolicy(b, "all", ".*", i%2))
				n := 0
				for range change.Queues(m.View()) {
					n++
				}
				if n < 10_000 && i > 0 {
					b.Fatal(n)
				}
			}
		})
	}
}

// What holds for 10,000 queues, as a listing asks: for the first time since policies changed, and after that.
func BenchmarkEffective(b *testing.B) {
	for _, policies := range []int{1, 10} {
		m := policyMachine(b, 10_000, policies)
		ask := func(v *View) {
			for q := range v.Queues("/").All() {
				if v.Effective(q).MaxLength == 0 {
					b.Fatal(q.Name)
				}
			}
		}
		b.Run(fmt.Sprintf("first/policies=%d", policies), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				m.Apply(1, 1, benchPolicy(b, "all", ".*", i%2))
				ask(m.View())
			}
		})
		b.Run(fmt.Sprintf("again/policies=%d", policies), func(b *testing.B) {
			v := m.View()
			for b.Loop() {
				ask(v)
			}
		})
	}
}
