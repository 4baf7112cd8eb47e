package seglog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"holdfast/internal/vfs"
)

// A checkpoint is the index as of a cut in the log, so that a start need not scan what lies before the cut. It may be lost:
// then the log is scanned whole. It is written beside the others under a temporary name, synced, renamed, and the two newest
// are kept. One older file stays to be overwritten by the next one: a sync then changes nothing but its bytes, where a new
// file would have it wait for all that others do to the file system.
//
//	file    := "HFCK" version u32 | crc u32 | 0 u32 | length u64 | payload | anything      the CRC covers the payload
//	payload := number, clean u8, cut sequence, cut segment id, cut offset, generation, last hot generation, next segment id
//	           segments: count { id, kind, generation, size, first, last sequence, end, flags }*
//	           groups:   count { id, up to, last index, snapshot, tail, runs, replicated }*
//	           hits:     count { group, reason }*
//
// Version 1 has no replicated part. Numbers are varints. Groups are encoded a few at a time, each as it is at that moment ("up to" says at which sequence), so
// that nobody waits long for the index: recovery skips, per group, what the group's part already includes.
const (
	checkpointMagic = 0x4b434648 // "HFCK"
	checkpointHead  = 24

	checkpointVersion = 2

	keptCheckpoints = 2            // that are whole, while a third is being overwritten
	checkpointRoom  = 2 * pageSize // in the file of a small one

	ghostPatience = time.Minute

	segFlagFooter = 1
	segFlagSealed = 2
)

func checkpointName(n uint64) string { return fmt.Sprintf("checkpoint-%010d", n) }

// cut is where recovery starts to scan: behind the frame seq, which ends at off in the segment (none if id is 0).
type cut struct {
	seq uint64
	id  uint32
	off int64
}

// checkpoint publishes the index and then recycles what neither it nor anything else names. It belongs to the keeper; Close
// calls it when the keeper is gone.
func (l *Log) checkpoint(clean bool) error {
	began := l.hold()
	l.ckptNo++
	no := l.ckptNo
	at := cut{seq: l.seq}
	if l.active != nil {
		at.id, at.off = l.active.id, l.active.stable
	}
	gone := map[uint32]*segment{}
	for _, s := range l.segs {
		if s.state == segSealed && s.empty() && s.id != at.id {
			gone[s.id] = s
		}
	}
	list := slices.Clone(l.list)
	logged := l.logged
	l.changed = false
	l.letGo(began)

	payload, groups := l.encodeGroups(list)
	buf := l.encodeCheckpoint(no, clean, at, gone, groups, payload)
	if err := l.publishCheckpoint(no, buf); err != nil {
		l.mu.Lock()
		l.changed = true
		l.mu.Unlock()
		return err
	}
	l.stats.checkpoints.Add(1)
	held := l.hold()
	l.yield = false
	l.logged -= logged
	for _, s := range slices.SortedFunc(maps.Values(gone), func(a, b *segment) int { return int(a.id) - int(b.id) }) {
		s.state = segDead
		delete(l.segs, s.id)
		l.kee.dead = append(l.kee.dead, s)
	}
	l.letGo(held)
	l.witness.checkpoint.Store(no)
	kick(l.in.wake)
	l.times.checkpoint.since(began, l.o.Clock.Mono())
	return nil
}

// groupsPerLock is how many groups are looked at before others get their turn.
var groupsPerLock = 256

// encodeGroups encodes all groups that have anything.
func (l *Log) encodeGroups(list []*group) (buf []byte, n int) {
	for len(list) > 0 {
		part := list[:min(groupsPerLock, len(list))]
		list = list[len(part):]
		held := l.hold()
		for _, g := range part {
			switch {
			case g.dropped:
			case g.snap.seg != nil || len(g.tail) > 0 || len(g.runs) > 0 || g.repl != nil && g.repl.hard.seg != nil:
				buf = l.appendGroup(buf, g)
				n++
			default:
				l.forgetGhost(g)
			}
		}
		l.letGo(held)
		l.kee.pause()
	}
	return buf, n
}

// forgetGhost forgets a group of which nothing was ever written: somebody released items of a group already dropped. One
// whose first record is still on its way looks the same, so it gets its time.
func (l *Log) forgetGhost(g *group) {
	now := l.o.Clock.Mono()
	switch {
	case g.ghostAt == 0 || l.alarmOn:
		g.ghostAt = now + 1
	case g.lastIndex == 0 && now-g.ghostAt > int64(ghostPatience):
		l.forgetGroup(g)
	}
}

func (l *Log) appendGroup(buf []byte, g *group) []byte {
	u := binary.AppendUvarint
	buf = u(buf, uint64(g.id))
	buf = u(buf, l.seq)
	buf = u(buf, g.lastIndex)
	if g.snap.seg == nil {
		buf = u(buf, 0)
	} else {
		buf = u(buf, uint64(g.snap.seg.id))
		buf = u(u(u(buf, uint64(g.snap.off)), uint64(g.snap.length)), g.snap.index)
	}
	buf = appendPlaces(buf, g.tail)
	buf = u(buf, uint64(len(g.runs)))
	for _, r := range g.runs {
		buf = u(u(u(buf, uint64(r.seg.id)), r.first), r.last-r.first)
		buf = u(u(u(u(buf, r.items), uint64(r.bytes)), uint64(r.minItem)), uint64(r.maxItem))
		buf = r.live.append(buf)
		if r.entries == nil {
			buf = u(u(append(buf, 1), uint64(r.tabOff)), uint64(r.tabLen))
		} else {
			buf = appendEntries(append(buf, 0), r.entries)
		}
	}
	return g.repl.append(buf)
}

func appendPlaces(buf []byte, list []place) []byte {
	u := binary.AppendUvarint
	buf = u(buf, uint64(len(list)))
	index := uint64(0)
	for _, p := range list {
		buf = u(u(u(u(buf, p.index-index), uint64(p.seg.id)), uint64(p.off)), uint64(p.length))
		index = p.index
	}
	return buf
}

// encodeCheckpoint puts everything together. The segments come after the groups were encoded, so that all they name are there.
func (l *Log) encodeCheckpoint(no uint64, clean bool, at cut, gone map[uint32]*segment, groups int, encoded []byte) []byte {
	u := binary.AppendUvarint
	buf := make([]byte, checkpointHead, checkpointHead+len(encoded)+4096)
	held := l.hold()
	buf = u(buf, no)
	if clean {
		buf = append(buf, 1)
	} else {
		buf = append(buf, 0)
	}
	buf = u(u(u(buf, at.seq), uint64(at.id)), uint64(at.off))
	buf = u(u(u(buf, l.gen), l.lastGen), uint64(l.nextID))
	buf = u(buf, uint64(len(l.segs)-len(gone)))
	for _, id := range slices.Sorted(maps.Keys(l.segs)) {
		s := l.segs[id]
		if gone[id] != nil {
			continue
		}
		flags := uint64(0)
		if s.footer {
			flags |= segFlagFooter
		}
		if s.state == segSealed {
			flags |= segFlagSealed
		}
		buf = u(u(u(u(buf, uint64(s.id)), uint64(s.kind)), s.gen), uint64(s.taken()))
		buf = u(u(u(u(buf, s.firstSeq), s.lastSeq), uint64(s.stable)), flags)
	}
	hits := u(nil, uint64(len(l.hits)))
	for _, id := range slices.Sorted(maps.Keys(l.hits)) {
		h := l.hits[id]
		hits = appendString(u(hits, uint64(h.Group)), h.Reason)
	}
	l.letGo(held)
	buf = append(u(buf, uint64(groups)), encoded...) // copied and summed up with nobody waiting
	buf = append(buf, hits...)
	le.PutUint32(buf, checkpointMagic)
	le.PutUint32(buf[4:], checkpointVersion)
	le.PutUint32(buf[8:], checksum(buf[checkpointHead:]))
	le.PutUint64(buf[16:], uint64(len(buf)-checkpointHead))
	return buf
}

func appendString(buf []byte, s string) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(s))), s...)
}

// publishCheckpoint makes a checkpoint durable, and has no more than three files of them: the two newest and one to overwrite.
func (l *Log) publishCheckpoint(no uint64, buf []byte) error {
	name := l.path(checkpointName(no))
	l.io[1].begin(l.o.Clock.Mono())
	defer l.io[1].end()
	file, room, err := l.checkpointFile(name+".tmp", int64(len(buf)))
	if err != nil {
		return err
	}
	for at := 0; err == nil && at < len(buf); at += fillChunk {
		_, err = file.WriteAt(buf[at:min(at+fillChunk, len(buf))], int64(at))
	}
	for at := int64(len(buf)); err == nil && at < room; at += fillChunk {
		_, err = file.WriteAt(zeros[:min(fillChunk, room-at)], at)
	}
	if err == nil {
		err = file.Datasync()
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = l.fs.Rename(name+".tmp", name)
	}
	if err == nil {
		err = l.fs.SyncDir(l.dir)
	}
	if err != nil {
		if vfs.IsSpace(err) {
			l.fs.Remove(name + ".tmp")
		}
		return fmt.Errorf("checkpoint %d: %w", no, err)
	}
	l.kee.checkpoints = append(l.kee.checkpoints, checkpointName(no))
	if l.full() {
		return l.removeCheckpoints(keptCheckpoints)
	}
	return nil
}

// removeCheckpoints removes old ones until there are only so many.
func (l *Log) removeCheckpoints(keep int) error {
	for k := &l.kee; len(k.checkpoints) > keep; k.checkpoints = k.checkpoints[1:] {
		if err := l.fs.Remove(l.path(k.checkpoints[0])); err != nil && !vfs.IsNotExist(err) {
			return fmt.Errorf("removing %s: %w", k.checkpoints[0], err)
		}
	}
	return nil
}

// full tells whether no segment can be made, so that nothing is to be kept for later.
func (l *Log) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.noSpace != ""
}

// checkpointFile gives the file that a checkpoint of this size is written to: an old one, of which there are more than are kept and
// which is large enough, or a new one, to be filled with zeros up to room, so that larger ones fit after it.
func (l *Log) checkpointFile(tmp string, size int64) (file vfs.File, room int64, err error) {
	k := &l.kee
	if err := l.removeCheckpoints(keptCheckpoints + 1); err != nil {
		return nil, 0, err
	}
	if len(k.checkpoints) > keptCheckpoints {
		old := l.path(k.checkpoints[0])
		if file, err = l.fs.Open(old); err == nil {
			if has, serr := file.Size(); serr == nil && has >= size && has <= 4*max(size, checkpointRoom) {
				if err = l.fs.Rename(old, tmp); err == nil {
					k.checkpoints = k.checkpoints[1:]
					return file, size, nil
				}
			}
			file.Close()
		}
		if err != nil && !vfs.IsNotExist(err) {
			return nil, 0, err
		}
		if err := l.removeCheckpoints(keptCheckpoints); err != nil {
			return nil, 0, err
		}
	}
	room = alignPage64(max(size+size/2, checkpointRoom))
	if l.full() {
		room = size
	}
	file, err = l.fs.Create(tmp)
	return file, room, err
}

var errCheckpoint = errors.New("checkpoint: damaged")

// decoder reads varints; the first failure sticks.
type decoder struct {
	p   []byte
	bad bool
}

func (d *decoder) u() uint64 {
	v, rest, ok := uvarint(d.p)
	if !ok {
		d.bad, d.p = true, nil
		return 0
	}
	d.p = rest
	return v
}

func (d *decoder) b() byte {
	if len(d.p) == 0 {
		d.bad = true
		return 0
	}
	v := d.p[0]
	d.p = d.p[1:]
	return v
}

func (d *decoder) u32() uint32 {
	v := d.u()
	if v > 1<<32-1 {
		d.bad = true
	}
	return uint32(v)
}

// count reads a number of things of at least one byte each.
func (d *decoder) count() int {
	v := d.u()
	if v > uint64(len(d.p)) {
		d.bad = true
		return 0
	}
	return int(v)
}

func (d *decoder) str() string {
	n := d.count()
	if d.bad {
		return ""
	}
	s := string(d.p[:n])
	d.p = d.p[n:]
	return s
}

// loaded is a decoded checkpoint.
type loaded struct {
	no           uint64
	clean        bool
	cut          cut
	gen, lastGen uint64
	nextID       uint32
	segs         map[uint32]*segment
	groups       map[GroupID]*group
	list         []*group
	hits         []Hit
	items        int64
}

// parseCheckpoint decodes a checkpoint file.
func parseCheckpoint(p []byte) (*loaded, error) {
	if len(p) < checkpointHead || le.Uint32(p) != checkpointMagic {
		return nil, errCheckpoint
	}
	v := le.Uint32(p[4:])
	if v < 1 || v > checkpointVersion {
		return nil, fmt.Errorf("checkpoint: version %d is not known", v)
	}
	n := le.Uint64(p[16:])
	if n > uint64(len(p)-checkpointHead) {
		return nil, errCheckpoint
	}
	if p = p[:checkpointHead+n]; le.Uint32(p[8:]) != checksum(p[checkpointHead:]) {
		return nil, errCheckpoint
	}
	d := &decoder{p: p[checkpointHead:]}
	c := &loaded{segs: map[uint32]*segment{}, groups: map[GroupID]*group{}}
	c.no, c.clean = d.u(), d.b() == 1
	c.cut = cut{d.u(), d.u32(), int64(d.u())}
	c.gen, c.lastGen, c.nextID = d.u(), d.u(), d.u32()
	for range d.count() {
		s := &segment{id: d.u32(), kind: segmentKind(d.u()), gen: d.u(), size: int64(d.u()), firstSeq: d.u(), lastSeq: d.u()}
		s.stable = int64(d.u())
		s.end, s.state = s.stable, segSealed
		flags := d.u()
		s.footer = flags&segFlagFooter != 0
		if s.kind == segmentCold && flags&segFlagSealed == 0 {
			s.state = segActive
		}
		c.segs[s.id] = s
	}
	for range d.count() {
		if err := c.parseGroup(d, v); err != nil {
			return nil, err
		}
	}
	for range d.count() {
		c.hits = append(c.hits, Hit{GroupID(d.u()), d.str()})
	}
	if d.bad || len(d.p) > 0 || c.cut.id != 0 && c.segs[c.cut.id] == nil {
		return nil, errCheckpoint
	}
	return c, nil
}

// seg reads the id of a segment.
func (c *loaded) seg(d *decoder) *segment {
	s := c.segs[d.u32()]
	if s == nil {
		d.bad = true
		return &segment{}
	}
	return s
}

// places reads places of entries and counts them for their segments.
func (c *loaded) places(d *decoder) (list []place, bytes int64) {
	index := uint64(0)
	for range d.count() {
		p := place{index: index + d.u(), seg: c.seg(d), off: d.u32(), length: d.u32()}
		index = p.index
		list = append(list, p)
		bytes += int64(p.length)
		p.seg.tails++
		p.seg.liveBytes += int64(p.length)
	}
	return list, bytes
}

func (c *loaded) parseGroup(d *decoder, version uint32) error {
	g := &group{id: GroupID(d.u()), place: len(c.list), upTo: d.u(), lastIndex: d.u()}
	if len(d.p) > 0 && d.p[0] == 0 {
		d.p = d.p[1:]
	} else {
		g.snap = place{seg: c.seg(d), off: d.u32(), length: d.u32(), index: d.u()}
		g.snap.seg.snaps++
		g.snap.seg.liveBytes += int64(g.snap.length)
	}
	g.tail, g.tailBytes = c.places(d)
	for range d.count() {
		if d.bad {
			return errCheckpoint
		}
		r := &run{g: g, seg: c.seg(d), first: d.u(), listed: true}
		r.last = r.first + d.u()
		r.items, r.bytes, r.minItem, r.maxItem = d.u(), int64(d.u()), d.u32(), d.u32()
		var err error
		if r.live, d.p, err = parseIDSet(d.p); err != nil {
			return err
		}
		if d.b() == 1 {
			r.tabOff, r.tabLen = int64(d.u()), int(d.u32())
		} else if r.entries, d.p, err = parseEntries(d.p); err != nil {
			return err
		}
		if d.bad || r.live.n == 0 || r.last < r.first || r.live.n > r.items ||
			r.live.spans[0].first < r.first || r.live.spans[len(r.live.spans)-1].last > r.last {
			return errCheckpoint
		}
		r.seg.runs = append(r.seg.runs, r)
		r.seg.items += r.live.n
		r.seg.liveBytes += r.liveBytes()
		r.seg.tableEst += tableHeadMax
		for i, e := range r.entries {
			r.seg.tableEst += tableEntrySize(r.entries[:i], e)
		}
		c.items += int64(r.live.n)
		g.runs = append(g.runs, r)
	}
	if version >= 2 {
		g.repl = c.parseReplicated(d, len(g.tail))
	}
	if d.bad || c.groups[g.id] != nil {
		return errCheckpoint
	}
	g.fixReach(0)
	c.groups[g.id] = g
	c.list = append(c.list, g)
	return nil
}

// loadCheckpoint reads the newest whole checkpoint. older says that a newer one is damaged.
func (l *Log) loadCheckpoint(names []string) (c *loaded, older bool, err error) {
	for _, name := range names {
		if strings.HasPrefix(name, "checkpoint-") && !strings.HasSuffix(name, ".tmp") {
			l.kee.checkpoints = append(l.kee.checkpoints, name)
		}
	}
	for i := len(l.kee.checkpoints) - 1; i >= 0; i-- {
		name := l.kee.checkpoints[i]
		p, rerr := l.readFile(name)
		if rerr == nil {
			c, rerr = parseCheckpoint(p)
		}
		if rerr == nil {
			l.ckptNo = max(l.ckptNo, c.no)
			return c, older, nil
		}
		l.log.Error("checkpoint cannot be used", "name", name, "error", rerr)
		var no uint64
		if _, serr := fmt.Sscanf(name, "checkpoint-%d", &no); serr == nil {
			l.ckptNo = max(l.ckptNo, no)
		}
		older = true
	}
	return nil, older, nil
}

func (l *Log) readFile(name string) ([]byte, error) {
	f, err := l.fs.OpenDirect(l.path(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	p := vfs.AlignedBuffer(alignPage(int(size)))
	n, err := f.ReadAt(p[:size], 0)
	if n == int(size) {
		return p[:n], nil
	}
	return nil, err
}
