package seglog

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"holdfast/internal/vfs"
)

// The witness is a file of its own that names the newest hot segment and says how far that is known to be durable: what the
// segment's own frames cannot say when they are damaged, or gone with their file, before anything else names them.
//
//	file    := page page                  written in turn; of those that are whole the newer one counts
//	page    := header frame of the newest hot segment, once more: "synced" is what is known to be durable in the segment, and the list
//	           that of the groups of its last frame then, unless it is too long for a page
//	body    := segmentHeader | checkpoint u64 | { length u16, sequence u64, list }*
//
// Behind the header stand the number of the newest checkpoint that had been written, and the lists of the frames before the last one, newest
// first, as many as there is room for.
//
// It is written without a sync when the first frame of a segment is durable, before anybody is told of that, and again a second after it
// was, if more is durable or there is another checkpoint; the keeper makes it durable at once. A page is not written again before the
// other one is durable, so that a power cut leaves one of them. A segment that it names has been durable, and is given up only when
// a checkpoint says more than the witness does; so where it is not there, it was lost. A witness that is damaged, or was never written, says
// nothing.
const (
	witnessName  = "witness"
	witnessPages = 2
	witnessEvery = time.Second

	witnessFixed    = segmentHeaderSize + 8
	witnessListHead = 2 + 8
	witnessLists    = 32           // so many frames before the last one at most
	witnessList     = pageSize / 4 // none that is longer
)

// witnessFile is where the log writes it. What is not atomic belongs to the committer.
type witnessFile struct {
	file  vfs.File // nil if there was no room for it
	pages int64
	page  int64     // written last
	said  testimony // there
	at    int64     // clock.Mono of the last writing
	heard uint64    // checkpoints up to this number were thought of
	past  []listed  // of frames before the last one, oldest first

	checkpoint    atomic.Uint64 // newest that is durable
	wrote, synced atomic.Uint64 // how many times
}

// openWitness opens the file, or makes it: from then on it has its pages, and writing them changes no metadata.
func (l *Log) openWitness() error {
	w := &l.witness
	name := l.path(witnessName)
	file, err := l.fs.Open(name)
	if vfs.IsNotExist(err) {
		file, err = l.fs.Create(name)
	}
	if err == nil {
		if w.pages, err = l.makeWitness(file); err != nil {
			file.Close()
		}
	}
	if vfs.IsSpace(err) {
		l.log.Warn("no room for the pages that name the newest segment", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening %s: %w", witnessName, err)
	}
	w.file, w.at = file, l.o.Clock.Mono()
	w.heard = w.said.checkpoint
	return nil
}

// makeWitness gives the file its pages, and makes durable what a process that was killed had written to it.
func (l *Log) makeWitness(file vfs.File) (pages int64, err error) {
	size, err := file.Size()
	if err != nil {
		return 0, err
	}
	if size >= witnessPages*pageSize {
		return witnessPages, file.Datasync()
	}
	pages = size / pageSize
	for pages < witnessPages && err == nil {
		if _, err = file.WriteAt(zeros[:pageSize], pages*pageSize); err == nil {
			pages++
		}
	}
	if pages > 0 && vfs.IsSpace(err) { // one that was made by an earlier build, on a full disk
		err = nil
	}
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = l.fs.SyncDir(l.dir)
	}
	return pages, err
}

// witnessDue tells whether there is more for the witness to say than it has.
func (l *Log) witnessDue() bool {
	w := &l.witness
	return w.file != nil && w.said.head.gen != 0 && (l.active != nil && w.said.head.synced < l.seq || w.checkpoint.Load() > w.heard)
}

// renewWitness says what there is more to say. The segment may be one of an earlier life by now, and have been given up.
func (l *Log) renewWitness() error {
	w := &l.witness
	if l.active != nil {
		return l.writeWitness(l.active, l.seq)
	}
	no := w.checkpoint.Load() // before the look at the segments
	w.heard = no
	l.mu.Lock()
	s := l.segs[w.said.header.id]
	there := s != nil && w.said.of(s.id, s.gen)
	l.mu.Unlock()
	if !there {
		return nil
	}
	w.said.checkpoint = no
	return l.sayWitness()
}

// writeWitness has the witness say of the active segment that it is durable up to a sequence, that of the last frame. It belongs
// to the committer.
func (l *Log) writeWitness(seg *segment, durable uint64) error {
	w := &l.witness
	if w.file == nil {
		return nil
	}
	no := w.checkpoint.Load()
	w.heard = no
	w.said = testimony{
		head:       head{gen: seg.gen, seq: seg.firstSeq, synced: durable, kind: frameHeader},
		header:     segmentHeader{kind: segmentHot, id: seg.id, prevGen: l.lastGen, prevLast: seg.firstSeq - 1, size: seg.size},
		checkpoint: no,
	}
	w.said.take(l.com.list, w.past)
	return l.sayWitness()
}

// sayWitness writes what is to be said, to the page that the disk can do without.
func (l *Log) sayWitness() error {
	w := &l.witness
	if w.synced.Load() == w.wrote.Load() {
		w.page = (w.page + 1) % w.pages
	}
	w.said.head.stamp = l.o.Clock.Now().UnixNano()
	w.at = l.o.Clock.Mono()
	l.io[0].begin(w.at)
	_, err := w.file.WriteAt(w.said.encode(), w.page*pageSize)
	l.io[0].end()
	if err != nil {
		return fmt.Errorf("naming %s: %w", segmentName(w.said.header.id), err)
	}
	w.wrote.Add(1)
	kick(l.keepKick)
	return nil
}

// syncWitness makes durable what was written.
func (l *Log) syncWitness() error {
	w := &l.witness
	n := w.wrote.Load()
	l.io[1].begin(l.o.Clock.Mono())
	err := w.file.Datasync()
	l.io[1].end()
	if err != nil {
		return fmt.Errorf("syncing %s: %w", witnessName, err)
	}
	w.synced.Store(n)
	return nil
}

// closeWitness says what there is more to say when the log ends in order.
func (l *Log) closeWitness() error {
	if !l.witnessDue() {
		return nil
	}
	if err := l.renewWitness(); err != nil {
		return err
	}
	return l.syncWitness()
}

// listed is the list of a frame.
type listed struct {
	seq  uint64
	list []byte
}

// remember keeps the list of the frame before the one that is being built. A new segment makes those before it useless, as does a list
// that no page has room for.
func (w *witnessFile) remember(seq uint64, list []byte, fresh bool) {
	switch n := len(w.past); {
	case fresh || len(list) > witnessList:
		w.past = w.past[:0]
	case n < witnessLists:
		w.past = append(w.past, listed{seq, slices.Clone(list)})
	default:
		oldest := w.past[0].list
		copy(w.past, w.past[1:])
		w.past[n-1] = listed{seq, append(oldest[:0], list...)}
	}
}

// testimony is what the witness says, or said when the log was opened. It says nothing if its head has no generation.
type testimony struct {
	head       head
	header     segmentHeader
	list       []byte   // of the last frame
	past       []listed // of those before it, newest first
	checkpoint uint64   // the newest there was, 0 if nothing is said of it
}

// take takes copies of the lists that a page has room for: that of the last frame, and of those before it.
func (t *testimony) take(list []byte, past []listed) {
	room := pageSize - headSize - witnessFixed - align8(len(list))
	if room < 0 {
		return
	}
	t.list = slices.Clone(list)
	for _, p := range slices.Backward(past) {
		if room -= witnessListHead + len(p.list); room < 0 {
			return
		}
		t.past = append(t.past, listed{p.seq, slices.Clone(p.list)})
	}
}

// encode makes the page.
func (t *testimony) encode() []byte {
	buf, n := openFrame(make([]byte, 0, pageSize), t.list)
	buf = t.header.append(buf)
	buf = le.AppendUint64(buf, t.checkpoint)
	for _, p := range t.past {
		buf = le.AppendUint16(buf, uint16(len(p.list)))
		buf = le.AppendUint64(buf, p.seq)
		buf = append(buf, p.list...)
	}
	h := t.head
	h.listLen = n
	return sealFrame(buf, 0, h)
}

// readWitness reads the newest page that is whole, past the page cache.
func (l *Log) readWitness() (best testimony) {
	file, err := l.fs.OpenDirect(l.path(witnessName))
	if err != nil {
		return best
	}
	defer file.Close()
	for page := range int64(witnessPages) {
		p := vfs.AlignedBuffer(pageSize)
		if n, err := readAt(file, p, page*pageSize); n < len(p) || err != nil && err != io.EOF {
			continue
		}
		if t := parseWitness(p); t.newer(&best) {
			best, l.witness.page = t, page
		}
	}
	return best
}

func (t *testimony) newer(than *testimony) bool {
	return cmp.Or(cmp.Compare(t.head.gen, than.head.gen), cmp.Compare(t.head.synced, than.head.synced),
		cmp.Compare(t.checkpoint, than.checkpoint)) > 0
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
	p = p[:h.bodyLen]
	header, err := parseSegmentHeader(p)
	if err != nil || header.kind != segmentHot || header.id == 0 {
		return testimony{}
	}
	t := testimony{head: h, header: header, list: list}
	if len(p) < witnessFixed { // of a build that said no more
		return t
	}
	t.checkpoint = le.Uint64(p[segmentHeaderSize:])
	for p = p[witnessFixed:]; len(p) >= witnessListHead; {
		n, seq := int(le.Uint16(p)), le.Uint64(p[2:])
		if p = p[witnessListHead:]; n > len(p) {
			break
		}
		t.past = append(t.past, listed{seq, p[:n]})
		p = p[n:]
	}
	return t
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

// listOf is the list of one frame of its segment, nil if it does not have it.
func (t *testimony) listOf(s *segment, seq uint64) []byte {
	if !t.of(s.id, s.gen) {
		return nil
	}
	if seq == t.head.synced {
		return t.list
	}
	for _, p := range t.past {
		if p.seq == seq {
			return p.list
		}
	}
	return nil
}

// lists are those of all frames with records in its segment from a sequence on, up to the last that it knows of, oldest first; nil if it
// does not have them all.
func (t *testimony) lists(s *segment, from uint64) (all []listed) {
	if !t.of(s.id, s.gen) || len(t.list) == 0 {
		return nil
	}
	all = append(all, listed{t.head.synced, t.list})
	for _, p := range t.past {
		all = append(all, p)
	}
	slices.Reverse(all)
	if all[0].seq > from && all[0].seq != s.firstSeq+1 {
		return nil
	}
	return slices.DeleteFunc(all, func(p listed) bool { return p.seq < from })
}

// witnessCounts tells whether the log must hold the segment that the witness names. After a checkpoint with a later cut it may have been
// given up. Of one that cannot be read nobody knows the cut; but where the witness knew of that checkpoint, it is not the one that gave
// the segment up.
func (rc *recovery) witnessCounts() bool {
	w := &rc.sc.witness
	if rc.sc.full {
		return w.checkpoint >= rc.unread
	}
	return w.head.seq > rc.cut.seq
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
