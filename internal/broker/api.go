package broker

import (
	"holdfast/internal/amqperr"
	"holdfast/internal/auth"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
	"holdfast/internal/wire"
)

// The words of the lower rooms that a session speaks. A session names them
// through this package only.
type (
	// Identity is a user who has logged in.
	Identity = auth.Identity
	// Delivery is a message on its way to one consumer.
	Delivery = queuehost.Delivery
	// Consumer receives deliveries. Its methods run on shard workers and never block.
	Consumer = queuehost.Consumer
	// Reader is what one goroutine loads deliveries from the disk with.
	Reader = queuehost.Reader
	// Ticket hears what became of a publish. It runs on shard workers and never blocks.
	Ticket = queuehost.Ticket
	// Outcome is what became of a publish in one queue.
	Outcome = queuehost.Outcome
	// Range is a range of delivery ids, inclusive.
	Range = queue.Range
	// Settlement is how a checkout ends: acked, requeued or discarded.
	Settlement = queue.Settlement
	// Credit bounds what a connection may have in flight towards queues.
	Credit = queuehost.Credit
)

// How a checkout ends.
const (
	Ack     = queue.Ack
	Requeue = queue.Requeue
	Return  = queuehost.Return
	Discard = queue.Discard
	Decline = queuehost.Decline
)

// What became of a publish.
const (
	Accepted = queuehost.Accepted
	Refused  = queuehost.Refused
	Unknown  = queuehost.Unknown
	Gone     = queuehost.Gone
)

// Control is how the broker reaches an open connection. Its methods may be
// called from any goroutine at any time between Register and Conn.Close, must
// not block, and must not call back into the broker.
type Control interface {
	// Info describes the connection for listings.
	Info() ConnectionInfo
	// Channels describes the connection's open channels for listings.
	Channels() []ChannelInfo
	// Close starts closing the connection with reason; it does not wait.
	Close(reason *amqperr.Error)
	// Block says that publishing is (or is no longer) to be held back, with the
	// reason the client is told. A connection that has not published carries on
	// until its first publish. It is called inside Register if an alarm is on.
	Block(on bool, reason string)
	// Hold says that the connection, which has just published to a queue of a node with an alarm, is to be held back, or is so no
	// longer. It is called within Publisher.Flush, too.
	Hold(on bool, reason string)
}

// DeclareExchange asks for an exchange.
type DeclareExchange struct {
	Name, Type                   string
	Passive, Durable             bool
	AutoDelete, Internal, NoWait bool
	Arguments                    wire.Table
}

// DeleteExchange asks for the removal of an exchange.
type DeleteExchange struct {
	Name     string
	IfUnused bool
}

// DeclareQueue asks for a queue. An empty name asks for a name of the server's.
type DeclareQueue struct {
	Name                  string
	Passive, Durable      bool
	Exclusive, AutoDelete bool
	NoWait                bool
	Arguments             wire.Table
}

// DeclaredQueue answers DeclareQueue.
type DeclaredQueue struct {
	Name      string
	Messages  uint64
	Consumers uint64
}

// DeleteQueue asks for the removal of a queue.
type DeleteQueue struct {
	Name              string
	IfUnused, IfEmpty bool
}

// Bind asks for a binding, or for its removal. The destination is a queue
// unless ToExchange is set.
type Bind struct {
	Source, Destination, RoutingKey string
	ToExchange                      bool
	Arguments                       wire.Table
}

// Consume asks for a consumer on a queue. The tag is the one the client sees:
// the session has made it if the client gave none, and has refused a used one.
type Consume struct {
	Queue     string
	Tag       string
	Channel   uint16
	NoAck     bool
	Exclusive bool
	Prefetch  uint32 // unacked messages the consumer may hold; 0 = no limit
	Credit    uint32 // deliveries it may get before more is granted; queuehost.Unlimited = no limit
	Wake      bool   // ask for Consumer.Wake when a message waits and credit is used up
	Arguments wire.Table
	Consumer  Consumer
	// Started runs on a shard worker before the first delivery and must not
	// block: it is where consume-ok is put in line. It runs at most once, and
	// only if Conn.Consume succeeds or times out; a subscription that starts
	// after the time-out has been detached already.
	Started func(*Subscription)
}

// Get asks for one message. Messages that need an acknowledgement are held
// under the channel's getter of the queue, a Subscription like any other.
type Get struct {
	Queue   string
	Channel uint16
	NoAck   bool
	// Got runs on a shard worker, before Conn.Get returns, with the message:
	// it is where get-ok is put in line. left is the number of ready messages
	// that remain. It must not block. It does not run for an empty queue.
	Got func(s *Subscription, d Delivery, left uint64)
	// TimedOut runs on a shard worker when the channel has held messages of the queue for too long, which go to others. It is
	// that of the channel's first Get of the queue. It must not block.
	TimedOut func(reason *amqperr.Error)
}

// Publish is one message of a channel on its way to queues.
type Publish struct {
	Message    message.Message
	Persistent bool
	// Ticket hears what became of the message in each of the route's queues,
	// as Seq, after the Flush that hands it on. Nil: nobody waits.
	Ticket    Ticket
	Seq       uint64
	Unhurried bool // the Ticket is not waited for: no sync is asked for because of it
}
