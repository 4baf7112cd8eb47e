package seglog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// Why ReadEntry may have nothing to read.
var (
	// ErrCompacted: the entry lies below what the log keeps. A snapshot has its effect.
	ErrCompacted = errors.New("seglog: the entry is below what is kept")
	// ErrUnavailable: the group has no stable entry with that index.
	ErrUnavailable = errors.New("seglog: there is no such entry")
)

// Entry is an entry read back. It belongs to the caller.
type Entry struct {
	Replayed
	Items [][]byte // of IDs, in order, also those released since
}

// ReadEntry reads an entry above the group's newest snapshot, or one kept below it (KeepTail), as it was appended. An entry
// that is being replaced may still come; its Term tells. It does I/O on the caller's goroutine, as Read does, and reads
// ahead: entries in order cost few reads. Where an entry above the snapshot is damaged, the error is a CorruptError and the
// group is quarantined; a damaged one below it is let go of (ErrCompacted).
func (r *Reader) ReadEntry(gid GroupID, index uint64) (Entry, error) {
	l := r.l
	l.mu.Lock()
	g := l.groups[gid]
	p, kept, err := g.entryAt(index)
	if err != nil {
		l.mu.Unlock()
		return Entry{}, err
	}
	p.seg.pins++
	r.back.limit = p.seg.stable // what was read ahead beyond it may have been written since
	l.mu.Unlock()
	_, rec, err := r.back.record(p.seg, p.off)
	l.unpin(p.seg)
	if r.back.read > 0 {
		l.stats.reads.Add(1)
		l.stats.readBytes.Add(uint64(r.back.read))
	}
	if err == nil && (rec.group != gid || rec.kind != KindEntry || rec.index != index) {
		err = errors.New("another record where the entry was")
	}
	if err == nil {
		return rec.entry(), nil
	}
	r.back.seg = nil
	if errors.Is(err, fs.ErrClosed) {
		return Entry{}, err
	}
	reason := fmt.Sprintf("entry %d in %s: %v", index, segmentName(p.seg.id), err)
	if kept {
		l.log.Warn("an entry kept for another member is damaged", "group", uint64(gid), "reason", reason)
		l.mu.Lock()
		if g.repl != nil { // nil: dropped meanwhile
			l.unkeep(g, index)
			l.changed = true
		}
		l.mu.Unlock()
		return Entry{}, ErrCompacted
	}
	l.hitWhileRunning(gid, reason)
	return Entry{}, &CorruptError{Group: gid, Index: index, Err: err}
}

// entry copies the record.
func (r *record) entry() Entry {
	buf := slices.Concat(r.meta, r.items)
	n := len(r.meta)
	e := Entry{Replayed: Replayed{
		Group: r.group, Kind: r.kind, Term: r.term, Index: r.index, Time: r.time, Meta: buf[:n:n], IDs: r.ids(),
	}}
	if k := len(r.ends) / 4; k > 0 {
		e.Items = make([][]byte, k)
		for i := range e.Items {
			end := n + len(r.item(i))
			e.Items[i] = buf[n:end:end]
			n = end
		}
	}
	return e
}
