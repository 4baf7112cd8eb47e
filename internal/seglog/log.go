package seglog

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/planted"
	"holdfast/internal/vfs"
)

// Log is the segment log of a node. All exported methods may be called from any goroutine unless they say otherwise.
//
// Four goroutines work on it: the committer writes frames, the preparer makes segments ready, the keeper does everything
// behind the writing (footers, checkpoints, rewriting, recycling), and a watchdog looks whether a write hangs. Each has a
// step that tests call themselves.
type Log struct {
	fs     vfs.FS
	dir    string
	o      Options
	log    *slog.Logger
	lock   io.Closer
	noLoop bool // Options.Stepped, or tests that step by hand

	in  inbox
	com committer // belongs to the committer
	kee keeper    // belongs to the keeper

	mu        sync.Mutex // the index and the segments; never held over I/O
	groups    map[GroupID]*group
	list      []*group
	segs      map[uint32]*segment // hot and cold
	pool      []*segment          // free, ready
	active    *segment            // hot
	cold      *segment            // the cold one appended to
	seq       uint64              // highest stable sequence
	gen       uint64              // last generation given out
	lastGen   uint64              // of the newest hot segment no longer active
	nextID    uint32
	target    int64 // size of new segments
	want      int   // how many free segments to hold ready
	need      int64 // a frame waits for a segment of at least this size
	needCold  int64 // the keeper would go on with one of this size
	liveItems int64
	askedOut  int
	late      []lateSnapshot // to be written by the keeper, at most one of a group
	hits      map[GroupID]Hit
	unknown   string // not empty: corruption may have hidden groups altogether
	rolledAt  int64  // clock.Mono of the last change of the hot segment
	movedAt   int64  // clock.Mono of the last commit
	logged    int64  // bytes committed since the last checkpoint
	changed   bool   // something a checkpoint would record has changed since the last one
	space     *sync.Cond
	noSpace   string // why no segment can be made
	lowSpace  string // FreeMark
	free      uint64 // on the disk, when it was looked at last
	yield     bool   // no segment is made: a checkpoint needs the room
	alarmOn   bool
	telling   sync.Mutex // held while Events.Alarm is told of the space; before mu

	clean     bool // as found by Open
	ckptNo    uint64
	recovered replayStore // for Replay; gone with Start
	leftovers []string    // unfinished files, removed by Start
	unwiped   []*segment  // free segments whose headers are not zeros, wiped by Start

	failed   atomic.Bool
	failure  error // set before failed
	failOnce sync.Once
	failing  chan struct{} // closed when it has failed
	closing  atomic.Bool
	started  atomic.Bool
	stop     chan struct{}
	wg       sync.WaitGroup
	prepKick chan struct{}
	keepKick chan struct{}

	witness witnessFile
	tables  tableCache
	io      [2]ioWatch // committer, keeper
	stats   counters
	times   timers
}

// ErrClosed says that the log was closed with appends still waiting for room on the disk.
var ErrClosed = errors.New("seglog: closed while appends waited for space")

func (o Options) withDefaults() Options {
	def := func(p *int64, v int64) {
		if *p == 0 {
			*p = v
		}
	}
	dur := func(p *time.Duration, v time.Duration) {
		if *p == 0 {
			*p = v
		}
	}
	def(&o.SegmentMin, 16<<20)
	def(&o.SegmentMax, max(256<<20, o.SegmentMin))
	def(&o.CheckpointBytes, 256<<20)
	def(&o.FillRate, 256<<20)
	dur(&o.CheckpointEvery, 60*time.Second)
	dur(&o.HangLimit, 10*time.Second)
	dur(&o.NoSyncDelay, time.Second)
	if o.FrameMax == 0 {
		o.FrameMax = 1 << 20
	}
	o.FrameMax = int(min(int64(o.FrameMax), o.SegmentMin/4))
	o.SegmentMin = alignPage64(max(o.SegmentMin, 8*pageSize))
	o.SegmentMax = alignPage64(max(o.SegmentMax, o.SegmentMin))
	if o.Clock == nil {
		o.Clock = clock.System()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

func newLog(fs vfs.FS, dir string, o Options) *Log {
	o = o.withDefaults()
	l := &Log{
		fs: fs, dir: dir, o: o, log: o.Logger.With("room", "seglog"),
		groups: map[GroupID]*group{}, segs: map[uint32]*segment{}, hits: map[GroupID]Hit{},
		target: o.SegmentMin, want: 1, nextID: 1,
		stop: make(chan struct{}), failing: make(chan struct{}), prepKick: make(chan struct{}, 1), keepKick: make(chan struct{}, 1),
	}
	l.space = sync.NewCond(&l.mu)
	l.in.wake = make(chan struct{}, 1)
	l.com.init(o)
	l.times.init()
	l.tables.init(16 << 20)
	l.noLoop = o.Stepped
	return l
}

func (l *Log) path(name string) string { return path.Join(l.dir, name) }

// nextGen gives out a generation. The low half is drawn anew each time, so that no generation comes twice even when the
// counter's last steps were lost with a crash.
func (l *Log) nextGen() uint64 {
	l.gen = (l.gen>>32+1)<<32 | uint64(rand.Uint32())
	return l.gen
}

// Start begins to accept appends.
func (l *Log) Start() {
	if l.o.ReadOnly || !l.begin() || l.noLoop {
		return
	}
	l.wg.Add(4)
	go l.commitLoop()
	go l.prepareLoop()
	go l.keepLoop()
	go l.watchLoop()
}

// begin does what Start does before there are goroutines.
func (l *Log) begin() bool {
	if !l.started.CompareAndSwap(false, true) {
		return false
	}
	now := l.o.Clock.Mono()
	l.mu.Lock()
	l.rolledAt, l.movedAt, l.recovered = now, now, replayStore{}
	if len(l.segs) > 0 {
		l.want = poolBusy
	}
	l.mu.Unlock()
	l.kee.lastCheckpoint, l.kee.lastLook = now, now
	for _, name := range l.leftovers {
		if err := l.fs.Remove(l.path(name)); err != nil {
			l.log.Warn("cannot remove an unfinished file", "name", name, "error", err)
		}
	}
	l.leftovers = nil
	if err := l.openWitness(); err != nil {
		l.fail(err)
	}
	if err := l.wipe(); err != nil {
		l.fail(err)
	}
	return true
}

// wipe wipes the headers of free segments that recycling has not wiped, or whose first frame was torn: frames of an earlier
// life may lie behind them, and without a checkpoint to tell, a free segment with anything but zeros there looks like one whose
// header is damaged.
func (l *Log) wipe() error {
	for _, s := range l.unwiped {
		_, err := s.file.WriteAt(zeros[:pageSize], 0)
		if err == nil {
			err = s.file.Datasync()
		}
		if err != nil {
			return fmt.Errorf("wiping %s: %w", segmentName(s.id), err)
		}
	}
	l.unwiped = nil
	return nil
}

// fail stops the log for ever: what is not stable now never will be.
func (l *Log) fail(err error) {
	l.failOnce.Do(func() {
		l.failure = err
		l.failed.Store(true)
		close(l.failing)
		l.log.Error("log failed; nothing becomes stable any more", "error", err)
		l.mu.Lock()
		l.spaceChanged()
		l.mu.Unlock()
		kick(l.prepKick)
		kick(l.keepKick)
		if l.o.Events.Fatal != nil {
			l.o.Events.Fatal(err)
		}
	})
}

func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Close drains and stops. With clean, the caller says that it has appended final snapshots and wants the clean mark: a last
// checkpoint is written that says so. The error is the one the log failed with, if it did.
func (l *Log) Close(clean bool) error {
	if !l.closing.CompareAndSwap(false, true) {
		return nil
	}
	if l.started.Load() && !l.noLoop {
		l.mu.Lock()
		l.spaceChanged()
		l.mu.Unlock()
		if !l.waitFor(l.com.done) {
			return l.failure // hung: files stay open, the process is about to end
		}
		close(l.stop)
		gone := make(chan struct{})
		go func() { l.wg.Wait(); close(gone) }()
		if !l.waitFor(gone) {
			return l.failure
		}
	}
	err := l.failure
	if l.started.Load() && err == nil {
		switch {
		case l.in.waiting():
			err = ErrClosed
		case clean:
			if err = l.checkpoint(true); err == nil {
				err = l.closeWitness()
			}
		}
	}
	l.closeFiles()
	return err
}

// waitFor waits until the channel is closed; false if the log failed by hanging meanwhile.
func (l *Log) waitFor(done <-chan struct{}) bool {
	tick := l.o.Clock.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	failing := l.failing
	for {
		select {
		case <-done:
			return true
		case <-failing:
			failing = nil
		case <-tick.C():
		}
		if l.failed.Load() && l.hung() {
			return false
		}
	}
}

func (l *Log) closeFiles() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segs {
		s.file.Close()
	}
	for _, s := range l.kee.dead {
		s.file.Close()
	}
	for _, s := range l.pool {
		s.file.Close()
	}
	if l.witness.file != nil {
		l.witness.file.Close()
	}
	if l.lock != nil {
		l.lock.Close()
		l.lock = nil
	}
}

// Clean tells whether the last stop wrote the clean mark and nothing was written after it, or nothing was ever written.
func (l *Log) Clean() bool { return l.clean }

// Quarantined lists the groups hit by corruption, in order of id. A hit with group 0 says that any group the log holds no
// record of counts as hit, too; that is known to the Open that found the damage only, so the caller passes such groups to
// Quarantine.
func (l *Log) Quarantined() []Hit {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hitList()
}

// Quarantine marks a group as hit by corruption although the log itself cannot know: a group the caller knows of, and of
// which no record is left while Quarantined has a hit for group 0. It lasts until a KindDrop of the group.
func (l *Log) Quarantine(g GroupID, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setHit(g, reason)
}

// setHit quarantines a group.
func (l *Log) setHit(g GroupID, reason string) bool {
	if _, known := l.hits[g]; known || planted.Is(planted.DamageUnseen) {
		return false
	}
	l.hits[g] = Hit{g, reason}
	if gr := l.groups[g]; gr != nil {
		gr.hit = reason
		l.answered(gr) // no snapshot will come: nobody is to wait for it
	}
	l.changed = true
	return true
}

// hitWhileRunning quarantines a group for what a reader or the rewriter met, and says so.
func (l *Log) hitWhileRunning(g GroupID, reason string) {
	l.mu.Lock()
	fresh := l.setHit(g, reason)
	l.mu.Unlock()
	if !fresh {
		return
	}
	l.log.Error("corruption: group quarantined", "group", uint64(g), "reason", reason)
	if l.o.Events.Hit != nil {
		l.o.Events.Hit(Hit{g, reason})
	}
}

// SetLive says, after Replay and before Start, that exactly these ids of g are live. The ranges are ascending and do not
// overlap. A group never set keeps all it has. It returns how many of the ids the log does not hold: not 0 means that it lost
// some without a trace.
func (l *Log) SetLive(gid GroupID, live []Range) (missing uint64) {
	var absent idset // what no run has; an id may be in two, when a crash came between copying and letting go
	for _, r := range live {
		absent.add(r.First, r.Last)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.groups[gid]
	if g == nil {
		return absent.n
	}
	for _, r := range g.runs {
		before := r.liveBytes()
		n := r.live.n
		r.live.intersect(live)
		r.seg.items -= n - r.live.n
		r.seg.liveBytes += r.liveBytes() - before
		l.liveItems -= int64(n - r.live.n)
		r.live.each(func(first, last uint64) { absent.remove(first, last) })
	}
	g.forget()
	l.changed = true
	return absent.n
}

// Release says that the ids are no longer needed once the entry with this index is stable. Ranges may overlap others
// released before. The slice is copied.
func (l *Log) Release(gid GroupID, index uint64, ranges []Range) {
	if len(ranges) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.groups[gid]
	if g == nil {
		g = l.group(gid)
	}
	if index <= g.lastIndex {
		for _, r := range ranges {
			l.releaseRange(g, r)
		}
		l.changed = true
		return
	}
	if n := len(g.waiting); n > 0 && g.waiting[n-1].index == index {
		g.waiting[n-1].n += len(ranges)
	} else {
		g.waiting = append(g.waiting, release{index, len(ranges)})
	}
	g.ranges = append(g.ranges, ranges...)
}
