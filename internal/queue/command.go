package queue

// Kind says what a Command does. The values are written to the log: they keep
// their meaning for ever.
type Kind uint8

const (
	// Configure sets what the queue was declared with: AutoDelete.
	Configure Kind = 1
	// Enqueue puts Count messages, numbered from Next(Lane) on, at the end of
	// Lane. They are Persistent or all transient; Bytes is their size
	// altogether, and if that is of interest each of them has the same part of it. Session and Seq, if given, are recorded as the last publish
	// accepted of that session. With TTL they expire after so many milliseconds, or when
	// the settings say, whichever is earlier: when they are at the front of their lane. A TTL
	// of nothing is for what is to be delivered by this command or never. With Delay they wait
	// so many nanoseconds before they are ready; the TTL counts from then on.
	//
	// Where the settings refuse publishes at a limit, what does not fit of the block is
	// refused (Overflowed): the last ones of it. The session remembers which they were
	// until Heard says that its node knows.
	//
	// Chunks > 0 says that the one message is big and that its body is in the
	// Chunks chunks that were put in for Session and Upload before. If they are
	// not all there (their session died), the message is released at once with
	// reason Aborted: the publish has failed.
	//
	// Tx > 0 says that the messages belong to a transaction of Session: they have their numbers, and nothing more happens before its Commit. They are
	// released when their session ends, or opens a later epoch, before it, like chunks. Seq and Heard are the Commit's.
	Enqueue Kind = 2
	// Chunk puts Count chunks of a big message, numbered from Next(ChunkLane)
	// on, into the queue for Session and Upload. They are released when their
	// session ends before the message is enqueued, else with their message.
	Chunk Kind = 3
	// Attach adds Consumer for Session with Prefetch, Credit, NoAck, Exclusive,
	// Wake, Priority. With Getter it adds a getter: it is no consumer for
	// anybody who counts, gets nothing by itself, and holds what Get gives it.
	// Answered by Attached or Refused.
	Attach Kind = 4
	// Cancel ends new deliveries to Consumer. What it holds stays with it and can
	// be settled. Answered by Cancelled.
	Cancel Kind = 5
	// Detach removes Consumer; what it holds is requeued. Answered by Detached.
	Detach Kind = 6
	// Credit adds Credit to what Consumer may get (Unlimited: no counting any
	// more). With Drain, what of the whole credit cannot be used at once is
	// taken back, and Drained says how much that was.
	Credit Kind = 7
	// Get gives the first ready message to the getter Consumer, settled at once
	// if NoAck. Answered by Deliver with Left set, or by Empty.
	Get Kind = 8
	// Settle ends the checkouts First to Last (delivery ids) of Consumer, as How
	// says. Ids that are not held (any more) are skipped: it is idempotent. A
	// consumer that is not of Session is left alone, so that a settle of a dead
	// session is swallowed. Tx > 0 says that it belongs to a transaction of Session: it is carried out by its Commit.
	Settle Kind = 9
	// Purge removes all ready messages. Answered by Purged.
	Purge Kind = 10
	// DropHead removes what is still ready of the messages First to Last (numbers
	// of one lane), to keep a limit. Those gone meanwhile are skipped.
	DropHead Kind = 11
	// Expire is DropHead for messages whose time is over.
	Expire Kind = 12
	// SessionOpen opens Session for Incarnation of Node, or, if that is there
	// already, ends its being suspect. A node has one session at most: one of an
	// earlier incarnation dies at once, blamelessly, as by SessionDead. Nothing
	// changes if the session of that incarnation has another id, or if there is one of a
	// later incarnation: the command is late. With Node 0 the session is nobody's,
	// and one that is there under that id, whosever it is, is no longer suspect.
	SessionOpen Kind = 13
	// SessionSuspect stops new deliveries to the consumers of Session.
	SessionSuspect Kind = 14
	// SessionDead ends Session: its consumers are detached, its chunks aborted.
	SessionDead Kind = 15
	// EpochOpen opens Epoch of the publishing half of Session, if it is later than
	// the one open: Seq counts anew, and chunks whose message has not come are
	// aborted (it will be sent again whole). Answered by EpochOpened with the last
	// Seq accepted in the epoch before, however often it is asked; who has not got the
	// answer asks for the same epoch again, since a later one closes this one.
	EpochOpen Kind = 16
	// Recover is the first command of a new incarnation of the queue's node. It
	// drops transient messages, takes back checkouts, and ends every session and
	// consumer. Clean says that the stop before was clean; if not, and if the
	// queue has handed out anything persistent since the last Recover, every
	// message that is left counts as redelivered. Answered by Recovered.
	Recover Kind = 17
	// CreditTo sets the credit of Consumer so that it may get the deliveries up to
	// the delivery id Last (Credit = Unlimited: no counting), whatever it was before:
	// it can be said again, and may lower the credit. Drain as with Credit. It does nothing
	// to a getter.
	CreditTo Kind = 18
	// Set replaces all Settings, those of Configure too. It takes effect at once: what is
	// over a limit leaves, and who may get messages now gets them. With an Epoch, a generation of what the settings come from, it
	// does nothing if the machine was set by a later one.
	Set Kind = 19
	// Bury ends the dead messages First to Last (dead ids), as far as the host has been told of them: their
	// letters are delivered, or there is nobody to deliver them to. Those gone are skipped.
	Bury Kind = 20
	// Due does nothing by itself: it is for an entry whose time is what matters. At NextDeadline
	// there should be one.
	Due Kind = 21
	// Weigh tells that each of the messages First to Last (numbers of one lane) has Bytes. Those gone are
	// skipped, and those of which the size is known.
	Weigh Kind = 22
	// TimeOut takes back what Consumer was given at the time Last or before (nanoseconds) and still holds, and
	// cancels it, if it is no getter. What it was given later stays with it, as after Cancel. If it holds
	// nothing so old, nothing happens; else it is answered by TimedOut.
	TimeOut Kind = 23
	// Commit lets transaction Tx of Session happen: all that Enqueues and Settles have said with it, in their order, the
	// messages first, in this one step; TTL and Delay count from now on. Seq is then the last publish accepted, as with Enqueue. If its messages
	// and settlements are not Parts altogether (its session has died, or has opened another epoch), or if a message of it would be refused at a limit, nothing of
	// it happens, and Uncommitted says so. The numbers since the last publish before it are then refused. Heard is as with Enqueue.
	Commit Kind = 24
	// Abort ends transaction Tx of Session: nothing of it happens.
	Abort Kind = 25

	lastKind = Abort
)

var kindNames = [...]string{
	Configure: "configure", Enqueue: "enqueue", Chunk: "chunk", Attach: "attach", Cancel: "cancel",
	Detach: "detach", Credit: "credit", Get: "get", Settle: "settle", Purge: "purge", DropHead: "drop-head",
	Expire: "expire", SessionOpen: "session-open", SessionSuspect: "session-suspect",
	SessionDead: "session-dead", EpochOpen: "epoch-open", Recover: "recover", CreditTo: "credit-to",
	Set: "set", Bury: "bury", Due: "due",
	Weigh: "weigh", TimeOut: "time-out", Commit: "commit", Abort: "abort",
}

// String returns the kind's name.
func (k Kind) String() string {
	if k >= Configure && k <= lastKind {
		return kindNames[k]
	}
	return "kind?"
}

// Command is one thing to do to a queue. It is a flat union: Kind says which
// fields count.
type Command struct {
	Kind Kind
	Lane uint8      // Enqueue
	How  Settlement // Settle

	Persistent bool // Enqueue
	NoAck      bool // Attach, Get: deliveries are settled when they are assigned
	Exclusive  bool // Attach: nobody else may consume
	Wake       bool // Attach: emit Wake when a message is there and the credit is used up
	Getter     bool // Attach
	Drain      bool // Credit, CreditTo
	// Blameless: the messages come back for no fault of the consumer's, so that only
	// the count of their acquisitions rises, not their delivery count.
	Blameless  bool // Settle with Requeue or Discard, Detach, SessionDead, TimeOut
	Clean      bool // Recover
	AutoDelete bool // Configure

	Count    uint32 // Enqueue, Chunk: how many; 1 to MaxCount
	Chunks   uint32 // Enqueue: of how many chunks the message's body is made; 0 = it is with the message
	Credit   uint32 // Attach, Credit; CreditTo: Unlimited or nothing
	Prefetch uint32 // Attach: how many unacked messages the consumer may hold; 0 = no limit
	Priority int32  // Attach: if Terms say that it counts, those of a higher one are served first; else it is kept and means 0

	Session  SessionID
	Consumer ConsumerID
	Seq      uint64 // Enqueue: sequence number of the last of the publishes within the session
	Epoch    uint64 // EpochOpen; Set: the generation, 0 if there is none
	Upload   uint64 // Chunk, Enqueue: tells apart the big messages a session has under way
	Bytes    uint64 // Enqueue, Chunk: sizes altogether; Weigh: of one
	First    uint64 // Settle: delivery ids; DropHead, Expire, Weigh: numbers; Bury: dead ids
	Last     uint64 // the same; CreditTo: a delivery id; TimeOut: a time

	Node        uint64 // SessionOpen: whose session it is; 0 = nobody's
	Incarnation uint64 // SessionOpen: of Node; it rises with every start
	Outer       uint64 // Attach: what the session calls the consumer; kept with it

	Terms *Terms // what few commands say besides; not to be changed when the command is applied
}

// Terms is what few commands have. nil is the same as the zero value.
type Terms struct {
	Heard   uint64    // Enqueue: the session knows what became of its publishes up to this Seq
	Set     *Settings // Set; nil: nothing special
	TTL     Limit     // Enqueue: milliseconds
	Delay   uint64    // Enqueue: nanoseconds, counted in whole milliseconds
	Ranked  bool      // Attach: Priority counts
	Timeout uint64    // Attach: nanoseconds for which the consumer may hold a message, for the host; 0: for ever. It is kept with it
	// Key tells the message from others, if the queue looks for duplicates: of an Enqueue with Count 1. Of a publisher it
	// is who that is; Sequence is then which of its messages it is.
	Key      Key
	Sequence Limit
	Tx       uint32 // Enqueue, Settle: of which transaction they are part, 0: none; Commit, Abort: which one
	Parts    uint64 // Commit: how many messages and settlements there have to be
	// Carried: the messages of an Enqueue are no publisher's, but come from another queue that keeps them, and tries again
	// should they be refused. So what is refused of them is not dead.
	Carried bool
	Screen  *Screen // Enqueue of one message: it has come through an exchange that lets nothing through twice; nil: it has not
	// Strict: of a Commit nothing happens, either, if a delivery that its settlements name is not held any more; and keys of messages that leave by them
	// are free for its own messages.
	Strict bool
}

var noTerms Terms

// terms returns the command's Terms, which are not to be changed.
func (c *Command) terms() *Terms {
	if c.Terms == nil {
		return &noTerms
	}
	return c.Terms
}

// tx returns Terms.Tx.
func (c *Command) tx() uint32 {
	if c.Terms == nil {
		return 0
	}
	return c.Terms.Tx
}

// MaxCount is the largest Count of a command.
const MaxCount = 1 << 20

// Entry is what a queue applies at a time: one entry of its log.
type Entry struct {
	Index    uint64 // grows from entry to entry
	Time     int64  // nanoseconds, as the leader's clock said when it packed the entry
	Commands []Command
}
