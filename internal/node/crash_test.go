package node

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/broker"
)

// history is what one client was promised before the power went.
type history struct {
	rng    *rand.Rand
	ch     *amqp.Channel
	queues map[string]*queueHistory
	next   int
}

// queueHistory is what a client knows of one durable queue.
type queueHistory struct {
	exists, unsure bool     // unsure: a declare or delete got no answer
	sent           []string // persistent messages, in order
	confirmed      map[string]bool
	taken          map[string]bool // fetched; may be gone, or back and marked
	getting        bool            // a get got no answer: one message may be gone with it
}

// step does one thing; an error means that the node is dying.
func (h *history) step() error {
	name := fmt.Sprintf("q%d", h.rng.IntN(4))
	q := h.queues[name]
	if q == nil {
		q = &queueHistory{}
		h.queues[name] = q
	}
	if !q.exists {
		*q = queueHistory{unsure: true, confirmed: map[string]bool{}, taken: map[string]bool{}}
		if _, err := h.ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
			return err
		}
		q.exists, q.unsure = true, false
		return nil
	}
	switch h.rng.IntN(20) {
	case 0:
		q.unsure = true
		if _, err := h.ch.QueueDelete(name, false, false, false); err != nil {
			return err
		}
		q.exists, q.unsure = false, false
	case 1, 2, 3, 4, 5, 6:
		q.getting = true
		noAck := h.rng.IntN(2) == 0
		d, ok, err := h.ch.Get(name, noAck)
		if err != nil {
			return err
		}
		q.getting = false
		if !ok {
			return nil
		}
		if !strings.HasPrefix(string(d.Body), "transient") {
			q.taken[string(d.Body)] = true
		}
		switch {
		case noAck:
		case h.rng.IntN(3) == 0:
			return h.ch.Ack(d.DeliveryTag, false)
		case h.rng.IntN(2) == 0:
			return h.ch.Nack(d.DeliveryTag, false, true)
		}
	default:
		var waits []*amqp.DeferredConfirmation
		var bodies []string
		for range 1 + h.rng.IntN(8) {
			h.next++
			body, mode := fmt.Sprintf("m%d", h.next), amqp.Persistent
			if h.rng.IntN(5) == 0 {
				body, mode = "transient", amqp.Transient
			}
			if h.rng.IntN(20) == 0 {
				body += strings.Repeat("x", 20_000)
			}
			if mode == amqp.Persistent {
				q.sent = append(q.sent, body)
			}
			w, err := h.ch.PublishWithDeferredConfirm("", name, false, false, amqp.Publishing{DeliveryMode: mode, Body: []byte(body)})
			if err != nil {
				return err
			}
			waits, bodies = append(waits, w), append(bodies, body)
		}
		for i, w := range waits {
			select {
			case <-w.Done():
				if !w.Acked() {
					return errors.New("a nack")
				}
				if !strings.HasPrefix(bodies[i], "transient") {
					q.confirmed[bodies[i]] = true
				}
			case <-time.After(patience):
				return errors.New("no confirm")
			}
		}
	}
	return nil
}

// check compares what a restarted node has with what the client was promised.
func (h *history) check(t *testing.T, n *Node) {
	t.Helper()
	for name, q := range h.queues {
		_, err := n.Broker().QueueInfo("/", name)
		there := err == nil
		switch {
		case q.unsure:
		case q.exists != there:
			t.Errorf("%s: the client was told that it exists: %v; it does: %v", name, q.exists, there)
			continue
		}
		if !there || !q.exists {
			continue
		}
		at := 0 // in q.sent
		left := map[string]bool{}
		for _, body := range get(t, open(t, n), name) {
			marked := strings.HasSuffix(body, "*")
			body = strings.TrimSuffix(body, "*")
			for at < len(q.sent) && q.sent[at] != body {
				at++
			}
			if at == len(q.sent) {
				t.Errorf("%s: %.20q is out of order, twice there, or was never sent", name, body)
				break
			}
			at++
			left[body] = true
			if q.taken[body] && !marked {
				t.Errorf("%s: %.20q had been handed out and is not marked", name, body)
			}
		}
		for body := range q.confirmed {
			if left[body] || q.taken[body] {
				continue
			}
			if q.getting {
				q.getting = false
				continue
			}
			t.Errorf("%s: confirmed message %.20q is gone", name, body)
		}
	}
	if n.Report().Orphans != 0 {
		t.Errorf("%d groups that the catalog does not know", n.Report().Orphans)
	}
}

// untilCut keeps a node busy until the power goes, which ready arranges, and
// leaves the place with what is then on the disk.
func (h *history) untilCut(t *testing.T, p *place, n *Node, ready func()) {
	t.Helper()
	c, err := amqp.Dial(n.Report().URLs[0])
	if err == nil {
		h.ch, err = c.Channel()
	}
	if err == nil {
		err = h.ch.Confirm(false)
	}
	if ready(); err == nil {
		for !p.disk.Crashed() && err == nil {
			err = h.step()
		}
	}
	if !p.disk.Crashed() {
		t.Fatal(err)
	}
	p.disk = p.disk.CrashClone(h.rng)
	n.Stop() // of the node that lost its disk: it may only complain
	if c != nil {
		c.Close()
	}
}

var everyCall = flag.Int("power.calls", 60, "TestPowerCutAtEveryCall: how many calls of the disk, from the first of a new folder on")

// The power goes at the first call of the disk in a new folder, at the second, and
// so on: while the node starts for the first time, and then under load. R18, R34, R248
func TestPowerCutAtEveryCall(t *testing.T) {
	for call := 1; call <= *everyCall && !t.Failed(); call++ {
		p := newPlace(t)
		h := &history{rng: rand.New(rand.NewPCG(uint64(call), 11)), queues: map[string]*queueHistory{}}
		p.disk.CrashAt(call)
		if n, err := p.start(); err == nil {
			h.untilCut(t, &p, n, func() {})
		} else if p.disk.Crashed() {
			p.disk = p.disk.CrashClone(h.rng)
		} else {
			t.Fatal(err)
		}
		n, err := p.start()
		if err != nil {
			t.Fatalf("call %d: %v", call, err)
		}
		h.check(t, n)
		if err := n.Stop(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Logf("the power went at call %d", call)
		}
	}
}

// The power goes at any call of the disk, again and again on the same folder:
// what clients were told holds. R18, R34, R246, R248
func TestPowerCutAnywhere(t *testing.T) {
	const seeds, rounds = uint64(6), 15
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			p := newPlace(t)
			h := &history{rng: rng, queues: map[string]*queueHistory{}}
			for range rounds {
				n, err := p.start()
				if err != nil {
					t.Fatal(err)
				}
				h.untilCut(t, &p, n, func() { p.disk.CrashAt(p.disk.Calls() + 1 + rng.IntN(400)) })

				n, err = p.start()
				if err != nil {
					t.Fatal(err)
				}
				h.check(t, n)
				h.queues = map[string]*queueHistory{}
				for _, q := range n.Broker().ListVHosts() {
					queues, _, _ := n.Broker().ListQueues(q.Name, broker.QueuePage{})
					for _, q := range queues {
						n.Broker().AdminDeleteQueue(q.VHost, q.Name, false, false)
					}
				}
				if err := n.Stop(); err != nil {
					t.Fatal(err)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}
