package blackbox

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// steady is a publisher that stays with its node: when its connection ends it connects again to the same one, and publishes again what was
// not answered.
type steady struct {
	t    *testing.T
	node *member
	what string
	stop chan struct{}
	done chan struct{}

	mu         sync.Mutex
	next       int          // number of the next new message
	answered   map[int]bool // confirmed, by number
	nacked     int
	again      int // publishes of messages that had been published before
	reconnects int
}

// steadily starts one: messages are "what-number".
func (m *member) steadily(queue, what string) *steady {
	s := &steady{t: m.t, node: m, what: what, stop: make(chan struct{}), done: make(chan struct{}), answered: map[int]bool{}}
	go func() {
		defer close(s.done)
		var again []int
		for life := 0; ; life++ {
			again = s.live(queue, again)
			if again == nil {
				return
			}
			s.mu.Lock()
			s.reconnects++
			s.again += len(again)
			s.mu.Unlock()
		}
	}()
	return s
}

// live publishes over one connection, and gives the numbers of what was not answered when it ended; nil: all is, and nothing more is
// wanted.
func (s *steady) live(queue string, again []int) []int {
	var conn *amqp.Connection
	for {
		var err error
		if conn, err = amqp.Dial(s.node.URL()); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	defer conn.Close()
	rest := func(open []int) []int { return append([]int{}, open...) }
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		return rest(again)
	}
	answers := ch.NotifyPublish(make(chan amqp.Confirmation, 1000))
	flight := map[uint64]int{}
	tag, over := uint64(0), false
	left := func() (open []int) {
		open = append([]int{}, again...)
		for t := uint64(1); t <= tag; t++ {
			if n, is := flight[t]; is {
				open = append(open, n)
			}
		}
		return open
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	stop := s.stop
	for {
		select {
		case <-stop:
			stop, over = nil, true
		case a, open := <-answers:
			if !open {
				return left()
			}
			n := flight[a.DeliveryTag]
			delete(flight, a.DeliveryTag)
			s.mu.Lock()
			if s.answered[n] = a.Ack; !a.Ack {
				s.nacked++
			}
			s.mu.Unlock()
		case <-tick.C:
			if over && len(again) == 0 {
				if len(flight) == 0 {
					return nil
				}
				continue
			}
			if len(flight) >= 100 {
				continue
			}
			var n int
			if len(again) > 0 {
				n, again = again[0], again[1:]
			} else {
				s.mu.Lock()
				n = s.next
				s.next++
				s.mu.Unlock()
			}
			tag++
			flight[tag] = n
			err := ch.PublishWithContext(context.Background(), "", queue, false, false,
				amqp.Publishing{DeliveryMode: amqp.Persistent, Body: fmt.Appendf(nil, "%s-%05d", s.what, n)})
			if err != nil {
				conn.Close() // what had come of answers is in the channel
				for a := range answers {
					s.mu.Lock()
					if s.answered[flight[a.DeliveryTag]] = a.Ack; !a.Ack {
						s.nacked++
					}
					s.mu.Unlock()
					delete(flight, a.DeliveryTag)
				}
				return left()
			}
		}
	}
}

// follows waits until every member has what the one that is furthest has now. Publishing may go on.
func (w *web) follows(queue string, on int) {
	w.t.Helper()
	last := func(s seat) float64 { n, _ := s.Last.(float64); return n }
	most := 0.0
	for _, s := range w.node[on].members(queue) {
		most = max(most, last(s))
	}
	until(w.t, "the members of "+queue+" follow", func() bool {
		for _, s := range w.node[on].members(queue) {
			if last(s) < most {
				return false
			}
		}
		return true
	})
}

// flows waits until so many more are confirmed.
func (s *steady) flows(more int) {
	s.t.Helper()
	count := func() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.answered) }
	before := count()
	until(s.t, s.what+": publishes are confirmed", func() bool { return count() >= before+more })
}

// end stops it, and waits until everything is answered.
func (s *steady) end() {
	s.t.Helper()
	close(s.stop)
	select {
	case <-s.done:
	case <-time.After(nackBound + slack):
		s.t.Errorf("%s: publishes are not answered", s.what)
	}
}

// R308 R119: every node is restarted in turn, in order and the catalog's leader among them, while publishers are connected to every node. A
// publisher whose node goes has its connection ended, and connects again; beyond that no publish fails on any of them, and nothing
// confirmed is lost. Consumers elsewhere get nothing twice but what was published twice.
func TestQuorumRollingRestartOfEveryNode(t *testing.T) {
	t.Parallel()
	long(t)
	rollingRestart(t, target.binary, target.binary)
}

// R308: the same from one version to another: each node is restarted with the binary of the tree, while the others have an earlier one still,
// and the other way round. HOLDFAST_TEST_EARLIER names the binary of the earlier version; formats between nodes and on disk that both know
// are what it is about.
func TestQuorumRollingUpgrade(t *testing.T) {
	t.Parallel()
	long(t)
	earlier := os.Getenv("HOLDFAST_TEST_EARLIER")
	if earlier == "" {
		t.Skip("HOLDFAST_TEST_EARLIER names no binary")
	}
	rollingRestart(t, earlier, target.binary)
}

// rollingRestart restarts each node of a cluster twice: the first time it gets the other binary.
func rollingRestart(t *testing.T, before, after string) {
	w := prepareWeb(t, 3)
	for _, m := range w.node {
		m.Binary = before
	}
	ok(t, w.Start())
	var queues []string
	for i := range 3 {
		queues = append(queues, w.quorum(i, fmt.Sprint("q", i)))
	}
	var pubs []*steady
	for i, q := range queues { // through each node to each queue
		for k, m := range w.node {
			pubs = append(pubs, m.steadily(q, fmt.Sprintf("q%d-through-n%d", i, k+1)))
		}
	}
	for round := range 2 {
		for i, m := range w.node {
			for _, p := range pubs {
				p.flows(10)
			}
			ok(t, m.Stop())
			m.Binary = after
			for k, p := range pubs {
				if k%3 != i {
					p.flows(20)
				}
			}
			ok(t, m.Start())
			for _, other := range w.node {
				other.known("n1", "n2", "n3")
			}
			for _, q := range queues {
				w.follows(q, (i+1)%3)
			}
		}
		t.Logf("round %d is over", round)
	}
	got := map[string]int{}
	for _, p := range pubs {
		p.end()
	}
	for _, q := range queues {
		n := w.node[w.leading(q, 1)].listing(q).Messages
		in := must(w.node[1].open().Consume(q, "", true, false, false, false, nil))(t)
		for range n {
			got[string(next(t, in).Body)]++
		}
	}
	total, again := 0, 0
	for _, p := range pubs {
		if p.nacked != 0 {
			t.Errorf("%s: %d publishes were nacked", p.what, p.nacked)
		}
		if p.reconnects != 2 {
			t.Errorf("%s: it connected again %d times, and its node was restarted twice", p.what, p.reconnects)
		}
		for n := range p.next {
			if body := fmt.Sprintf("%s-%05d", p.what, n); !p.answered[n] {
				t.Errorf("%s was never confirmed", body)
			} else if got[body] == 0 {
				t.Errorf("%s was confirmed, and is lost", body)
			} else {
				total += got[body]
			}
		}
		again += p.again
	}
	t.Logf("%d messages came of %d publishers; %d were published again after a connection had ended", total, len(pubs), again)
	doubles := 0
	for _, n := range got {
		doubles += n - 1
	}
	if doubles > again {
		t.Errorf("%d messages came twice, and %d were published twice", doubles, again)
	}
}
