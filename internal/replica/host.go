package replica

import (
	"holdfast/internal/invariant"
	"holdfast/internal/seglog"
)

// Host is what a group brings along: its machine and what surrounds it. All
// methods are called by the one worker that owns the group, or, before the
// node is started, by the goroutine that replays. None may block.
type Host interface {
	// Pack fills e with pending commands, at most one entry's worth: about
	// MaxEntryBytes of items and MaxEntryCommands commands. It reports whether
	// more is pending than went in. An entry left empty is not applied. For a
	// direct group, e.Logged is false: nothing needs to be encoded.
	Pack(e *Entry) (more bool)
	// Apply carries out the entry that was packed last.
	Apply(e *Entry)
	// Stable says that the entries up to index are on disk. Only solo groups
	// hear it, in order, and before the Pack of the same round.
	Stable(index uint64)
	// Overdue says that entries up to index have waited for the disk longer
	// than Options.Overdue. It may come again, with the same index or a higher one.
	Overdue(index uint64)
	// Replay applies an entry read from the log. Nothing follows from it.
	Replay(e seglog.Replayed) error
	// Failed says that the group's records make no sense, or that items of it are
	// missing. Nothing of it is replayed from then on, and the host must not pack anything.
	Failed(err error)
	// Restore takes the state from a snapshot.
	Restore(blob []byte) error
	// AppendSnapshot appends the state as of the last entry applied.
	AppendSnapshot(dst []byte) []byte
	// Live appends the ids of the items that the state still needs, all of which
	// must be in the log; ok is false if whatever is there is to be kept, as for a
	// group nobody has claimed.
	Live(dst []seglog.Range) (live []seglog.Range, ok bool)
	// Recover is called once after the replay, before the first Pack: the
	// commands of the last incarnation are all there, and clean says whether it
	// ended in an orderly way. It reports whether there is something to pack.
	Recover(clean bool) (wake bool)
}

// RaftHost is what a host must do beyond Host to be replicated. Of a raft group
// the items' bytes never change, and Stable and Recover(false) are never called: what is
// applied is on disk, on this member and on a majority, and there is nothing to
// take back after a stop of one of them. Pack is called on the leader only, once it
// has applied all entries of earlier terms, and with no entry under way.
type RaftHost interface {
	Host
	// ApplyForeign applies an entry that another member packed, or this one before it
	// lost the leadership. Effects that only a leader carries out do not follow. ids and
	// items are what the entry carries; they belong to the host, and must not be
	// changed. nil bytes: the item is in this node's log only.
	ApplyForeign(e *Entry, meta []byte, ids []seglog.Range, items [][]byte)
	// Abandoned says that the entry packed last will not be applied as packed here. It
	// may still be applied as a foreign one.
	Abandoned()
	// Role says which node leads in this term, 0 if nobody is known to. serving: it is
	// this one, and it has applied all that went before, so Pack is called from now on.
	Role(term, leader uint64, serving bool)
}

// FreezingHost is a host whose state may become large.
type FreezingHost interface {
	Host
	// Freeze returns what appends the state as it is now, as AppendSnapshot would: later, once, on another goroutine, while the host
	// goes on. nil: AppendSnapshot does as well.
	Freeze() (appendState func(dst []byte) []byte)
}

// GroupedHost is a host that has to know its group from the first call on. Messages of other nodes, and the worker, reach a
// group of a node that runs as soon as it is there, which is before whoever adds it has it.
type GroupedHost interface {
	// SetGroup is called before anything else, by the goroutine that adds the group.
	SetGroup(g *Group)
}

// An entry ends when it has about so many bytes of items, or commands.
const (
	MaxEntryBytes    = 256 << 10
	MaxEntryCommands = 4096
)

// Entry is what a host packs in one round: commands that are applied together
// and stand or fall together on disk.
type Entry struct {
	Index, Term uint64
	Time        int64 // unix nanoseconds; never falls within a group, and passes as time does, wherever the wall clock jumps to
	Logged      bool  // the entry goes to the log
	Sync        bool  // somebody waits for it to be stable
	// Meta is where the host appends its encoded commands. It comes empty, with
	// room that the entries of a round share.
	Meta []byte

	packed bool
	round  *round
}

// Pack marks the entry as not empty.
func (e *Entry) Pack() { e.packed = true }

// Item adds one item, for instance a message's body, under an id that rises
// within the entry. Its bytes must not change until the entry is stable.
func (e *Entry) Item(id uint64, item []byte) {
	if !e.Logged {
		invariant.Failf("item %d for an entry that is not logged", id)
	}
	e.round.item(id, item)
}
