package replica

// planted is a mistake that raft groups make, for tests that must notice it (TestRaftSimulationNotices). Outside of tests
// it is none, always.
var planted mistake

type mistake uint8

const (
	noMistake          mistake = iota
	voteNotWritten             // a vote leaves although it is on no disk
	votesForgotten             // term and vote are not restored
	answerBeforeSync           // what waits for the disk is answered at once
	stagedNotStable            // items of a state count as received before they are on disk
	payloadOfOther             // what raft had no use for is kept, and taken for what a later entry of the same index carries
	commitAhead                // an entry says that it is committed itself
	confEarly                  // a change of members counts when it is appended
	installWithoutItem         // a state is sent without its items
	releasedEarly              // what a state replaces is let go of before the state is on disk
	releasedTooMuch            // what a state replaces is let go of although the new one has it, too
	servesEarly                // a leader serves before it has applied an entry of its term
	readsUnasked               // a leader answers read barriers without asking whether it still leads
)
