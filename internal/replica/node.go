package replica

import (
	"log/slog"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/seglog"
)

// Log is what replica needs of the segment log.
type Log interface {
	Append(b *seglog.Batch)
	Replay(fn func(seglog.Replayed) error) error
	Clean() bool
	SetLive(g seglog.GroupID, live []seglog.Range)
}

// Options say what a Node is built from.
type Options struct {
	Log    Log
	Shards int // workers for groups; 0: GOMAXPROCS. Simple groups have one more
	Clock  clock.Clock
	Logger *slog.Logger
	// A group takes a snapshot after so many entries, or so many bytes, since
	// its last one (64 k, 32 MiB).
	SnapshotEntries uint64
	SnapshotBytes   int64
	// Overdue is how long an entry may wait for the disk before its host is
	// told (15 s).
	Overdue time.Duration
}

// Node has the shards and groups of one node.
//
// Life: New, NewSimpleGroup for the catalog, Replay, NewGroup for what is to
// be there, Start, Close.
type Node struct{}

// Open returns a node that is not started.
func Open(o Options) *Node

// Replay reads the log into its groups; factory makes the host of a group that
// is met in the log. It may return nil for a group that is to be left alone.
func (n *Node) Replay(factory func(seglog.GroupID) Host) error

// NewGroup adds a group, direct or (logged) solo. The group answers Wake at once, also before Start.
func (n *Node) NewGroup(id seglog.GroupID, h Host, logged bool) *Group

// NewSimpleGroup adds a solo group for a small machine on the worker that
// simple groups have for themselves. It must be called before Replay.
func (n *Node) NewSimpleGroup(id seglog.GroupID, m SimpleMachine) *SimpleGroup

// Group returns the group with this id, or nil.
func (n *Node) Group(id seglog.GroupID) *Group

// Start tells the log which items live, lets the hosts recover and starts the
// workers. The log must be started after it.
func (n *Node) Start()

// NeedSnapshots asks groups for a snapshot soon; it is the log's Events.NeedSnapshot.
func (n *Node) NeedSnapshots(ids []seglog.GroupID)

// Close lets the workers finish what is pending and stops them. With clean,
// it first appends a snapshot of every group that has changed since its last
// one; the log is then ready for Close(true).
func (n *Node) Close(clean bool) error

// Group is one group. Wake may be called from any goroutine.
type Group struct{}

// ID returns the group's id.
func (g *Group) ID() seglog.GroupID

// Wake says that the host has something to pack.
func (g *Group) Wake()

// Drop ends the group; called by the host's worker (in Pack or Apply) or before
// Start. All its items are given up. The host is not called for entries again.
func (g *Group) Drop()

// SimpleMachine is a pure machine without items: the catalog is one. Several
// commands of one round share an index.
type SimpleMachine interface {
	Apply(index uint64, time int64, cmd []byte) any
	AppendSnapshot(dst []byte) []byte
	Restore(blob []byte) error
}

// SimpleGroup drives a SimpleMachine.
type SimpleGroup struct{}

// Propose puts a command in line; those of one caller keep their order. done,
// if not nil, gets what Apply returned, or an error when the group has been
// closed; with waitStable it runs when the command is on disk, else when it is
// applied. It runs on the worker and must not block. cmd must not change.
func (g *SimpleGroup) Propose(cmd []byte, waitStable bool, done func(result any, err error))
