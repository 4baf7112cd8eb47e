package session

import (
	"slices"
	"sync"
	"sync/atomic"

	"holdfast/internal/amqperr"
	"holdfast/internal/broker"
	"holdfast/internal/message"
	"holdfast/internal/wire"
)

// maxTxBytes is how many bytes of messages an uncommitted transaction holds, with
// txOverhead for each message.
const (
	maxTxBytes = 256 << 20
	txOverhead = 256
)

// tx is what a transactional channel has collected since the last commit.
// Publishes are not seen by anybody before it, acknowledgements have no effect.
type tx struct {
	publishes []txPublish
	acks      []txAck
	bytes     int

	publishCount, ackCount atomic.Int64 // for listings
}

type txPublish struct {
	message   message.Message
	whole     wire.Properties // see content.whole
	mandatory bool
}

type txAck struct {
	tag      uint64
	checkout checkout
	how      broker.Settlement
}

func (t *tx) publish(p txPublish) *amqperr.Error {
	t.bytes += p.message.Size() + len(p.whole) + txOverhead
	if t.bytes > maxTxBytes {
		return amqperr.Overloaded("a transaction holds too many bytes of messages")
	}
	t.publishes = append(t.publishes, p)
	t.publishCount.Store(int64(len(t.publishes)))
	return nil
}

func (t *tx) ack(a txAck) {
	t.acks = append(t.acks, a)
	t.ackCount.Store(int64(len(t.acks)))
}

func (t *tx) clear() {
	t.publishes, t.acks, t.bytes = nil, nil, 0
	t.publishCount.Store(0)
	t.ackCount.Store(0)
}

// txTicket hears what became of the publishes of one commit.
type txTicket struct {
	mu      sync.Mutex
	open    uint64 // answers that are still to come
	refused int
	settled chan struct{} // closed when all have come
}

// expect says that n more answers will come.
func (t *txTicket) expect(n int) {
	t.mu.Lock()
	t.open += uint64(n)
	t.mu.Unlock()
}

// Settled notes the answer of one queue.
func (t *txTicket) Settled(first, last uint64, o broker.Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := last - first + 1
	if o == broker.Refused || o == broker.Unknown {
		t.refused += int(n)
	}
	t.open -= n
	if t.open == 0 {
		close(t.settled)
	}
}

// txSelect makes the channel transactional.
func (ch *channel) txSelect() *amqperr.Error {
	if ch.confirms != nil {
		return amqperr.ModeConflict("confirm", "tx")
	}
	if ch.tx == nil {
		ch.mu.Lock()
		ch.tx = &tx{}
		ch.mu.Unlock()
	}
	ch.conn.out.method(ch, &wire.TxSelectOk{})
	return nil
}

// txCommit hands on what was collected and answers when every queue has it, and
// has it on disk where it must. It runs on a worker.
func (ch *channel) txCommit() *amqperr.Error {
	t := ch.tx
	if t == nil {
		return amqperr.NotTransactional()
	}
	// Nothing is handed on unless all of it may be.
	for i := range t.publishes {
		p := &t.publishes[i]
		if _, err := ch.routeAgain(p.message, p.whole); err != nil {
			return err
		}
	}
	ticket := &txTicket{settled: make(chan struct{}), open: 1}
	for i := range t.publishes {
		p := &t.publishes[i]
		route, err := ch.routeAgain(p.message, p.whole)
		if err != nil {
			continue // the exchange went this moment: unroutable
		}
		ticket.expect(route.Queues())
		ch.publish(route, p.message, p.mandatory, ticket, uint64(i))
	}
	var holders []*holder // each once, in the order of their first acknowledgement
	for _, a := range t.acks {
		h := a.checkout.holder
		if !slices.Contains(holders, h) {
			holders = append(holders, h)
		}
		ch.settling.add(a.checkout, a.how)
		ch.flow.settled(h)
	}
	t.clear()
	ch.flush()
	for _, h := range holders {
		ticket.expect(1)
		h.sub.Barrier(ticket, 0)
	}
	ticket.Settled(0, 0, broker.Accepted) // its own, held back until all others are expected
	select {
	case <-ticket.settled:
	case <-ch.conn.stop:
		return nil
	}
	if ticket.refused > 0 {
		return amqperr.PublishRefused(ticket.refused)
	}
	ch.conn.out.method(ch, &wire.TxCommitOk{})
	return nil
}

// txRollback forgets the publishes; the deliveries count as not acknowledged.
func (ch *channel) txRollback() *amqperr.Error {
	t := ch.tx
	if t == nil {
		return amqperr.NotTransactional()
	}
	ch.flow.mu.Lock()
	for _, a := range t.acks {
		ch.flow.unacked.add(a.tag, a.checkout)
	}
	ch.flow.mu.Unlock()
	t.clear()
	ch.conn.out.method(ch, &wire.TxRollbackOk{})
	return nil
}
