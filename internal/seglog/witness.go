package seglog

import (
	"fmt"
	"io"
	"sync/atomic"

	"holdfast/internal/vfs"
)

// The witness is a page in a file of its own. It names the newest hot segment and says how far that is known to be durable:
// what the segment's own frames cannot say when they are damaged, or gone with their file, before anything else names them.
//
//	file    := header frame of the newest hot segment, once more: "synced" is what is known to be durable in the segment, and the list
//	           that of the groups of its last frame then, unless it is too long for a page
//
// It is written without a sync when the first frame of a segment is durable, before anybody is told of that, and by the keeper
// made durable at once. A segment that it names has been durable, and is given up only when a checkpoint says more than the
// witness does; so where it is not there, it was lost. A witness that is damaged, or was never written, says nothing.
const witnessName = "witness"

// witnessFile is where the log writes it.
type witnessFile struct {
	file vfs.File    // nil if there was no room for it
	due  atomic.Bool // written and not synced
}

// openWitness opens the file, or makes it: from then on it has its page, and writing it changes no metadata.
func (l *Log) openWitness() error {
	name := l.path(witnessName)
	file, err := l.fs.Open(name)
	if vfs.IsNotExist(err) {
		file, err = l.fs.Create(name)
	}
	if err == nil {
		var size int64
		if size, err = file.Size(); err == nil && size < pageSize {
			if _, err = file.WriteAt(zeros[:pageSize], 0); err == nil {
				err = file.Sync()
			}
			if err == nil {
				err = l.fs.SyncDir(l.dir)
			}
		}
		if err != nil {
			file.Close()
		}
	}
	if vfs.IsSpace(err) {
		l.log.Warn("no room for the page that names the newest segment", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening %s: %w", witnessName, err)
	}
	l.witness.file = file
	return nil
}

// writeWitness has the witness say of the active segment that it is durable up to a sequence, that of the last frame. It belongs
// to the committer.
func (l *Log) writeWitness(seg *segment, durable uint64) error {
	w := &l.witness
	if w.file == nil {
		return nil
	}
	list := l.com.list
	if headSize+align8(len(list))+segmentHeaderSize > pageSize {
		list = nil
	}
	buf, n := openFrame(make([]byte, 0, pageSize), list)
	buf = segmentHeader{kind: segmentHot, id: seg.id, prevGen: l.lastGen, prevLast: seg.firstSeq - 1, size: seg.size}.append(buf)
	buf = sealFrame(buf, 0, head{
		gen: seg.gen, seq: seg.firstSeq, synced: durable, kind: frameHeader, listLen: n, stamp: l.o.Clock.Now().UnixNano(),
	})
	l.io[0].begin(l.o.Clock.Mono())
	_, err := w.file.WriteAt(buf, 0)
	l.io[0].end()
	if err != nil {
		return fmt.Errorf("naming %s: %w", segmentName(seg.id), err)
	}
	w.due.Store(true)
	kick(l.keepKick)
	return nil
}

// syncWitness makes durable what was written.
func (l *Log) syncWitness() error {
	l.io[1].begin(l.o.Clock.Mono())
	err := l.witness.file.Datasync()
	l.io[1].end()
	if err != nil {
		return fmt.Errorf("syncing %s: %w", witnessName, err)
	}
	return nil
}

// testimony is what the witness said when the log was opened. It says nothing if its head has no generation.
type testimony struct {
	head   head
	header segmentHeader
	list   []byte
}

// readWitness reads it past the page cache.
func (l *Log) readWitness() testimony {
	file, err := l.fs.OpenDirect(l.path(witnessName))
	if err != nil {
		return testimony{}
	}
	defer file.Close()
	p := vfs.AlignedBuffer(pageSize)
	if n, err := readAt(file, p, 0); n < len(p) || err != nil && err != io.EOF {
		return testimony{}
	}
	return parseWitness(p)
}

func parseWitness(p []byte) testimony {
	h, list, err := parseHead(p)
	if err != nil || h.kind != frameHeader || h.off != 0 || h.gen == 0 || h.synced <= h.seq {
		return testimony{}
	}
	p = p[headSize+len(list):]
	if int(h.bodyLen) > len(p) || checksum(p[:h.bodyLen]) != h.bodyCRC {
		return testimony{}
	}
	header, err := parseSegmentHeader(p[:h.bodyLen])
	if err != nil || header.kind != segmentHot || header.id == 0 {
		return testimony{}
	}
	return testimony{h, header, list}
}

// of tells whether it speaks of this use of the segment.
func (t *testimony) of(id uint32, gen uint64) bool {
	return t.head.gen != 0 && t.header.id == id && t.head.gen == gen
}

// durable is the highest sequence that was durable in the segment.
func (t *testimony) durable(s *segment) uint64 {
	if !t.of(s.id, s.gen) {
		return 0
	}
	return t.head.synced
}

// counts tells whether the log must hold the segment that the witness names. After a checkpoint with a later cut it may have been given
// up, and where there are checkpoints and none can be used nobody knows.
func (rc *recovery) witnessCounts() bool {
	if rc.sc.full && len(rc.l.kee.checkpoints) > 0 {
		return false
	}
	return rc.sc.witness.head.seq > rc.cut.seq
}

// vouched takes what the witness says for the header of its segment, which cannot be read.
func (rc *recovery) vouched(f *fileOnDisk) bool {
	w := &rc.sc.witness
	if f.id != w.header.id || w.head.gen == 0 || !rc.witnessCounts() {
		return false
	}
	f.damaged, f.head, f.header = true, w.head, w.header
	return true
}

// findWitnessed puts the segment that the witness names into the chain if its file is gone and nothing follows it.
func (rc *recovery) findWitnessed() {
	w := &rc.sc.witness
	if w.head.gen == 0 || !rc.witnessCounts() {
		return
	}
	if f := rc.files[w.header.id]; f != nil && f.claimed && f.head.gen == w.head.gen {
		return
	}
	for _, f := range rc.chain {
		if f.head.seq > w.head.seq {
			return // the gap before it says the same
		}
	}
	rc.chain = append(rc.chain, &fileOnDisk{id: w.header.id, head: w.head, header: w.header})
}

// endGone notes that the log went on in a segment that is gone. Nobody knows how far, so it is taken for farther than anything that a
// checkpoint knows of. The next segment to be begun follows the one before it, with the gap in between, and so keeps the verdict.
func (rc *recovery) endGone(s *segment) {
	last := rc.sc.expect
	for _, g := range rc.l.list {
		last = max(last, g.upTo+1)
	}
	rc.l.log.Error("the newest segment is gone, and with it the end of the log", "segment", segmentName(s.id))
	rc.sc.hole(s, rc.sc.expect, last)
}
