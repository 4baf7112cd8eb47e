package seglog

import (
	"fmt"
	"log/slog"
	"time"

	"holdfast/internal/clock"
)

// GroupID names one writer of the log: a queue, or the catalog (1). Ids are never reused.
type GroupID uint64

// Range is the ids First..Last, both included.
type Range struct{ First, Last uint64 }

// Block is a run of items: Items[i] has the id First+i.
type Block struct {
	First uint64
	Items [][]byte
}

// Kind says what a record means to recovery. The log never looks further into a record than this.
type Kind uint8

// The kinds of record a caller may append.
const (
	// KindEntry is one entry of a group: replayed until a snapshot with this index or a higher one is stable.
	KindEntry Kind = 1
	// KindSnapshot holds a group's whole state as of Index (Meta): the group's recovery point.
	KindSnapshot Kind = 2
	// KindDrop ends a group: when it is stable everything of the group is dead.
	KindDrop Kind = 3
	// KindHardState is what a member of a replicated group has promised (term, vote): the newest one (Meta) is kept beside the
	// newest snapshot. Index means nothing.
	KindHardState Kind = 4
	// KindInstall is a KindSnapshot that came from another member: entries above it are dead, too, with their items. Without
	// Blocks.
	KindInstall Kind = 5
	// KindItems brings items of a state that is being received from another member: they belong to no entry, and live like
	// others until they are released. Index means nothing.
	KindItems Kind = 6

	kindLive Kind = 16 // survivors copied by the rewriter
)

func (k Kind) String() string {
	switch k {
	case KindEntry:
		return "entry"
	case KindSnapshot:
		return "snapshot"
	case KindDrop:
		return "drop"
	case KindHardState:
		return "hardstate"
	case KindInstall:
		return "install"
	case KindItems:
		return "items"
	case kindLive:
		return "live"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Record is what a group writes at once. Entries of a group have dense indexes: each is the one before plus one. In a
// replicated group an index may step back, never to the snapshot's or below: the entry then replaces those at and above it.
// Their items are dead as soon as it is stable, and their ids may come again with other bytes, from this entry on.
type Record struct {
	Group GroupID
	Kind  Kind
	// Term is 0 in a group that is not replicated, and only there. A snapshot's is that of the entry at its index.
	Term   uint64
	Index  uint64
	Time   int64
	Meta   []byte  // the commands, the snapshot, or the hard state
	Blocks []Block // bodies; ids are unique per group for ever but for replaced entries, ascending per record, not necessarily dense
	// Later gives the Meta of a KindSnapshot that is large, appended to dst: not now, but when the log calls it, on a goroutine of its
	// own, after what the group appended before is stable. It writes the snapshot then without holding up others; Stable does not wait
	// for that, and nobody is told. One that was not written yet gives way to a newer one, and to the end of the log.
	Later func(dst []byte) []byte
}

// Batch is what one caller appends at once. It may be used again after Stable was called.
type Batch struct {
	Records []Record
	// Sync asks for a commit as soon as the one before has ended. Without it the batch rides on the next commit, which
	// comes at most a second later, or when 256 KiB wait.
	Sync bool
	// Stable is called on the committer's goroutine when all records are on disk. It must not block and may append.
	// Batches that share a group become stable in the order they were appended; others may overtake.
	Stable func(*Batch)

	p pending
}

// Replayed is one record as recovery hands it back; an installed snapshot comes as KindSnapshot. Meta belongs to the callee.
type Replayed struct {
	Group GroupID
	Kind  Kind
	Term  uint64
	Index uint64
	Time  int64
	Meta  []byte
	IDs   []Range // ids of the items the record carried
}

// Hit is a group that lost records to corruption. Its records are kept but not replayed.
type Hit struct {
	Group  GroupID
	Reason string
}

// AlarmKind tells alarms apart.
type AlarmKind uint8

// The alarms of the log.
const (
	// AlarmSpace: no segment can be made, or less than Options.FreeMark is left on the disk. Appends wait.
	AlarmSpace AlarmKind = 1
	// AlarmSlowSync: a write or sync has not returned for half of Options.HangLimit.
	AlarmSlowSync AlarmKind = 2
)

func (k AlarmKind) String() string {
	switch k {
	case AlarmSpace:
		return "space"
	case AlarmSlowSync:
		return "slow sync"
	}
	return fmt.Sprintf("alarm(%d)", uint8(k))
}

// Events is how the log speaks up. Each may be nil. They are called on goroutines of the log and must not block.
type Events struct {
	// NeedSnapshot asks for a KindSnapshot record of these groups soon: their entries hold back a checkpoint or a
	// segment that could be freed. Asking again is normal, not answering costs disk.
	NeedSnapshot func([]GroupID)
	// Alarm is called on each change.
	Alarm func(kind AlarmKind, on bool, why string)
	// Fatal is called once: a write or sync failed, or hung longer than HangLimit. No Stable is ever called again.
	Fatal func(error)
	// Hit reports corruption met while running, when a body is read or moved. Quarantined names the group from then on.
	Hit func(Hit)
}

// Options of a log. The zero value of each field means its default.
type Options struct {
	// SegmentMin and SegmentMax bound the size of segment files (16 MiB, 256 MiB).
	SegmentMin, SegmentMax int64
	// FrameMax caps what one commit writes (1 MiB). A larger record gets a frame of its own.
	FrameMax int
	// CheckpointBytes and CheckpointEvery bound what recovery has to scan (256 MiB, 60 s).
	CheckpointBytes int64
	CheckpointEvery time.Duration
	// HangLimit is how long a write or sync may take before it counts as failed (10 s).
	HangLimit time.Duration
	// NoSyncDelay is how long a batch without Sync may wait (1 s).
	NoSyncDelay time.Duration
	// FreeMark raises AlarmSpace when the disk has less free (0: only when no segment can be made).
	FreeMark uint64
	// FillRate bounds background zero-filling of segments in bytes a second (256 MiB).
	FillRate int64
	// ReadOnly opens without lock and refuses Start: for looking at a log.
	ReadOnly bool
	// Stepped starts no goroutines: StepCommit and StepKeep do what they would do, for a simulator.
	Stepped bool

	Clock  clock.Clock
	Logger *slog.Logger
	Events Events
}

// Stats is a picture of the log. Counters only grow.
type Stats struct {
	// Segments by state, and what their files take on disk.
	Hot, Cold, Free int
	DiskBytes       int64
	SegmentSize     int64 // size new segments get now
	// Of the bytes in hot and cold segments: needed by a live item, a snapshot or an entry above it; and the rest.
	LiveBytes, DeadBytes int64
	KeptBytes            int64 // of LiveBytes: segments with entries below a snapshot that KeepTail keeps, counted whole
	Groups, Runs         int
	LiveItems            int64

	Syncs          uint64 // of frames with records
	Records, Items uint64 // made stable; Items/Syncs is messages per sync
	WrittenBytes   uint64 // by commits, padding included
	QueuedBytes    int64  // appended and not yet stable
	QueuedBatches  int64

	RewrittenBytes, RewrittenSegments, RecycledSegments uint64
	Checkpoints                                         uint64
	FrameReads, ReadBytes                               uint64 // preads by readers
	Quarantined                                         int
	SpaceAlarm                                          bool
	Failed                                              bool
}
