package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/invariant"
	"holdfast/internal/metrics"
	"holdfast/internal/seglog"
)

// Log is what replica needs of the segment log.
type Log interface {
	Append(b *seglog.Batch)
	Replay(fn func(seglog.Replayed) error) error
	Clean() bool
	SetLive(g seglog.GroupID, live []seglog.Range) (missing uint64)
	Start()
}

// Reader reads the log for raft groups.
type Reader interface {
	// ReadEntry reads an entry above the group's newest snapshot, or in the tail that is kept: the record, and its items in the order of its ids.
	ReadEntry(g seglog.GroupID, index uint64) (rec seglog.Replayed, items [][]byte, err error)
	// Pin keeps items, which are in the log, readable. No I/O; the only method for workers.
	Pin(g seglog.GroupID, items []seglog.Range) (Pinned, error)
}

// RaftLog is what raft groups need of it besides.
type RaftLog interface {
	Log
	// KeepTail says that entries above index are to stay readable after snapshots above it. 0: no wish.
	KeepTail(g seglog.GroupID, index uint64)
	// Release says that items are no longer needed once the group's record at index is stable.
	Release(g seglog.GroupID, index uint64, items []seglog.Range)
}

// Options say what a Node is built from. Zero means the default in brackets.
type Options struct {
	Log    Log
	Shards int         // workers for groups (GOMAXPROCS); simple groups have one more
	Clock  clock.Clock // (the system's)
	Logger *slog.Logger
	// A group takes a snapshot after so many entries, or so many bytes, since
	// its last one (64 k, 32 MiB).
	SnapshotEntries uint64
	SnapshotBytes   int64
	// LateSnapshots is from which size of the last one on a group's snapshots are made and written behind the writing (256 KiB).
	LateSnapshots int64
	// Overdue is how long an entry may wait for the disk before its host is told (15 s).
	Overdue time.Duration
	// NodeID, Transport and Reader are for raft groups: the number of this node, the way to
	// others, and to what lies in the log, which must be a RaftLog then.
	NodeID    uint64
	Transport Transport
	Reader    Reader
	// Tick is raft's unit of time (100 ms).
	Tick time.Duration
	// Rest lets raft groups that have nothing to do stop beating. PeerDown must then be called for every node that cannot be
	// reached or is silent, within a second or so: nothing else finds out.
	Rest bool
	// KeepEntries is how many bytes of applied entries are kept in memory for members
	// that are a little behind, KeepTail how many on disk for those that are away (16 MiB, 1 GiB).
	KeepEntries int
	KeepTail    int64
	// CloseWait bounds how long Close waits for the disk (30 s).
	CloseWait time.Duration
}

func (o *Options) setDefaults() {
	if o.Shards <= 0 {
		o.Shards = runtime.GOMAXPROCS(0)
	}
	if o.Clock == nil {
		o.Clock = clock.System()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.SnapshotEntries == 0 {
		o.SnapshotEntries = 64 << 10
	}
	if o.SnapshotBytes == 0 {
		o.SnapshotBytes = 32 << 20
	}
	if o.LateSnapshots == 0 {
		o.LateSnapshots = 256 << 10
	}
	if o.Overdue == 0 {
		o.Overdue = 15 * time.Second
	}
	if o.Tick == 0 {
		o.Tick = 100 * time.Millisecond
	}
	if o.KeepEntries == 0 {
		o.KeepEntries = 16 << 20
	}
	if o.KeepTail == 0 {
		o.KeepTail = 1 << 30
	}
	if o.CloseWait == 0 {
		o.CloseWait = 30 * time.Second
	}
}

// Node has the shards and groups of one node.
//
// Life: Open; NewSimpleGroup for the catalog; Replay; NewGroup for what is to
// be there; Start; Close. A simulator calls Prepare,
// starts the log, and calls Shard.Step.
type Node struct {
	o      Options
	shards []*Shard // the last one is that of the simple groups

	mu     sync.RWMutex
	groups map[seglog.GroupID]*Group

	simple   []*SimpleGroup
	ticker   clock.Ticker
	tickDone chan struct{}
	started  atomic.Bool
	clean    bool // the stop under way is to be a clean one
	closing  atomic.Bool

	// Of raft groups.
	raftLog        RaftLog
	raftTicker     clock.Ticker
	reads          reads
	early          early
	downMu         sync.Mutex
	down           map[uint64]bool                 // nodes known to be away
	reluctant      atomic.Bool                     // it had better not lead
	reluctantPeers atomic.Pointer[map[uint64]bool] // nor had these
	same           map[string]members              // configurations that groups share; guarded by downMu
	leading        atomic.Int64
	transfers      atomic.Int64 // under way from here
	tailBytes      atomic.Int64 // kept for members that are away
}

// ErrClosed answers what comes after Close.
var ErrClosed = errors.New("replica: the node is closed")

// Open returns a node that is not started.
func Open(o Options) *Node {
	o.setDefaults()
	n := &Node{o: o, groups: map[seglog.GroupID]*Group{}}
	n.reads.wake = make(chan struct{}, 1)
	if o.NodeID != 0 {
		n.raftLog = o.Log.(RaftLog)
	}
	for i := range o.Shards + 1 {
		s := newShard(n, i)
		s.cache.limit = o.KeepEntries / (o.Shards + 1)
		s.stats.roundTime = metrics.NewHistogram(metrics.Durations())
		s.stats.stableTime = metrics.NewHistogram(metrics.Durations())
		n.shards = append(n.shards, s)
	}
	return n
}

// Shards returns how many workers serve groups, that of the simple groups not counted.
func (n *Node) Shards() int { return n.o.Shards }

// ShardOf returns the number of the shard, from 0, that serves a group made by NewGroup.
func (n *Node) ShardOf(id seglog.GroupID) int { return int(id % seglog.GroupID(n.o.Shards)) }

// Shard returns a shard for a simulator to step: those for groups, then that of the simple groups.
func (n *Node) Shard(i int) *Shard { return n.shards[i] }

// Group returns the group with this id, or nil.
func (n *Node) Group(id seglog.GroupID) *Group {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.groups[id]
}

// NewGroup adds a group: solo if logged, else direct.
func (n *Node) NewGroup(id seglog.GroupID, h Host, logged bool) *Group {
	return n.add(n.shards[n.ShardOf(id)], id, h, logged)
}

func (n *Node) add(s *Shard, id seglog.GroupID, h Host, logged bool) *Group {
	var repl replicator = direct{}
	if logged {
		repl = solo{}
	}
	return n.addWith(s, &Group{id: id, shard: s, host: h, repl: repl})
}

func (n *Node) addWith(s *Shard, g *Group) *Group {
	id := g.id
	if h, is := g.host.(GroupedHost); is {
		h.SetGroup(g)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.groups[id] != nil {
		invariant.Failf("group %d is added twice", id)
	}
	n.groups[id] = g
	return g
}

func (n *Node) forget(g *Group) {
	n.mu.Lock()
	delete(n.groups, g.id)
	n.mu.Unlock()
}

// groupsOf returns the groups of a shard in the order of their ids.
func (n *Node) groupsOf(s *Shard) []*Group {
	n.mu.RLock()
	var gs []*Group
	for _, g := range n.groups {
		if g.shard == s {
			gs = append(gs, g)
		}
	}
	n.mu.RUnlock()
	slices.SortFunc(gs, func(a, b *Group) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	return gs
}

// Replay reads the log into its groups; factory makes the host of a group that
// is met in the log and not added yet; raft: it is a replicated one, and its host a RaftHost. It may return nil for a group that is
// to be left alone. A group whose records make no sense is left alone from
// there on, and its host says so (Host.Failed); for a simple group it is an error.
func (n *Node) Replay(factory func(id seglog.GroupID, raft bool) Host) error {
	skipped := map[seglog.GroupID]bool{}
	var last int64
	err := n.o.Log.Replay(func(rec seglog.Replayed) error {
		last = max(last, rec.Time)
		g := n.groups[rec.Group]
		if g == nil {
			if skipped[rec.Group] {
				return nil
			}
			raft := rec.Term > 0
			h := factory(rec.Group, raft)
			if h == nil {
				skipped[rec.Group] = true
				return nil
			}
			if raft {
				g = n.NewRaftGroup(rec.Group, h.(RaftHost), nil)
			} else {
				g = n.NewGroup(rec.Group, h, true)
			}
		}
		if g.failed != nil {
			return nil
		}
		err := g.replay(rec)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("group %d, %v %d: %w", rec.Group, rec.Kind, rec.Index, err)
		if g.shard == n.shards[len(n.shards)-1] {
			return err
		}
		n.fail(g, err)
		return nil
	})
	for _, s := range n.shards {
		s.startTime(last)
	}
	return err
}

// fail leaves a group alone whose records make no sense, or not enough, or are not all that it had.
func (n *Node) fail(g *Group, err error) {
	n.o.Logger.Error("a group is out of service", "group", uint64(g.id), "error", err)
	g.failed = err
	g.host.Failed(err)
}

// replay applies one record of the log to the group.
func (g *Group) replay(rec seglog.Replayed) error {
	switch {
	case rec.Kind == seglog.KindDrop:
		g.dropped = true
		g.shard.node.forget(g)
		return nil
	case g.raft != nil:
		return g.raft.replay(rec)
	}
	switch rec.Kind {
	case seglog.KindSnapshot:
		if err := g.host.Restore(rec.Meta); err != nil {
			return err
		}
		g.index, g.term = rec.Index, rec.Term
		g.snapshotTaken(len(rec.Meta))
	case seglog.KindEntry:
		if rec.Index != g.index+1 {
			return fmt.Errorf("entry %d is missing", g.index+1)
		}
		g.index, g.term = rec.Index, rec.Term
		g.sinceEntries++
		g.sinceBytes += int64(len(rec.Meta))
		return g.host.Replay(rec)
	default:
		return fmt.Errorf("unknown kind of record %d", rec.Kind)
	}
	return nil
}

// Started reports whether Prepare or Start was called.
func (n *Node) Started() bool { return n.started.Load() }

// Prepare ends the replay: it tells the log which items live and lets the
// hosts recover. Start calls it.
func (n *Node) Prepare() {
	if n.started.Swap(true) {
		invariant.Failf("the node is started twice")
	}
	clean := n.o.Log.Clean()
	var live []seglog.Range
	for _, s := range n.shards {
		for _, g := range n.groupsOf(s) {
			if !g.repl.logged() || g.failed != nil {
				continue
			}
			if g.index > 0 || g.raft != nil {
				var err error
				if live, err = n.setLive(g, live); err != nil {
					n.fail(g, err)
					continue
				}
			}
			if g.host.Recover(clean || g.raft != nil) || g.raft != nil {
				g.Wake()
			}
		}
	}
}

// setLive tells the log which items of a group live. live is memory to use.
func (n *Node) setLive(g *Group, live []seglog.Range) ([]seglog.Range, error) {
	for {
		var ok bool
		if live, ok = g.host.Live(live[:0]); !ok {
			return live, nil
		}
		if g.raft != nil {
			live = g.raft.live(live)
		}
		missing := n.o.Log.SetLive(g.id, live)
		if missing == 0 {
			return live, nil
		}
		if g.raft == nil || g.raft.store.applied == g.raft.store.last() {
			return live, fmt.Errorf("group %d: %d of its items are not in the log", g.id, missing)
		}
		if err := g.raft.replayNext(); err != nil {
			return live, err
		}
	}
}

// Start ends the replay (Prepare), starts the log, which takes appends only
// after it knows what lives, and then the workers.
func (n *Node) Start() {
	n.Prepare()
	n.o.Log.Start()
	for _, s := range n.shards {
		go s.run()
	}
	n.ticker = n.o.Clock.NewTicker(time.Second)
	n.tickDone = make(chan struct{})
	go n.tick()
	if n.o.NodeID != 0 {
		n.raftTicker = n.o.Clock.NewTicker(n.o.Tick)
		go n.raftTick()
		go n.readLoop()
	}
}

// tick looks once a second for entries that wait too long for the disk.
func (n *Node) tick() {
	for {
		select {
		case <-n.tickDone:
			return
		case <-n.ticker.C():
			for _, s := range n.shards {
				if s.stats.inLog.Load() > 0 {
					s.checkOverdue()
				}
			}
		}
	}
}

// NeedSnapshots asks groups for a snapshot soon; it serves the log's
// Events.NeedSnapshot and does not wait.
func (n *Node) NeedSnapshots(ids []seglog.GroupID) {
	for _, id := range ids {
		if g := n.Group(id); g != nil {
			g.wantSnapshot.Store(true)
			g.Wake()
		}
	}
}

// Close lets the workers finish what is in their mailboxes and stops them. With
// clean it appends a snapshot of every group that has changed since its last
// one and waits until all is on disk: the log is then ready for its own
// Close(true). Nothing may be handed to the groups any more.
func (n *Node) Close(clean bool) error {
	n.clean = clean
	n.closing.Store(true)
	n.ticker.Stop()
	if n.raftTicker != nil {
		n.raftTicker.Stop()
	}
	close(n.tickDone)
	for _, s := range n.shards {
		s.stop()
	}
	late, done := clock.After(n.o.Clock, n.o.CloseWait)
	defer done()
	for _, s := range n.shards {
		select {
		case <-s.done:
		case <-late:
			return fmt.Errorf("replica: shard %d still waits for the disk after %v", s.id, n.o.CloseWait)
		}
	}
	for _, g := range n.simple {
		g.fail(ErrClosed)
	}
	for _, s := range n.shards {
		for _, g := range n.groupsOf(s) {
			if g.raft != nil {
				g.raft.close()
			}
		}
	}
	return nil
}
