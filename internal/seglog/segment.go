package seglog

import (
	"fmt"

	"holdfast/internal/vfs"
)

// segState is the life of a segment file: free, then active, then sealed; then, emptied and no longer named by a durable
// checkpoint, dead until the last pin is gone, and free again or deleted.
type segState uint8

const (
	segFree segState = iota
	segActive
	segSealed
	segDead
)

func (s segState) String() string { return [...]string{"free", "active", "sealed", "dead"}[s] }

// segment is one file of the log. Fields are guarded by Log.mu except file, id and size, which never change, and those
// marked as belonging to the writer: the committer for the active hot segment, the keeper for the active cold one.
type segment struct {
	id   uint32
	file vfs.File
	size int64

	state    segState
	kind     segmentKind
	gen      uint64
	firstSeq uint64 // of the header frame
	lastSeq  uint64 // highest that counts
	end      int64  // where the next frame goes, or the footer
	stable   int64  // end of the last stable frame; behind it there may be a mark
	openedAt int64  // clock.Mono
	tableEst int    // upper bound of the footer's size (writer)

	// What needs this segment.
	items      uint64 // live items
	liveBytes  int64  // estimated bytes of them, plus snapshots and tail entries
	snaps      int    // newest snapshots and hard states of groups
	tails      int    // entries above their group's snapshot, and kept ones
	kept       int    // entries at or below it that somebody wants to read (KeepTail)
	pins       int    // readers
	runs       []*run // all runs written here, dead ones too while the segment lives
	list       []byte // groups of the last frame, for the footer of a hot segment
	footer     bool   // entry tables are on disk and no longer in memory
	tablesStay bool   // the footer did not fit
	stuck      bool   // holds something that can neither be moved nor dropped
	looked     bool   // shortened, or not to be shortened (keeper)
	cut        int64  // bytes cut off the end of the file

	// For audits: live items at the last look, and when last audited.
	lookedItems, auditedItems uint64
}

// Space for the footer's head and directory beside the tables.
const footerSpare = 2 * headSize

// footerRoom is how much is kept for a footer with tables of so many bytes.
func footerRoom(tables int) int64 { return int64(alignPage(tables + footerSpare)) }

func segmentName(id uint32) string { return fmt.Sprintf("%08x.seg", id) }

// room is how many bytes of frames still fit, keeping space for the footer with tables of so many more bytes.
func (s *segment) room(moreTables int) int64 {
	return s.rest(footerRoom(s.tableEst + moreTables))
}

// rest is how many bytes of frames still fit if so much is kept for the footer.
func (s *segment) rest(footer int64) int64 { return s.size - s.end - footer }

// taken is what the file takes of the disk.
func (s *segment) taken() int64 { return s.size - s.cut }

// unused is about how much of a sealed segment's file nothing is in.
func (s *segment) unused() int64 { return s.taken() - s.end - int64(alignPage(s.tableEst)) }

// empty tells whether nothing needs the segment but, perhaps, readers.
func (s *segment) empty() bool { return s.items == 0 && s.snaps == 0 && s.tails == 0 }

// run is one group's items in one segment whose ids ascend without wild jumps (so that two lanes of a queue make two runs).
// It is the unit of liveness: one held item keeps its run's segment, and what the rewriter moves.
type run struct {
	g           *group
	seg         *segment
	first, last uint64 // span of all ids ever in the run
	reach       uint64 // highest last of this and all runs before it in group.runs
	listed      bool   // in group.runs
	live        idset
	items       uint64 // ever in the run
	bytes       int64  // of all items ever in the run
	exact       int64  // if not 0: audited live bytes when auditN ids were live
	auditN      uint64
	minItem     uint32
	maxItem     uint32

	// Where the items are: in memory until the footer is written, then in the footer.
	entries []entry
	tabOff  int64
	tabLen  int
}

// entry says that the items first..first+count-1 are in the record at off.
type entry struct {
	first uint64
	count uint32
	off   uint32
}

// liveBytes estimates the bytes of the live items from their number; where sizes differ much, the keeper audits the run now
// and then and the estimate starts from what it counted.
func (r *run) liveBytes() int64 {
	if r.items == 0 {
		return 0
	}
	if r.auditN > 0 {
		return scale(r.exact, r.live.n, r.auditN)
	}
	return scale(r.bytes, r.live.n, r.items)
}

func scale(bytes int64, part, whole uint64) int64 {
	return int64(float64(bytes) * (float64(part) / float64(whole)))
}
