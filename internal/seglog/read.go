package seglog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"holdfast/internal/invariant"
	"holdfast/internal/vfs"
)

// Ref is a pinned item: its segment is kept until Unpin, even when the item is released meanwhile.
type Ref struct {
	l     *Log
	r     *run
	id    uint64
	again bool // another record of the segment may have held the id before
}

// PinRange finds a live, stable item, first, and keeps its segment. It says for how many of first..last that one Ref is good
// (At names the others). 0: first is unknown, dead or not yet stable. No I/O.
func (l *Log) PinRange(gid GroupID, first, last uint64) (ref Ref, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.groups[gid]
	if g == nil {
		return Ref{}, 0
	}
	r := g.find(first)
	if r == nil {
		return Ref{}, 0
	}
	r.seg.pins++
	return Ref{l, r, first, g.repl != nil && g.repl.again}, r.live.dense(first, last)
}

// At is the same Ref for a neighbour that PinRange found with it.
func (ref Ref) At(id uint64) Ref {
	ref.id = id
	return ref
}

// Unpin lets go of the segment. Exactly once per PinRange.
func (ref Ref) Unpin() { ref.l.unpin(ref.r.seg) }

func (l *Log) unpin(s *segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.pins--
	invariant.That(s.pins >= 0, "a segment was unpinned more often than pinned")
	if s.pins == 0 && s.state == segDead {
		kick(l.keepKick)
	}
}

// CorruptError says that an item, or an entry, cannot be read because its bytes are damaged. Its group is quarantined from then
// on.
type CorruptError struct {
	Group GroupID
	ID    uint64 // of the item
	Index uint64 // of the entry; 0 if it is an item
	Err   error
}

func (e *CorruptError) Error() string {
	if e.Index > 0 {
		return fmt.Sprintf("entry %d of group %d: %v", e.Index, e.Group, e.Err)
	}
	return fmt.Sprintf("item %d of group %d: %v", e.ID, e.Group, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// Reader is one goroutine's way to read items and entries: it keeps the record of the last item whole, and what was read ahead.
type Reader struct {
	l       *Log
	seg     *segment // of rec
	off     uint32
	rec     record
	w       window
	run     *run // of entries
	entries []entry
	back    window // for ReadEntry
}

// NewReader returns a Reader for one goroutine.
func (l *Log) NewReader() *Reader {
	return &Reader{l: l, w: window{reuse: true}, back: window{reuse: true}}
}

// Read returns the item. The bytes are valid until the next Read.
func (r *Reader) Read(ref Ref) ([]byte, error) {
	if r.seg == ref.r.seg && r.rec.group == ref.r.g.id && !ref.again {
		if item, ok := r.rec.find(ref.id); ok {
			return item, nil
		}
	}
	e, err := r.locate(ref)
	if err == nil {
		if r.seg == ref.r.seg && r.off == e.off {
			if item, ok := r.rec.find(ref.id); ok {
				return item, nil
			}
		}
		var item []byte
		item, err = r.load(ref, e.off)
		if err != nil && r.w.read == 0 {
			// What was read ahead is older than the record: the segment was being written, or has been used again.
			r.w.seg = nil
			item, err = r.load(ref, e.off)
		}
		if err == nil {
			return item, nil
		}
	}
	r.seg = nil
	if errors.Is(err, fs.ErrClosed) {
		return nil, err
	}
	r.l.hitWhileRunning(ref.r.g.id, fmt.Sprintf("item %d in %s: %v", ref.id, segmentName(ref.r.seg.id), err))
	return nil, &CorruptError{Group: ref.r.g.id, ID: ref.id, Err: err}
}

// locate finds the entry that holds the item.
func (r *Reader) locate(ref Ref) (entry, error) {
	if r.run == ref.r {
		if e, ok := findEntry(r.entries, ref.id); ok {
			return e, nil
		}
	}
	entries, err := r.l.entriesOf(ref.r)
	if err != nil {
		return entry{}, err
	}
	r.run, r.entries = ref.r, entries
	if e, ok := findEntry(entries, ref.id); ok {
		return e, nil
	}
	return entry{}, errors.New("not in its table")
}

// load makes the record at off the current one and returns the item.
func (r *Reader) load(ref Ref, off uint32) ([]byte, error) {
	r.seg = nil
	if ref.again { // nor may an older record with the same id be taken for it that lay there before
		r.l.mu.Lock()
		r.w.limit = ref.r.seg.stable
		r.l.mu.Unlock()
	} else {
		r.w.limit = 0
	}
	_, rec, err := r.w.record(ref.r.seg, off)
	if r.w.read > 0 {
		r.l.stats.reads.Add(1)
		r.l.stats.readBytes.Add(uint64(r.w.read))
	}
	if err != nil {
		return nil, err
	}
	item, ok := rec.find(ref.id)
	if !ok || rec.group != ref.r.g.id {
		return nil, errors.New("another record where the item was")
	}
	r.seg, r.off, r.rec = ref.r.seg, off, rec
	return item, nil
}

// window is a stretch of a file read at once: the next records are likely asked for next.
type window struct {
	seg   *segment
	off   int64
	buf   []byte
	reuse bool // records die with the next call; otherwise every stretch gets a buffer of its own
	ahead int  // how much the next read takes
	read  int  // bytes the last call read
	// limit, if not 0, is where what is stable ends: nothing beyond it is read ahead.
	limit   int64
	bounded bool // buf was read so
}

const (
	readAheadMin = 16 << 10
	readAheadMax = 256 << 10
)

// record returns the record at off and its bytes.
func (w *window) record(s *segment, off uint32) ([]byte, record, error) {
	w.read = 0
	p := w.at(s, int64(off))
	size := recordLength(p)
	if size == 0 || size > len(p) {
		if err := w.fill(s, int64(off), size); err != nil {
			return nil, record{}, err
		}
		if size = recordLength(w.buf); size > len(w.buf) {
			if err := w.fill(s, int64(off), size); err != nil {
				return nil, record{}, err
			}
		}
		p = w.buf
	}
	rec, err := parseRecord(p)
	if err != nil {
		return nil, rec, err
	}
	return p[:rec.length], rec, nil
}

// at is what the window holds from off on.
func (w *window) at(s *segment, off int64) []byte {
	if s != w.seg || off < w.off || off >= w.off+int64(len(w.buf)) || w.limit > 0 && !w.bounded {
		return nil
	}
	return w.buf[off-w.off:]
}

// fill reads at least need bytes from off on (fewer at the end of the file), more when reading has gone forward before.
func (w *window) fill(s *segment, off int64, need int) error {
	if s == w.seg && off >= w.off && off <= w.off+int64(len(w.buf))+readAheadMax {
		w.ahead = min(max(2*w.ahead, readAheadMin), readAheadMax)
	} else {
		w.ahead = readAheadMin
	}
	w.seg = nil
	need = max(need, recordHead)
	end := s.size
	if w.limit > 0 {
		end = w.limit
	}
	if off+int64(need) > end {
		return errors.New("record: longer than its segment")
	}
	n := int(min(int64(max(w.ahead, need)), end-off))
	if !w.reuse || cap(w.buf) < n {
		w.buf = make([]byte, max(n, min(2*n, readAheadMax)))
	}
	w.buf = w.buf[:n]
	got, err := readAt(s.file, w.buf, off)
	w.read += got
	w.buf = w.buf[:got]
	if got < need {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	w.seg, w.off, w.bounded = s, off, w.limit > 0
	return nil
}

// readTries is how often a read is tried that the file system refuses: what a disk says once need not be so.
const readTries = 3

// readAt is ReadAt for what is only worth an alarm if it stays: that something cannot be read just now is no damage.
func readAt(f vfs.File, p []byte, off int64) (n int, err error) {
	for range readTries {
		if n, err = f.ReadAt(p, off); err == nil || err == io.EOF || errors.Is(err, fs.ErrClosed) {
			break
		}
	}
	return n, err
}
