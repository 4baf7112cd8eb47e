package broker

import (
	"fmt"
	"testing"

	"holdfast/internal/message"
	"holdfast/internal/wire"
)

// BenchmarkRoute is a channel's ordinary publish through the broker, as far as the put.
func BenchmarkRoute(b *testing.B) {
	r := newRig(b)
	c := r.connect()
	c.declare(DeclareQueue{Name: "q"})
	if err := c.Bind(Bind{Source: "amq.topic", Destination: "q", RoutingKey: "a.*"}); err != nil {
		b.Fatal(err)
	}
	p := c.Publisher()
	var builder message.Builder
	builder.Begin("amq.topic", "a.b", nil, 0, false)
	m := Publish{Message: builder.Message()}
	exchange, key, properties := []byte("amq.topic"), []byte("a.b"), wire.Properties{0, 0}
	b.ReportAllocs()
	for b.Loop() {
		route, err := p.Route(exchange, key, properties)
		if err != nil {
			b.Fatal(err)
		}
		p.Publish(&route, m)
		if p.Pending() >= 256 {
			for _, s := range p.dirty {
				s.lined.publishes = s.lined.publishes[:0]
				linedPool.Put(s.lined)
				s.lined = nil
			}
			p.dirty, p.lined = p.dirty[:0], 0
		}
	}
}

// BenchmarkRouteWhilePoliciesChange is a publish as far as the put, over 10,000 queues, while nothing else happens, and while
// somebody sets a policy that gives all of them another limit as often as it is answered.
func BenchmarkRouteWhilePoliciesChange(b *testing.B) {
	r := newRig2(b)
	r.catalog.Policies = r.PoliciesChanged
	c := r.connect()
	for i := range 10_000 {
		c.declare(DeclareQueue{Name: fmt.Sprint(i)})
	}
	for _, changing := range []bool{false, true} {
		b.Run(fmt.Sprintf("changing=%v", changing), func(b *testing.B) {
			stop, stopped := make(chan struct{}), make(chan int)
			go func() {
				n := 0
				defer func() { stopped <- n }()
				for changing {
					select {
					case <-stop:
						return
					default:
					}
					if err := r.setPolicy("p", ".*", fmt.Sprintf(`{"max-length":%d}`, n)); err != nil {
						b.Error(err)
						return
					}
					n++
				}
			}()
			p := c.Publisher()
			key := []byte("77")
			for b.Loop() {
				if _, err := p.Route(nil, key, wire.Properties{0, 0}); err != nil {
					b.Fatal(err)
				}
			}
			close(stop)
			b.ReportMetric(float64(<-stopped), "changes")
		})
	}
}

// BenchmarkDeclare declares new queues, one after the other.
func BenchmarkDeclare(b *testing.B) {
	for _, durable := range []bool{false, true} {
		b.Run(fmt.Sprintf("durable=%v", durable), func(b *testing.B) {
			c := newRig(b).connect()
			n := 0
			for b.Loop() {
				n++
				if _, err := c.DeclareQueue(DeclareQueue{Name: fmt.Sprint(n), Durable: durable}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCloseWithExclusiveQueues is the end of a connection with 100,000 exclusive queues. L21
func BenchmarkCloseWithExclusiveQueues(b *testing.B) {
	r := newRig(b)
	for b.Loop() {
		b.StopTimer()
		c := r.connect()
		for i := range 100_000 {
			if _, err := c.DeclareQueue(DeclareQueue{Name: fmt.Sprint(i), Exclusive: true}); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		done := make(chan struct{})
		c.Conn.Close(func() { close(done) })
		<-done
	}
}

// BenchmarkListQueues is a page of 100 out of 20,000 queues.
func BenchmarkListQueues(b *testing.B) {
	r := newRig(b)
	c := r.connect()
	for i := range 20_000 {
		if _, err := c.DeclareQueue(DeclareQueue{Name: fmt.Sprint(i)}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if page, _, err := r.ListQueues(vhost, QueuePage{Skip: 10_000, Limit: 100}); err != nil || len(page) != 100 {
			b.Fatal(len(page), err)
		}
	}
}
