package session

import (
	"sync"
	"sync/atomic"

	"holdfast/internal/amqperr"
	"holdfast/internal/broker"
	"holdfast/internal/message"
	"holdfast/internal/wire"
)

// maxTxBytes is how many bytes an uncommitted transaction holds at most. Each message costs its bytes, txOverhead, and txRoute
// for each queue that it goes to. A connection may hold less: see incomplete.go.
const (
	maxTxBytes = 256 << 20
	txOverhead = 256
	txRoute    = 8
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
	route     broker.Held // as it was when the message was published
	mandatory bool
}

type txAck struct {
	tag      uint64
	checkout checkout
	how      broker.Settlement
}

// cost is how many bytes a message counts as.
func (p *txPublish) cost() int { return p.message.Size() + txOverhead + txRoute*p.route.Queues() }

// txPublish keeps a message until the commit.
func (ch *channel) txPublish(p txPublish) *amqperr.Error {
	t, n := ch.tx, p.cost()
	t.bytes += n
	ch.hold(int64(n))
	switch {
	case t.bytes > maxTxBytes:
		return amqperr.Overloaded("a transaction holds too many bytes of messages")
	case ch.conn.credit.TooMuch():
		return tooMuchIncomplete()
	}
	t.publishes = append(t.publishes, p)
	t.publishCount.Store(int64(len(t.publishes)))
	return nil
}

// mayTake reports whether a commit can take a while that a client has to wait for, by what RabbitMQ waits for.
func (t *tx) mayTake() bool {
	for i := range t.publishes {
		if t.publishes[i].route.Queues() > 0 {
			return true
		}
	}
	return false
}

func (t *tx) ack(a txAck) {
	t.acks = append(t.acks, a)
	t.ackCount.Store(int64(len(t.acks)))
}

// txClear begins the next transaction.
func (ch *channel) txClear() {
	t := ch.tx
	n := t.bytes
	t.publishes, t.acks, t.bytes = nil, nil, 0
	t.publishCount.Store(0)
	t.ackCount.Store(0)
	if n > 0 {
		ch.hold(int64(-n))
	}
}

// txTicket hears what became of a commit, once from each queue that it concerns.
type txTicket struct {
	mu      sync.Mutex
	open    int // answers that are still to come
	refused int
	settled chan struct{} // closed when all have come
}

// Settled notes the answer of one queue.
func (t *txTicket) Settled(_, _ uint64, o broker.Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o == broker.Refused || o == broker.Unknown {
		t.refused++
	}
	if t.open--; t.open == 0 {
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

// txCommit hands on what was collected, to each queue what is to happen there in one step, and answers when all of them
// have it, and have it on disk where they must. It runs on a worker.
func (ch *channel) txCommit() *amqperr.Error {
	defer ch.committing.Store(false)
	t := ch.tx
	if t == nil {
		return amqperr.NotTransactional()
	}
	if ch.publisher == nil {
		ch.publisher = ch.conn.broker.Publisher()
	}
	p := ch.publisher
	for i := range t.publishes {
		x := &t.publishes[i]
		if x.route.Unroutable() && x.mandatory {
			p.ReturnedHeld(&x.route, x.message)
			ch.conn.out.giveBack(ch, noRoute(x.message, 0))
			continue
		}
		p.PublishHeld(&x.route, x.message)
	}
	var acks settling
	for _, a := range t.acks {
		acks.add(a.checkout, a.how)
		ch.flow.settled(a.checkout.holder)
	}
	for _, s := range acks.parts {
		p.SettleHeld(s.holder.sub, s.ranges, s.how)
	}
	queues := p.Involved()
	ticket := &txTicket{settled: make(chan struct{}), open: queues}
	if queues == 0 {
		close(ticket.settled)
	}
	p.Commit(ticket)
	ch.txClear() // what was held is in flight now
	if len(acks.parts) > 0 {
		ch.flow.serve()
	}
	select {
	case <-ticket.settled:
	case <-ch.conn.stop:
		return nil
	}
	if ticket.refused > 0 {
		return amqperr.TransactionRefused()
	}
	ch.committing.Store(false) // whoever has the answer may go on
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
	ch.txClear()
	ch.conn.out.method(ch, &wire.TxRollbackOk{})
	return nil
}
