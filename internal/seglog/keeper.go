package seglog

import (
	"fmt"
	"slices"
	"time"

	"holdfast/internal/vfs"
)

// keeper is what the goroutine behind the writing owns: footers, checkpoints, rewriting, recycling, sizes.
type keeper struct {
	checkpoints    []string // file names, oldest first
	lastCheckpoint int64
	asking         bool  // waiting for snapshots before a checkpoint
	askedAt        int64 // since when
	retryAt        int64 // not before, after a lack of space
	lateAt         int64 // no late snapshot before, after a lack of segments

	dead []*segment // out of the books, perhaps pinned; guarded by Log.mu

	lastLook int64 // of the slow checks
	cold     coldWriter

	between func() // tests: called where others may come in between two parts of what the keeper does
}

const (
	keepTick       = 250 * time.Millisecond
	slowTick       = 2 * time.Second
	askPatience    = 2 * time.Second        // how long a checkpoint waits for snapshots
	askAgain       = time.Second            // how often a group is asked
	deafAfter      = 10                     // asked so often without an answer, a group is not waited for
	hurryPause     = 200 * time.Millisecond // between checkpoints that free space
	longTail       = 1024                   // entries above its snapshot that make a checkpoint ask for a new one
	longTailBytes  = 1 << 20
	largeSnapshot  = 1 << 20 // from here on a new one is asked for only when it pays
	spareSegments  = 6       // disk is bounded by twice the live bytes and so many segments
	auditSkew      = 2       // largest to smallest item from which on runs are audited
	idleSealsAfter = calmAfter
)

func (l *Log) keepLoop() {
	defer l.wg.Done()
	tick := l.o.Clock.NewTicker(keepTick)
	defer tick.Stop()
	for {
		more := !l.failed.Load() && l.keepStep()
		if more {
			select {
			case <-l.stop:
				return
			default:
				continue
			}
		}
		select {
		case <-l.stop:
			return
		case <-tick.C():
		case <-l.keepKick:
		}
	}
}

// StepKeep does one thing that is due behind the writing (Options.Stepped): of the keeper, or of who makes segments ready.
// False: nothing is, as far as the clock goes.
func (l *Log) StepKeep() bool { return !l.failed.Load() && (l.keepStep() || l.prepareStep()) }

// keepStep does one thing that is due and tells whether it did, so that more may be.
func (l *Log) keepStep() bool {
	now := l.o.Clock.Mono()
	if l.witness.wrote.Load() != l.witness.synced.Load() {
		return l.keep(l.syncWitness())
	}
	if s := l.needsFooter(); s != nil {
		return l.keep(l.writeFooter(s))
	}
	if s := l.unpinned(); s != nil {
		err := l.recycle(s)
		l.checkFree() // the alarm must not outlast the lack of space by a slow look
		return l.keep(err)
	}
	if now-l.kee.lastLook >= int64(slowTick) {
		l.kee.lastLook = now
		l.slowCheck(now)
	}
	if l.lateStep(now) {
		return true
	}
	if l.checkpointDue(now) {
		err := l.checkpoint(false)
		if err != nil && vfs.IsSpace(err) {
			return l.makeRoom(err, now)
		}
		l.kee.lastCheckpoint = now
		return l.keep(err)
	}
	if l.closing.Load() {
		return false
	}
	return l.rewriteStep(now) || l.shortenStep()
}

// pause is where the keeper holds no lock in the middle of something, and the log goes on.
func (k *keeper) pause() {
	if k.between != nil {
		k.between()
	}
}

// keep turns an error of the keeper's writing into the end of the log. A lack of space only waits.
func (l *Log) keep(err error) bool {
	if err == nil {
		return true
	}
	l.fail(err)
	return false
}

// needsFooter is a sealed segment whose tables are still in memory.
func (l *Log) needsFooter() *segment {
	defer l.letGo(l.hold())
	var next *segment
	for _, s := range l.segs {
		if s.state == segSealed && !s.footer && !s.tablesStay && !s.empty() && (next == nil || s.id < next.id) {
			next = s
		}
	}
	return next
}

// unpinned takes a dead segment no reader pins any more.
func (l *Log) unpinned() *segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, s := range l.kee.dead {
		if s.pins == 0 {
			l.kee.dead = slices.Delete(l.kee.dead, i, i+1)
			return s
		}
	}
	return nil
}

// recycle makes a dead segment ready again, or deletes it. Its header is wiped, so that a look at the files shows it free;
// nothing depends on that write reaching the disk.
func (l *Log) recycle(s *segment) error {
	l.tables.drop(s.runs)
	l.stats.recycled.Add(1)
	l.mu.Lock()
	keep := l.wanted(s)
	l.mu.Unlock()
	if !keep {
		l.discard(s)
		return nil
	}
	if _, err := s.file.WriteAt(zeros[:pageSize], 0); err != nil {
		return fmt.Errorf("recycling %s: %w", segmentName(s.id), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pool = append(l.pool, &segment{id: s.id, file: s.file, size: s.taken()})
	l.spaceChanged()
	return nil
}

// makeRoom gives something back to the disk, because a checkpoint found no room and only a checkpoint can free more: the older
// of several checkpoints, else a free segment. It tells whether there was anything; then the checkpoint is tried again at once,
// and until there is one, what was given back is left to it.
func (l *Log) makeRoom(err error, now int64) bool {
	k := &l.kee
	k.retryAt = now
	if n := len(k.checkpoints); n > 1 {
		return l.keep(l.removeCheckpoints(n - 1))
	}
	l.mu.Lock()
	l.yield = true
	var s *segment
	if n := len(l.pool); n > 0 {
		s = l.pool[n-1]
		l.pool = l.pool[:n-1]
	}
	l.setNoSpace(err.Error()) // unlocks
	if s == nil {
		k.retryAt = now + int64(askAgain)
		return false
	}
	l.discard(s)
	return true
}

// spaceState says what the files take, what is needed of it, and from what total on something must be done; total may not
// stay above limit.
func (l *Log) spaceState() (total, live, aim, limit int64) {
	for _, s := range l.segs {
		total += s.taken()
		if s.stuck || s.kept > 0 {
			live += s.taken()
		} else {
			live += s.liveBytes
		}
	}
	for _, s := range l.kee.dead {
		total += s.taken()
	}
	for _, s := range l.pool {
		total += s.size
	}
	limit = 2*live + spareSegments*l.target
	return total, live, limit - l.target, limit
}

// checkpointDue tells whether a checkpoint is to be written now. Before one, groups whose entries pin sealed segments or are
// many are asked for snapshots, and given a moment to answer unless it is to bring back space.
func (l *Log) checkpointDue(now int64) bool {
	l.mu.Lock()
	k := &l.kee
	since := now - k.lastCheckpoint
	due := l.logged >= min(l.o.CheckpointBytes, l.target) || l.changed && since >= int64(l.o.CheckpointEvery)
	hurry := l.hurry(since)
	if now < k.retryAt || !due && !hurry && !l.yield {
		l.mu.Unlock()
		return false
	}
	if l.yield { // what was given back for it is not to be lost again to somebody else
		l.mu.Unlock()
		return true
	}
	if !k.asking {
		k.asking, k.askedAt = true, now
		list := slices.Clone(l.list)
		l.mu.Unlock()
		l.askFor(l.wantSnapshots(list, now))
		l.mu.Lock()
	}
	if l.askedOut > 0 && !hurry && now-k.askedAt < int64(askPatience) {
		l.mu.Unlock()
		return false
	}
	k.asking = false
	l.mu.Unlock()
	return true
}

// hurry tells whether a checkpoint is worth writing for the segments it would bring back: some of them, when the files take
// nearly what they may, or two segments' worth. While a backlog drains little is logged, and the bound falls twice as fast as
// what lives: nothing else would be in time. Snapshots that were asked for are for the next one.
func (l *Log) hurry(since int64) bool {
	var back int64
	for _, s := range l.segs {
		if s.state == segSealed && s.empty() {
			back += s.taken()
		}
	}
	if back == 0 {
		return false
	}
	total, _, aim, limit := l.spaceState()
	return total >= limit || since >= int64(hurryPause) && (total > aim || l.alarmOn || back >= 2*l.target)
}

// wantSnapshots chooses the groups to ask before a checkpoint.
func (l *Log) wantSnapshots(list []*group, now int64) []GroupID {
	var ask []GroupID
	for len(list) > 0 {
		part := list[:min(groupsPerLock, len(list))]
		list = list[len(part):]
		held := l.hold()
		for _, g := range part {
			if n := len(g.tail); n > 0 && (n >= longTail || g.tailBytes >= longTailBytes || g.tail[0].seg.state == segSealed) && l.pays(g) {
				ask = l.ask(ask, g, now)
			}
		}
		l.letGo(held)
	}
	return ask
}

// pays tells whether the entries of a group hold back so much of the log that a snapshot is worth writing: twice its bytes, if those are
// many. A snapshot counts as live, so the files take no more than they may, and a log of which one group has most does not spend
// more on its snapshots than on its entries.
func (l *Log) pays(g *group) bool {
	if g.snap.length < largeSnapshot {
		return true
	}
	from := g.tail[0]
	back := -int64(from.off)
	for _, s := range l.segs {
		if s.kind == segmentHot && s.gen >= from.seg.gen {
			back += s.stable
		}
	}
	return back >= 2*int64(g.snap.length)
}

// ask adds a group to those to be asked, unless it was asked just now or is quarantined. A group may have answered and been of no
// help: a member that is behind has entries that it cannot apply yet.
func (l *Log) ask(ask []GroupID, g *group, now int64) []GroupID {
	if g.hit != "" || (g.asked > 0 || g.vain) && now-g.askedAt < int64(askAgain) {
		return ask
	}
	switch g.asked++; g.asked {
	case 1:
		l.askedOut++
	case deafAfter:
		l.askedOut-- // nobody answers for it: not waited for
	}
	g.askedAt = now
	return append(ask, g.id)
}

func (l *Log) askFor(groups []GroupID) {
	if len(groups) > 0 && l.o.Events.NeedSnapshot != nil {
		l.o.Events.NeedSnapshot(groups)
	}
}

// answered notes that a group wrote a snapshot.
func (l *Log) answered(g *group) {
	if g.asked > 0 && g.asked < deafAfter {
		if l.askedOut--; l.askedOut == 0 {
			kick(l.keepKick)
		}
	}
	g.asked = 0
}

// slowCheck looks after sizes and free space every few seconds.
func (l *Log) slowCheck(now int64) {
	l.checkFree()
	l.audit()
	defer l.letGo(l.hold())
	_, live, _, _ := l.spaceState()
	if calm := l.calmTarget(live); calm > l.target {
		l.target = calm
	} else if calm < l.target && now-l.rolledAt >= int64(calmAfter) {
		l.target = calm
		kick(l.prepKick)
	}
	if a := l.active; a != nil && a.size > l.target && now-l.movedAt >= int64(idleSealsAfter) {
		l.com.sealIdle = true
		kick(l.in.wake)
	}
	if c := l.cold; c != nil && c.size > l.target && now-l.movedAt >= int64(idleSealsAfter) {
		l.sealCold()
	}
}

// audit counts the live bytes of a segment that has come to rest half dead and whose items differ much in size: there the
// number of items says too little about bytes. One segment per look.
func (l *Log) audit() {
	held := l.hold()
	var due *segment
	for _, s := range l.segs {
		if s.state == segSealed && s.items > 0 && s.items == s.lookedItems && s.items != s.auditedItems && (due == nil || s.id < due.id) {
			due = s
		}
		s.lookedItems = s.items
	}
	var runs []*run
	if due != nil {
		due.auditedItems = due.items
		for _, r := range due.runs {
			if r.live.n > 0 && r.live.n < r.items && r.live.n != r.auditN && r.maxItem > auditSkew*r.minItem {
				runs = append(runs, r)
			}
		}
	}
	l.letGo(held)
	for _, r := range runs {
		l.auditRun(r)
	}
}

// auditRun counts one run.
func (l *Log) auditRun(r *run) {
	live := l.liveRanges(r)
	if len(live) == 0 {
		return
	}
	entries, err := l.entriesOf(r)
	if err != nil {
		return // met again, and reported, when somebody needs the items
	}
	var bytes int64
	var n uint64
	for _, e := range entries {
		rs := overlap(live, e.first, e.first+uint64(e.count)-1)
		if len(rs) == 0 {
			continue
		}
		sizes, err := readSizes(r.seg.file, e)
		if err != nil {
			return
		}
		for _, want := range rs {
			for id := want.First; id <= want.Last; id++ {
				bytes += int64(sizes[id-e.first])
				n++
			}
		}
	}
	defer l.letGo(l.hold())
	if r.live.n == 0 || n == 0 {
		return
	}
	before := r.liveBytes()
	r.exact, r.auditN = bytes, n
	r.seg.liveBytes += r.liveBytes() - before
}
