package blackbox

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/raw"
)

// R38: nothing published in a transaction is seen before its commit; a rollback
// forgets it.
// R54: there are transactions.
func TestTxPublish(t *testing.T) {
	t.Parallel()
	ch, other := open(t), open(t)
	q, second := queue(t, ch), queue(t, ch)
	ok(t, ch.Tx())
	send(t, ch, "", q, "1", "2")
	send(t, ch, "", second, "3")
	settled(t, ch)
	equal(t, "before the commit", depth(t, other, q), 0)
	ok(t, ch.TxCommit())
	equal(t, "after the commit", depth(t, other, q), 2)
	equal(t, "in the other queue", depth(t, other, second), 1)
	send(t, ch, "", q, "rolled back")
	ok(t, ch.TxRollback())
	ok(t, ch.TxCommit())
	equal(t, "after the rollback", depth(t, other, q), 2)
	equal(t, "order", string(get(t, other, q, true).Body), "1")
}

// Keys in a BCC header hold for what is published in a transaction.
func TestTxBCC(t *testing.T) {
	t.Parallel()
	ch := open(t)
	q, hidden := queue(t, ch), queue(t, ch)
	ok(t, ch.Tx())
	ok(t, ch.Publish("", q, false, false, amqp.Publishing{Headers: amqp.Table{"BCC": []any{hidden}}}))
	ok(t, ch.TxCommit())
	equal(t, "in the queue", depth(t, ch, q), 1)
	equal(t, "in the hidden queue", depth(t, ch, hidden), 1)
}

// R38: acks in a transaction count at the commit.
func TestTxAck(t *testing.T) {
	t.Parallel()
	ch := open(t)
	q := queue(t, ch)
	put(t, q, "1", "2")
	ok(t, ch.Tx())
	first := get(t, ch, q, false)
	ok(t, first.Ack(false))
	ok(t, ch.TxRollback())
	ok(t, first.Ack(false)) // rolled back: it is held again
	second := get(t, ch, q, false)
	ok(t, second.Ack(false))
	ok(t, ch.TxCommit())
	ok(t, ch.Close())
	empty(t, open(t), q)
}

// R38: a channel that ends without a commit leaves nothing behind, and its acks
// did not happen.
func TestTxAbandoned(t *testing.T) {
	t.Parallel()
	ch := open(t)
	q := queue(t, ch)
	put(t, q, "kept")
	ok(t, ch.Tx())
	ok(t, get(t, ch, q, false).Ack(false))
	send(t, ch, "", q, "never")
	ok(t, ch.Close())
	other := open(t)
	eventually(t, "it is back", func() bool { return depth(t, other, q) == 1 })
	d := get(t, other, q, true)
	equal(t, "body", string(d.Body), "kept")
	equal(t, "redelivered", d.Redelivered, true)
}

// R38: nack with requeue inside a transaction.
func TestTxNack(t *testing.T) {
	t.Parallel()
	ch, other := open(t), open(t)
	q := queue(t, ch)
	put(t, q, "x")
	ok(t, ch.Tx())
	ok(t, get(t, ch, q, false).Nack(false, true))
	settled(t, ch)
	equal(t, "before the commit", depth(t, other, q), 0)
	ok(t, ch.TxCommit())
	eventually(t, "after the commit", func() bool { return depth(t, other, q) == 1 })
}

// R38: commit and rollback need tx.select; select may be repeated.
func TestTxFaults(t *testing.T) {
	t.Parallel()
	for what, id := range map[string]raw.ID{"commit": raw.TxCommit, "rollback": raw.TxRollback} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := frames(t)
			ok(t, s.Send(1, id))
			faults(t, s, chanFault, 406)
		})
	}
	ch := open(t)
	ok(t, ch.Tx())
	ok(t, ch.Tx())
}

// R94: a mandatory publish in a transaction comes back with the commit.
func TestTxMandatory(t *testing.T) {
	t.Parallel()
	ch := open(t)
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	ok(t, ch.Tx())
	ok(t, ch.Publish("amq.direct", name(t), true, false, amqp.Publishing{}))
	settled(t, ch)
	equal(t, "returns before the commit", len(returns), 0)
	ok(t, ch.TxCommit())
	equal(t, "code", (<-returns).ReplyCode, 312)
}

// R38: a transaction that unblocks a large batch of both kinds keeps order.
func TestTxLarge(t *testing.T) {
	t.Parallel()
	ch := open(t)
	q := queue(t, ch)
	ok(t, ch.Tx())
	for range 500 {
		send(t, ch, "", q, "x")
	}
	ok(t, ch.TxCommit())
	equal(t, "messages", depth(t, ch, q), 500)
}

// R535: what is wrong with a publish in a transaction is said at once.
func TestTxErrorAtPublish(t *testing.T) {
	t.Parallel()
	ch := open(t)
	ok(t, ch.Tx())
	closed := closing(ch)
	ok(t, ch.Publish(name(t), "k", false, false, amqp.Publishing{}))
	refused(t, closed(t), 404)
}

// R535: where a message goes is found when it is published.
func TestTxRoutedWhenPublished(t *testing.T) {
	t.Parallel()
	ch, other := open(t), open(t)
	first, second, x := queue(t, ch), queue(t, ch), exchange(t, ch, "fanout", nil)
	ok(t, ch.QueueBind(first, "", x, false, nil))
	ok(t, ch.Tx())
	send(t, ch, x, "", "1")
	settled(t, ch)
	ok(t, other.QueueBind(second, "", x, false, nil))
	ok(t, other.QueueUnbind(first, "", x, nil))
	ok(t, ch.TxCommit())
	equal(t, "where it went then", depth(t, ch, first), 1)
	equal(t, "where it would go now", depth(t, ch, second), 0)
}

// R532: a queue that refuses a message refuses what the transaction does in it, and no more; the channel learns of it.
func TestTxRefused(t *testing.T) {
	t.Parallel()
	ch, other := open(t), open(t)
	full, free := queueWith(t, ch, amqp.Table{"x-max-length": 2, "x-overflow": "reject-publish"}), queue(t, ch)
	put(t, full, "old")
	ok(t, ch.Tx())
	closed := closing(ch)
	send(t, ch, "", full, "1", "2", "3")
	send(t, ch, "", free, "1", "2", "3")
	if ch.TxCommit() == nil {
		t.Fatal("the commit was confirmed")
	}
	refused(t, closed(t), 406)
	equal(t, "in the queue that is full", depth(t, other, full), pick(t, "tx-whole", 2, 1))
	equal(t, "in the other", depth(t, other, free), 3)
}

// R536: acknowledgements that are rolled back leave their tags as they were, and bring no message back.
func TestTxRollbackKeepsTags(t *testing.T) {
	t.Parallel()
	ch, other := open(t), open(t)
	q := queue(t, ch)
	put(t, q, "1", "2", "3")
	ok(t, ch.Tx())
	in := consume(t, ch, q)
	first := next(t, in)
	next(t, in)
	third := next(t, in)
	ok(t, third.Ack(true))
	ok(t, ch.TxRollback())
	quiet(t, ch, in)
	ok(t, first.Nack(false, false))
	ok(t, ch.TxCommit())
	ok(t, third.Ack(true))
	ok(t, ch.TxCommit())
	ok(t, ch.Close())
	empty(t, other, q)
}
