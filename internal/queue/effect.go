package queue

// EffectKind says what an Effect asks for.
type EffectKind uint8

const (
	// Deliver: messages First to Last go to Consumer under the delivery ids from
	// Delivery on. Left is set for a Get: the ready messages that remain.
	// All of them have the same Redelivered, DeliveryCount, Acquired and
	// Transient. A big message comes alone, with its Chunks.
	Deliver EffectKind = iota + 1
	// Released: messages (or chunks) First to Last have left the queue, for
	// Reason. It comes after the Deliver of the same messages, if there is one in
	// the entry: a no-ack delivery is followed by its release.
	Released
	// Attached: Consumer is attached. It comes before its first Deliver.
	Attached
	// Refused: Consumer is not attached, for Reason.
	Refused
	// Cancelled: Consumer gets no new deliveries. Also the answer for one that is not there.
	Cancelled
	// Detached: Consumer is gone. Also the answer for one that was not there.
	Detached
	// Drained: Consumer's credit is 0; Count of it was not used.
	Drained
	// Wake: a message is there which Consumer has no credit for. It comes once
	// until the consumer is given credit.
	Wake
	// Empty: a Get by Consumer found no message (or no such getter).
	Empty
	// Purged: Count messages were purged.
	Purged
	// Unused: the last consumer of a queue with AutoDelete has left.
	Unused
	// EpochOpened: Session's epoch is open; Count is the last sequence number
	// accepted in the one before. Reason is NoSession if there is no such session,
	// else 0.
	EpochOpened
	// Recovered: the queue begins a new incarnation. Count is the number of transient messages dropped.
	Recovered
	// Overflowed: the last Count messages of the Enqueue that is Command, First to Last, are refused for Reason;
	// Session is that of the publishes. What becomes of the messages other effects say.
	Overflowed
	// Dead: messages First to Last have died of Reason, and a letter is to tell of it. They stay in the queue until
	// they are buried, under the dead ids from Delivery on, which are dense and start at 1; then they are
	// Released, for the same reason. They died at Left (seconds since 1970) with the history given. A big message
	// comes alone, with its Chunks.
	Dead
	// Active: Consumer is the single active one from now on; 0: there is none.
	Active
	// TimedOut: Count messages that Consumer held for too long are taken back, and it gets nothing more.
	TimedOut
	// Uncommitted: nothing happens of the transaction of Session whose Commit is Command, for Reason; its messages are released.
	Uncommitted
)

var effectNames = [...]string{
	Deliver: "deliver", Released: "released", Attached: "attached", Refused: "refused", Cancelled: "cancelled",
	Detached: "detached", Drained: "drained", Wake: "wake", Empty: "empty", Purged: "purged", Unused: "unused",
	EpochOpened: "epoch-opened", Recovered: "recovered", Overflowed: "overflowed",
	Dead: "dead", Active: "active", TimedOut: "timed-out", Uncommitted: "uncommitted",
}

// String returns the kind's name.
func (k EffectKind) String() string {
	if k >= Deliver && k <= Uncommitted {
		return effectNames[k]
	}
	return "effect?"
}

// Reason says why messages were released or a consumer was refused.
type Reason uint8

const (
	// Acked: a consumer acked the messages.
	Acked Reason = iota + 1
	// AutoAcked: they were assigned to a no-ack consumer.
	AutoAcked
	// Discarded: a consumer rejected them.
	Discarded
	// PurgedAway: they were ready when the queue was purged.
	PurgedAway
	// Dropped: they were dropped to keep a limit.
	Dropped
	// Expired: their time was over.
	Expired
	// Lost: they were transient and the node has restarted.
	Lost
	// Aborted: chunks without a message, a message without its chunks, messages of a transaction that was not committed.
	Aborted

	// NoSession: the session is not open.
	NoSession
	// InUse: there is a consumer of that id.
	InUse
	// NotAlone: the consumer asked to be alone, and there are others.
	NotAlone
	// ExclusiveUse: there is a consumer that has asked to be alone.
	ExclusiveUse

	// NoRoom: the publish was refused, since the queue was as long as it may be.
	NoRoom
	// DeadFull: the publish was refused, since as many dead messages waited as may.
	DeadFull
	// Exhausted: the messages came back more often than the delivery limit allows.
	Exhausted
	// DeadDropped: they were dead, the oldest of too many.
	DeadDropped
	// Ripe: they were ready in a queue that forwards what is.
	Ripe
	// Duplicate: the message has come before.
	Duplicate

	// Stale: a delivery that the transaction settles was not held any more.
	Stale

	lastReason = Stale
)

var reasonNames = [...]string{
	Acked: "acked", AutoAcked: "auto-acked", Discarded: "discarded", PurgedAway: "purged", Dropped: "dropped",
	Expired: "expired", Lost: "lost", Aborted: "aborted",
	NoSession: "no-session", InUse: "in-use", NotAlone: "not-alone", ExclusiveUse: "exclusive-use",
	NoRoom: "no-room", DeadFull: "dead-full", Exhausted: "exhausted", DeadDropped: "dead-dropped",
	Ripe: "ripe", Duplicate: "duplicate", Stale: "stale",
}

// String returns the reason's name.
func (r Reason) String() string {
	if r >= Acked && r <= lastReason {
		return reasonNames[r]
	}
	return "reason?"
}

// Effect is one thing that the host of a queue has to carry out. It is a flat
// union: Kind says which fields count.
type Effect struct {
	Kind   EffectKind
	Reason Reason // Released, Refused, EpochOpened, Overflowed, Dead, Uncommitted

	NoAck       bool // Deliver: the checkout is settled already
	Redelivered bool // Deliver, Dead: the messages may have been delivered before
	Transient   bool // Deliver, Dead: the messages are transient

	Command uint32 // place in the entry of the command that caused it (the first, if several did)

	DeliveryCount uint32 // Deliver, Dead: how often the messages came back by a consumer's fault
	Acquired      uint32 // Deliver, Dead: how often they came back altogether

	Consumer ConsumerID
	Session  SessionID // EpochOpened, Overflowed, Uncommitted
	Delivery uint64    // Deliver: delivery id of First; Dead: its dead id
	First    Number    // Deliver, Released, Overflowed, Dead
	Last     Number
	Count    uint64    // Drained, Purged, EpochOpened, Recovered, Overflowed, TimedOut
	Left     uint64    // Deliver to a getter; Dead: when they died, in seconds since 1970
	Chunks   []Numbers // Deliver, Dead of a big message: where its body is, in order; not to be changed

	attr attr // Deliver, Dead: the history they share
}

// Numbers returns the messages of a Deliver or Released.
func (e *Effect) Numbers() Numbers { return Numbers{e.First, e.Last} }
