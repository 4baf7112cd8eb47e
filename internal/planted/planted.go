package planted

// Bug is one mistake.
type Bug uint8

// The mistakes, by the room that makes them.
const (
	None Bug = iota

	// seglog
	SyncSkipped   // a frame is told to be stable without a sync
	TailCutTooFar // the last whole frame counts as torn
	DamageUnseen  // what a group lost to damage is left out, and nobody is told

	// replica
	VoteNotWritten     // a vote leaves although it is on no disk
	VotesForgotten     // term and vote are not restored
	AnswerBeforeSync   // what waits for the disk is answered at once
	StagedNotStable    // items of a state count as received before they are on disk
	PayloadOfOther     // what raft had no use for is kept, and taken for what a later entry of the same index carries
	CommitAhead        // an entry says that it is committed itself
	ConfEarly          // a change of members counts when it is appended
	InstallWithoutItem // a state is sent without its items
	ReleasedEarly      // what a state replaces is let go of before the state is on disk
	ReleasedTooMuch    // what a state replaces is let go of although the new one has it, too
	ServesEarly        // a leader serves before it has applied an entry of its term
	ReadsUnasked       // a leader answers read barriers without asking whether it still leads
	BarrierAtOnce      // a member answers read barriers without asking anybody
	WallClock          // the time of entries is the wall clock's

	// queue
	CountLost         // a message that comes back by a consumer's fault is not counted
	FlagLost          // a message that comes back does not say that it was delivered before
	DoubleCheckout    // now and then a message that is handed out stays ready
	DeadKeeps         // what a session held that ends does not come back
	SettlesAnother    // a settlement hits another consumer of the same session
	EpochForgotten    // an epoch that is asked for again says that nothing was accepted before it
	PurgeTakesHeld    // a purge takes what a consumer holds, too
	DeadlineLost      // a message that comes back does not expire any more
	TxHalf            // a commit leaves out the last message
	TxSettlesLost     // a commit leaves out the settlements
	KeyUnkept         // now and then it is forgotten that a message with a key has come
	KeyStays          // the key of a message that is gone stays
	KeyFreed          // the key of a message is free as soon as it is handed out
	NumbersSkipped    // all numbers of a publisher below one that was accepted count as accepted
	ScreensMixed      // keys count for all exchanges that let nothing through twice alike
	PauseLeaks        // now and then a message of a queue that is paused is delivered
	DelayHalved       // a message waits for half of its time
	LimitEarly        // a message that has come back as often as it may is dead
	TwoActive         // now and then a consumer gets messages though another one is the single active one
	RefusalsForgotten // what was refused in an epoch is forgotten when it is closed
	OneTooMany        // a queue that drops keeps one more than its limit
	DeadReleased      // now and then a message that dies is gone without a letter
	BuriedStay        // now and then a letter that has arrived stays

	// queuehost
	ConfirmEarly      // a publish is accepted as soon as it is packed
	EpochNotRaised    // a try opens the epoch in which publishes were sent
	SentTwice         // publishes that the old epoch has are sent again
	SettlesNotResent  // settlements that were under way are forgotten with the try
	ResumedTooFar     // a consumer that is attached again says it has one delivery more than it has
	CreditDoubled     // a consumer that is attached again states its credit twice
	GetterKeeps       // what a getter got and never heard of stays with it
	StaleTry          // what comes of a try that is over is believed
	SettledEarly      // settlements count as carried out as soon as they are packed
	IDsForgotten      // a new leader gives out ids of consumers that are there
	FollowerSkips     // a member leaves out a command that others have packed
	OrderLost         // publishes that are sent again go out of order
	ConsumersNotAgain // a consumer is not attached again when the session is resumed
	WindowLeaks       // publishes of a try that is over are not given back
	ChunksKept        // chunks of a publish whose time is over stay with the leader, and begin the next one's body
	RefusedAccepted   // publishes that were refused count as accepted when their session is resumed
	HeardTooFar       // a node is said to know of refusals that were not told yet
	SettingsForgotten // a new leader does not look what the catalog says of its queue
	LettersUntold     // a new leader does not hand over the dead letters that it finds
	DueUndone         // nobody wakes when a message expires
	DelayUnread       // what a message says of its own delay is not looked at
	ScreenUnsent      // a part of a transaction does not say by way of which exchange it comes that lets nothing through twice

	// node/catgroup
	CommandSkipped // a node leaves out a command of another one now and then
	CommandTwice   // a command of which nobody knows what became is sent again at once
	StateUnheard   // a command that came with a whole state is sent again
	AnsweredHere   // a command is answered as soon as the node that asks has it

	// broker
	SyncForgets   // members of queues that came with a whole catalog are not begun
	PolicyUnheard // queues do not hear of policies
	LevelUnheard  // queues do not hear that the cluster has gone to another level
	BuriedEarly   // a letter is let go of as soon as it is sent
	RefusedArrive // a letter that a target has not taken counts as arrived
	HeldStay      // a letter that a target has not taken is not tried again
	SentToAll     // a letter that is tried again goes to the targets that have it, too
	CarriedAsNew  // what is carried goes as if its publisher had sent it

	bugs
)

var names = [...]string{
	None:               "none",
	SyncSkipped:        "sync skipped",
	TailCutTooFar:      "tail cut too far",
	DamageUnseen:       "damage unseen",
	VoteNotWritten:     "vote not written",
	VotesForgotten:     "votes forgotten",
	AnswerBeforeSync:   "answer before sync",
	StagedNotStable:    "staged not stable",
	PayloadOfOther:     "payload of other",
	CommitAhead:        "commit ahead",
	ConfEarly:          "conf early",
	InstallWithoutItem: "install without item",
	ReleasedEarly:      "released early",
	ReleasedTooMuch:    "released too much",
	ServesEarly:        "serves early",
	ReadsUnasked:       "reads unasked",
	BarrierAtOnce:      "barrier at once",
	WallClock:          "wall clock",
	CountLost:          "count lost",
	FlagLost:           "flag lost",
	DoubleCheckout:     "double checkout",
	DeadKeeps:          "dead keeps",
	SettlesAnother:     "settles another",
	EpochForgotten:     "epoch forgotten",
	PurgeTakesHeld:     "purge takes held",
	DeadlineLost:       "deadline lost",
	TxHalf:             "half a transaction",
	TxSettlesLost:      "transaction without settlements",
	KeyUnkept:          "key not kept",
	PauseLeaks:         "pause leaks",
	DelayHalved:        "delay halved",
	LimitEarly:         "limit early",
	TwoActive:          "two active",
	RefusalsForgotten:  "refusals forgotten",
	OneTooMany:         "one too many",
	DeadReleased:       "dead released",
	BuriedStay:         "buried stay",
	ConfirmEarly:       "confirm early",
	EpochNotRaised:     "epoch not raised",
	SentTwice:          "sent twice",
	SettlesNotResent:   "settles not resent",
	ResumedTooFar:      "resumed too far",
	CreditDoubled:      "credit doubled",
	GetterKeeps:        "getter keeps",
	StaleTry:           "stale try",
	SettledEarly:       "settled early",
	IDsForgotten:       "ids forgotten",
	FollowerSkips:      "follower skips",
	OrderLost:          "order lost",
	ConsumersNotAgain:  "consumers not again",
	WindowLeaks:        "window leaks",
	ChunksKept:         "chunks kept",
	RefusedAccepted:    "refused accepted",
	HeardTooFar:        "heard too far",
	SettingsForgotten:  "settings forgotten",
	LettersUntold:      "letters untold",
	DueUndone:          "due undone",
	DelayUnread:        "delay unread",
	CommandSkipped:     "command skipped",
	CommandTwice:       "command twice",
	StateUnheard:       "state unheard",
	AnsweredHere:       "answered here",
	SyncForgets:        "sync forgets",
	PolicyUnheard:      "policy unheard",
	LevelUnheard:       "level unheard",
	BuriedEarly:        "buried early",
	RefusedArrive:      "refused letters arrive",
	HeldStay:           "held letters stay",
	SentToAll:          "sent to all again",
	CarriedAsNew:       "carried as new",
	KeyStays:           "key stays",
	KeyFreed:           "key freed early",
	NumbersSkipped:     "numbers skipped",
	ScreensMixed:       "keys of exchanges mixed",
	ScreenUnsent:       "screen not sent",
}

// String returns the mistake's name.
func (b Bug) String() string {
	if b < bugs {
		return names[b]
	}
	return "?"
}

// now is the mistake that is made. It is set before anything begins and after everything has ended, never in between.
var now Bug

// Is reports whether a mistake is to be made here. It costs a load and a comparison.
func Is(b Bug) bool { return now == b }

// Plant makes a mistake from now on, or none; only tests of the simulations do that.
func Plant(b Bug) { now = b }
