package replica

import (
	"slices"
	"sync"
	"sync/atomic"

	"holdfast/internal/invariant"
	"holdfast/internal/planted"
	"holdfast/internal/seglog"
)

// Shard is a worker's share of the groups. Its mailbox is two lists behind a
// mutex, which the worker swaps whole; everything else is the worker's own. While
// its goroutine sleeps, another can be the worker for a round (goOn), unless what
// its groups apply may take long.
// The loop (run) is apart from the step (Step), so that a simulator can step.
type Shard struct {
	node  *Node
	id    int
	alone bool // no other goroutine is the worker: neither a link nor the log may wait for what is applied

	mu       sync.Mutex
	dirty    []*Group // groups that were woken
	settled  []*round // rounds that are on disk
	overdue  bool     // look for rounds that wait too long
	ticks    int      // of raft groups
	news     []peerNews
	adopted  []*raftGroup // new raft groups
	parked   bool         // nobody works: who clears it has the shard, or wakes the worker, which sleeps on wake
	stopping bool
	wake     chan struct{} // capacity 1

	// The worker's own.
	takenDirty   []*Group
	takenSettled []*round
	entry        Entry    // being packed
	line         []ready  // entries to apply in this round
	free         []*round // for reuse
	inLog        []*round // appended and not yet stable, oldest first
	current      *round   // empty, kept for the next round
	time         int64    // of the last round; it rises, and as fast as time passes
	began        int64    // time at which clock.Mono was 0
	done         chan struct{}
	stats        shardCounters

	rafts     []*raftGroup // in order of id
	ticking   []*raftGroup // those that do not rest
	renew     int          // which of those that rest are looked at
	hasRafts  atomic.Bool
	takenNews []peerNews
	beats     []beatsTo
	cache     cache
}

// ready is an entry that may be applied.
type ready struct {
	g *Group
	e Entry
}

func newShard(n *Node, id int) *Shard {
	s := &Shard{node: n, id: id, alone: id == n.o.Shards, wake: make(chan struct{}, 1), done: make(chan struct{})}
	s.startTime(0)
	return s
}

// startTime has the time of entries go on from now, or from the last entry of the log if that is later. What the wall clock
// does from then on has no say: it may jump, and what queues keep for a time would be gone early, or kept for long.
func (s *Shard) startTime(last int64) {
	s.time = last
	s.began = max(last, s.node.o.Clock.Now().UnixNano()) - s.node.o.Clock.Mono()
}

// setTime begins a round.
func (s *Shard) setTime(mono int64) {
	if planted.Is(planted.WallClock) {
		mono = s.node.o.Clock.Now().UnixNano() - s.began
	}
	s.time = max(s.time+1, s.began+mono)
}

// put puts a group into the mailbox.
func (s *Shard) put(g *Group) {
	s.mu.Lock()
	s.dirty = append(s.dirty, g)
	s.unpark()
}

// mark puts a group into the mailbox and wakes nobody.
func (s *Shard) mark(g *Group) {
	s.mu.Lock()
	s.dirty = append(s.dirty, g)
	s.mu.Unlock()
}

// hereAtMost is how many groups another goroutine sees to in the worker's place.
// For more, another processor is worth waking.
const hereAtMost = 32

// goOn sees to it that the mailbox is emptied: by whoever has the shard now, by
// this goroutine if it may, or by the worker.
func (s *Shard) goOn(here bool) {
	s.mu.Lock()
	if !s.parked || s.idle() {
		s.mu.Unlock()
		return
	}
	if !here || s.alone || s.stopping || len(s.dirty) > hereAtMost {
		s.unpark()
		return
	}
	s.parked = false
	s.mu.Unlock()
	s.Step()
	s.mu.Lock()
	if s.idle() && !s.stopping {
		s.parked = true
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.wake <- struct{}{} // has room: this goroutine had cleared parked
}

// idle reports whether the mailbox is empty. The mutex is held.
func (s *Shard) idle() bool {
	return len(s.dirty) == 0 && len(s.settled) == 0 && !s.overdue && s.ticks == 0 && len(s.news) == 0
}

// stable puts a round that is on disk into the mailbox. The log's committer calls
// it, and is the worker itself if there is little to tell and nothing else to do:
// that takes no longer than waking somebody for it.
func (s *Shard) stable(r *round) {
	s.mu.Lock()
	s.settled = append(s.settled, r)
	here := len(s.dirty) == 0 && len(s.settled) == 1 && len(r.groups) <= hereAtMost
	s.mu.Unlock()
	s.goOn(here)
}

// checkOverdue asks for a look at the rounds that wait for the disk.
func (s *Shard) checkOverdue() {
	s.mu.Lock()
	s.overdue = true
	s.unpark()
}

// stop asks the worker to end when its mailbox is empty.
func (s *Shard) stop() {
	s.mu.Lock()
	s.stopping = true
	s.unpark()
}

// unpark releases the mutex and wakes a sleeping worker.
func (s *Shard) unpark() {
	wake := s.parked
	s.parked = false
	s.mu.Unlock()
	if wake {
		s.wake <- struct{}{} // has room: only the one who cleared parked sends
	}
}

// run is the worker: it steps until nothing is left, and sleeps.
func (s *Shard) run() {
	defer close(s.done)
	final := false
	for {
		for s.Step() {
		}
		s.mu.Lock()
		switch {
		case !s.idle():
			s.mu.Unlock()
			continue
		case s.stopping && !final:
			s.mu.Unlock()
			s.finish()
			final = true
			continue
		case s.stopping && (len(s.inLog) == 0 || !s.node.clean):
			s.mu.Unlock()
			return
		}
		s.parked = true
		s.mu.Unlock()
		<-s.wake
	}
}

// finish appends the snapshots of a clean stop: of every group that has
// changed since its last one.
func (s *Shard) finish() {
	if !s.node.clean {
		return
	}
	s.setTime(s.node.o.Clock.Mono())
	r := s.emptyRound()
	for _, g := range s.node.groupsOf(s) {
		if !g.repl.logged() || g.dropped || g.failed != nil || g.sinceEntries == 0 {
			continue
		}
		if x := g.raft; x != nil {
			if x.rn == nil {
				continue
			}
			x.snapshot(r, s.time, false)
			x.writeHardState(r, s.time)
		} else {
			g.snapshot(r, s.time, false)
		}
		s.stats.snapshots.Add(1)
		if r.used >= keepMeta/2 {
			s.append(r)
			r = s.emptyRound()
		}
	}
	r.batch.Sync = true
	s.append(r)
}

// Step goes round once: it tells groups what is on disk, packs an entry for
// each woken group, appends them as one batch, and applies them. It reports
// whether there was anything to do.
func (s *Shard) Step() bool {
	s.mu.Lock()
	if s.idle() {
		s.mu.Unlock()
		return false
	}
	s.dirty, s.takenDirty = s.takenDirty, s.dirty
	s.settled, s.takenSettled = s.takenSettled, s.settled
	overdue, ticks := s.overdue, s.ticks
	s.overdue, s.ticks = false, 0
	if s.hasRafts.Load() {
		s.takeRafts()
	}
	s.mu.Unlock()

	start := s.node.o.Clock.Mono()
	s.setTime(start)
	for _, r := range s.takenSettled {
		s.settle(r, start)
	}
	s.takenSettled = emptied(s.takenSettled)
	if overdue {
		s.tellOverdue(start)
	}

	if len(s.takenNews) > 0 || ticks > 0 {
		s.timePasses(ticks, start)
	}

	r := s.emptyRound()
	for _, g := range s.takenDirty {
		g.dirty.Store(false)
		if g.raft != nil {
			g.raft.turn(s, r)
		} else {
			s.pack(r, g)
		}
	}
	s.takenDirty = emptied(s.takenDirty)
	s.append(r)
	if len(s.beats) > 0 {
		s.sendBeats()
	}
	s.apply()
	s.stats.round(s.node.o.Clock.Mono() - start)
	return true
}

// pack takes what one group has to bring into the round.
func (s *Shard) pack(r *round, g *Group) {
	logged := g.repl.logged()
	ended := g.dropped || g.failed != nil
	if logged && !ended && g.snapshotDue(&s.node.o) {
		g.snapshot(r, s.time, true)
		s.stats.snapshots.Add(1)
	}
	e := &s.entry
	*e = Entry{Index: g.index + 1, Term: g.term, Time: s.time, Logged: logged}
	r.begin(e)
	more := g.host.Pack(e)
	if e.packed {
		if ended || g.dropped {
			invariant.Failf("group %d packs entry %d after its end", g.id, e.Index)
		}
		g.index = e.Index
		g.repl.packed(s, r, g, e)
	}
	if g.drop && !e.packed {
		g.drop = false
		r.addControl(g, seglog.KindDrop, g.index, s.time, nil)
	}
	if more || g.drop {
		g.Wake()
	}
}

// append hands the round's records to the log.
func (s *Shard) append(r *round) {
	if len(r.batch.Records) == 0 {
		s.current = r
		return
	}
	r.appended = s.node.o.Clock.Mono()
	invariant.Pass("replica", "round appended")
	s.inLog = append(s.inLog, r)
	s.stats.appended(len(r.batch.Records))
	s.node.o.Log.Append(&r.batch)
}

// apply carries out the entries in line.
func (s *Shard) apply() {
	for i := range s.line {
		l := &s.line[i]
		l.g.host.Apply(&l.e)
	}
	s.stats.entries.Add(uint64(len(s.line)))
	clear(s.line)
	s.line = s.line[:0]
}

// settle tells the groups of a round that its entries are on disk.
func (s *Shard) settle(r *round, now int64) {
	invariant.Pass("replica", "round stable")
	// Mostly the oldest; a round may overtake one that has no group in common with it.
	i := slices.Index(s.inLog, r)
	if i < 0 {
		invariant.Failf("shard %d: a round became stable that was not appended, or twice", s.id)
	}
	s.inLog = slices.Delete(s.inLog, i, i+1)
	s.stats.stable(now - r.appended)
	for i, g := range r.groups {
		if g != nil {
			g.repl.stable(g, r.batch.Records[i].Index)
		}
	}
	r.reset()
	if len(s.free) < keepRounds {
		s.free = append(s.free, r)
	}
}

// tellOverdue tells hosts about entries that have waited too long.
func (s *Shard) tellOverdue(now int64) {
	for _, r := range s.inLog {
		if now-r.appended < int64(s.node.o.Overdue) {
			return
		}
		for i, g := range r.groups {
			if g != nil && g.raft == nil {
				g.host.Overdue(r.batch.Records[i].Index)
			}
		}
	}
}

// keepRounds is how many rounds a shard keeps for reuse.
const keepRounds = 8

func (s *Shard) emptyRound() *round {
	if r := s.current; r != nil {
		s.current = nil
		return r
	}
	if n := len(s.free); n > 0 {
		r := s.free[n-1]
		s.free = s.free[:n-1]
		return r
	}
	return newRound(s)
}

// emptied forgets the elements of a list and keeps its memory within reason.
func emptied[T any](l []T) []T {
	if cap(l) > 16<<10 {
		return nil
	}
	clear(l)
	return l[:0]
}
