package seglog

import (
	"errors"
	"io"

	"holdfast/internal/vfs"
)

type pending struct{}

// Log is a segment log.
type Log struct{}

// Ref is a pinned item: its segment is kept until Unpin.
type Ref struct{ l *Log }

// Reader is one goroutine's way to read items: it caches the whole record of the last read and reads ahead.
type Reader struct{ l *Log }

// Open reads the checkpoint, scans the tail and decides torn tail or corruption. It changes nothing on disk.
func Open(fs vfs.FS, dir string, o Options) (*Log, error) {
	return nil, errors.New("seglog: not built yet")
}

// Replay hands back, group by group in order of id, the newest snapshot and then the entries after it in log order.
// Quarantined groups are left out.
func (l *Log) Replay(fn func(Replayed) error) error { return nil }

// Clean tells whether the last stop wrote the clean mark and nothing was written since.
func (l *Log) Clean() bool { return false }

// Quarantined lists the groups hit by corruption.
func (l *Log) Quarantined() []Hit { return nil }

// SetLive says, after Replay and before Start, that exactly these ids of g are live. A group never set keeps all.
func (l *Log) SetLive(g GroupID, live []Range) {}

// Start begins to accept appends.
func (l *Log) Start() {}

// Append queues a batch. It never blocks. The log keeps references to Meta and Items until Stable.
func (l *Log) Append(b *Batch) {}

// Release says that ids are no longer needed once the entry with this index is stable. Idempotent; the slice is copied.
func (l *Log) Release(g GroupID, index uint64, ranges []Range) {}

// Pin finds an item and keeps its segment. No I/O. False: the id is unknown, dead or not yet stable.
func (l *Log) Pin(g GroupID, id uint64) (Ref, bool) { return Ref{}, false }

// NewReader returns a Reader for one goroutine.
func (l *Log) NewReader() *Reader { return &Reader{l: l} }

// Read returns the item. The bytes are valid until the next Read.
func (r *Reader) Read(ref Ref) ([]byte, error) { return nil, nil }

// Unpin lets go of the segment. Exactly once per Pin.
func (ref Ref) Unpin() {}

// Close drains and stops. clean says that the caller appended final snapshots: a checkpoint with the clean mark is written.
func (l *Log) Close(clean bool) error { return nil }

// Stats returns a picture of the log.
func (l *Log) Stats() Stats { return Stats{} }

// Dump writes what the log holds in readable form.
func (l *Log) Dump(w io.Writer) error { return nil }

// DumpGroup calls fn for every whole item of a group, quarantined or not, in order of id where known.
func (l *Log) DumpGroup(g GroupID, fn func(id uint64, item []byte) error) error { return nil }
