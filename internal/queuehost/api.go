package queuehost

import (
	"time"

	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/seglog"
	"holdfast/internal/wire"
)

// Outcome is what became of a publish in one queue.
type Outcome uint8

const (
	// Accepted: the message is in the queue, and on disk if it and the queue are durable.
	Accepted Outcome = iota
	// Refused: the queue did not take the message.
	Refused
	// Unknown: nobody can say in time whether the message will be kept. The
	// publisher is told a nack, which does not mean that it is stored nowhere.
	Unknown
	// Gone: the queue was deleted meanwhile; the message counts as accepted and dropped with it.
	Gone
)

// String returns the outcome's name.
func (o Outcome) String() string {
	switch o {
	case Accepted:
		return "accepted"
	case Refused:
		return "refused"
	case Unknown:
		return "unknown"
	case Gone:
		return "gone"
	}
	return "outcome?"
}

// Ticket hears what became of publishes: those with the sequence numbers first
// to last, inclusive, in the numbering of whoever handed them in. It is called
// on shard workers, once for each publish and queue, and must not block.
// Publishes that wait for the disk hear in their order; what does not wait (a
// transient message, a queue that is gone) may overtake them. A Ticket must be
// comparable.
type Ticket interface {
	Settled(first, last uint64, o Outcome)
}

// Publish is one message on its way into one queue.
type Publish struct {
	Message    message.Message
	Persistent bool
	Unhurried  bool // the outcome is told, but no sync is asked for because of it
	// Carried says that the message comes from another queue and not from a publisher: nobody has published it twice, so
	// that it is no duplicate of anything, and the other queue keeps it if it is refused, so that it is not dead then.
	Carried bool
	// Plain says that the message has neither a priority nor an expiration; false: who wants to know looks into it.
	Plain bool
	part  uint32 // of a transaction; 0: of none. See tx.go
	// Screen, if not nil, is an exchange that the message has come through which lets nothing through twice. Only a message with a key
	// (message.HeaderKey) can be a duplicate.
	Screen *Screen
	// For is whom it is for, of what is published to a Mailbox; nil for any other.
	For *Addressee
	// Ticket hears the outcome as Seq. Nil: nobody waits.
	Ticket Ticket
	Seq    uint64
	// Credit, if not nil, is charged with the message until the queue has done
	// its part: applied the publish, and, if the body went to the log, seen it
	// on disk.
	Credit *Credit
}

// Screen is an exchange that lets nothing through twice. It is not changed.
type Screen struct {
	Exchange uint64      // its id, not 0
	Window   queue.Limit // for how many milliseconds a key is remembered whose message does not say; 0: as long as there is room
	Keys     uint64      // how many are remembered at most, at least 1
}

// Return is the settlement queue.Requeue for no fault of the consumer's: the message's delivery count does not rise. As in RabbitMQ, that is
// what basic.nack and basic.recover mean, while basic.reject and the end of a channel are failures
// (https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling).
const Return queue.Settlement = 3

// Decline is the settlement queue.Discard for no fault of the consumer's, which is what basic.nack without requeue means: the dead letter
// tells so.
const Decline queue.Settlement = 4

// Unlimited as ConsumerSpec.Credit means deliveries without counting.
const Unlimited = queue.Unlimited

// ConsumerSpec is what a consumer asks for.
type ConsumerSpec struct {
	Tag        string
	Prefetch   uint32 // unacked messages it may hold; 0 = no limit
	NoAck      bool   // deliveries are settled when they are assigned
	Exclusive  bool   // nobody else may consume
	Credit     uint32 // deliveries it may get before Handle.Credit grants more; Unlimited = no counting
	Wake       bool   // call Consumer.Wake when a message waits and the credit is used up
	Priority   int32  // consumers of a higher priority are served first
	Node       uint64 // where its connection is, for listings; 0: on this node
	Connection uint64 // who it is, for listings
	Channel    uint16 // of which channel, for listings
	Arguments  wire.Table
	relayed    bool   // of another node, which settles what NoAck does not; for queuehost alone
	outer      uint64 // what an entry of a quorum queue calls it; for queuehost alone
}

// Delivery is a message on its way to one consumer.
type Delivery struct {
	Consumer    queue.ConsumerID
	ID          uint64 // dense for each consumer, from 1; what Handle.Settle names. 0 for a no-ack get
	Redelivered bool
	Count       uint32 // how often it came back by the fault of a consumer
	Acquired    uint32 // how often it came back; with Counted
	Counted     bool   // the queue limits how often, and tells the counts
	// Message is the message, if it is in memory; then Load is nil.
	Message message.Message
	// Load fetches the message from the log. Whoever has the delivery must call
	// Load.Load, or Load.Drop if it never will.
	Load *Loader
}

// Consumer receives deliveries. Its methods run on the queue's shard worker
// and must not block.
type Consumer interface {
	// Deliver hands over messages, oldest first. The slice is reused after the call.
	Deliver(ds []Delivery)
	// Cancelled says that the queue has ended the consumer, because it was
	// deleted or became unavailable. Nothing comes after it. Of a reason that is
	// IsDeliveryTimeout: messages were taken back that it held for too long. It keeps
	// the others, and has still to be detached; a getter may go on.
	Cancelled(reason error)
	// Drained answers Handle.Credit with drain: left was taken back of the credit.
	Drained(left uint32)
	// Wake says that a message waits for which the consumer has no credit.
	// Asked for with ConsumerSpec.Wake; it comes once, and again only after a
	// credit was granted and used up.
	Wake()
}

// Owner is told what a queue cannot decide.
type Owner interface {
	// Unused says that the queue's last consumer has left. If it reports true,
	// the queue is sealed: it must be dropped or unsealed. It runs on the
	// queue's shard worker and must not block.
	Unused(id seglog.GroupID) (seal bool)
	// Expired says that nobody has used the queue for as long as its settings say. It stays as it is: the owner may
	// seal it. It runs on the queue's shard worker and must not block.
	Expired(id seglog.GroupID)
	// DeadLetters hands over messages that have died in a queue, in the order of their deaths; h is good for Handle.Bury and
	// Handle.TellDead. It runs on the queue's shard worker and must not block; the slice is reused after the call. A letter
	// comes again until it is buried: at TellDead, after a restart, from the next leader.
	DeadLetters(h *Handle, ds []DeadLetter)
	// Dropped says that n messages of a queue are gone without a letter: they have died, for a reason that DeadLetter.Reason may have, and
	// nobody wants letters of them; or they were dead and more than may be, queue.DeadDropped. It runs on the worker of whoever puts the
	// queue's commands in order, once an entry and reason, and must not block.
	Dropped(h *Handle, reason queue.Reason, n uint64)
	// WhyHeld says in sentences why dead letters that the owner was given have yet to arrive, as far as they have been tried in vain. It
	// runs on the queue's shard worker and must not block.
	WhyHeld(h *Handle) []string
}

// DeadLetter is a message that has died in a queue, on its way to where its dead letters go. It stays in the queue until it is buried.
type DeadLetter struct {
	ID     uint64       // in the queue, dense, from 1; what Handle.Bury names
	Reason queue.Reason // Discarded, Expired, Dropped (for a limit), or else returned too often
	Time   int64        // of its death, s since 1970
	// Message is the message, if it is in memory; then Load is nil.
	Message message.Message
	// Load is as in a Delivery: whoever has the letter must call Load.Load, or Load.Drop if it never will.
	Load *Loader
}

// DeadWindow is how many letters a queue hands over at most, from the oldest on that is not buried: one that is older than
// another by as much, or more, has been buried or dropped.
const DeadWindow = 256

// QueueDef is a queue as the catalog defines it.
type QueueDef struct {
	ID          seglog.GroupID
	VHost, Name string
	Durable     bool
	Exclusive   bool
	AutoDelete  bool
	Store       bool // it keeps the messages of an exchange: it has a name for people only, and is not listed
	Args        wire.Table
	Settings    *Settings // nil: nothing special. What it points to is not changed
}

// Settings is what arguments and policies make of a queue. Its machine has all but what is named here.
type Settings struct {
	queue.Settings                // AutoDelete is the definition's
	Expires         time.Duration // the queue goes when it was not used for so long; 0: it stays
	ConsumerTimeout time.Duration // a delivery is given to others when it was not settled for so long; 0: never
	// Disconnected is how long consumers on a node that is silent keep what they hold of a quorum queue; 0: until the node is Gone.
	Disconnected time.Duration
	// Delays says that publishes wait before they are ready: for Delay, or as long as their own header says, if that is more. A queue
	// that forwards goes by the header alone, and leaves all else that messages say of themselves to where they go.
	Delays bool
	Delay  time.Duration
	// Generation of the catalog that says so, of a quorum queue: what an earlier one said does not come after what a later one did. 0: it
	// always counts.
	Generation uint64
}

// logged reports whether the queue's commands go to the log: a queue that does
// not outlive its node, or its connection, is direct.
func (d *QueueDef) logged() bool { return d.Durable && !d.Exclusive }

// ConsumerInfo describes a consumer for listings.
type ConsumerInfo struct {
	ID      queue.ConsumerID
	Spec    ConsumerSpec
	Unacked uint64
	Is      Activity
}

// Activity says whether a consumer is one that gets messages, as far as prefetch and credit let it.
type Activity uint8

// The values are spoken between nodes. Those of the first level are the first two.
const (
	Waiting       Activity = iota // another one is the queue's single active consumer
	Up                            // it gets messages
	SingleActive                  // it alone gets messages
	SuspectedDown                 // its node is not heard of
	activities
)

// String returns RabbitMQ's name of the activity.
func (a Activity) String() string {
	if a < activities {
		return [...]string{"waiting", "up", "single_active", "suspected_down"}[a]
	}
	return "activity?"
}

// Active reports whether the consumer gets messages.
func (a Activity) Active() bool { return a == Up || a == SingleActive }

// Orphan is a group of the log that nobody has claimed. It is kept until
// Registry.Discard gives it up.
type Orphan struct {
	ID     seglog.GroupID
	Reason string
}
