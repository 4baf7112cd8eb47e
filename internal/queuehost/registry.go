package queuehost

import (
	"iter"
	"log/slog"

	"holdfast/internal/clock"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

// Log is what the queues need of the segment log.
type Log interface {
	Release(g seglog.GroupID, index uint64, ranges []seglog.Range)
	Pin(g seglog.GroupID, id uint64) (seglog.Ref, bool)
}

// Options say what a Registry is built from. Zero sizes mean the defaults.
type Options struct {
	Log    Log
	Node   *replica.Node
	Owner  Owner
	Clock  clock.Clock
	Logger *slog.Logger
	// TailCache is how many bytes of persistent bodies that are on disk are
	// kept in memory as well (64 MiB).
	TailCache int64
	// TransientBudget is how many bytes of transient bodies on durable queues
	// are kept in memory; further ones go to the log, unsynced (256 MiB).
	TransientBudget int64
	// ConnectionCredit and NodeCredit bound what one connection, and all of
	// them together, have in flight towards queues (4 MiB, 256 MiB).
	ConnectionCredit, NodeCredit int64
}

// Registry knows the queues that run on this node.
//
// Life: New; replica.Node.Replay with Registry.Host as the factory; Create for
// every queue of the catalog, which adopts what was replayed; Start of the
// node. What was replayed and not created is an orphan.
type Registry struct{}

// New returns an empty registry.
func New(o Options) *Registry

// SetOwner says who is told of unused queues; before the node is started.
func (r *Registry) SetOwner(o Owner)

// Host makes the host of a group met in the log; it is replica's factory.
func (r *Registry) Host(id seglog.GroupID) replica.Host

// Create makes a queue, or adopts the replayed one with this id. A quarantined
// queue is created as one whose every operation fails (Handle.Unavailable).
func (r *Registry) Create(def QueueDef) (*Handle, error)

// Get returns the queue's handle, or nil.
func (r *Registry) Get(id seglog.GroupID) *Handle

// All yields the handles of all queues, in no order.
func (r *Registry) All() iter.Seq[*Handle]

// Drop deletes a queue: its consumers are cancelled with reason, its space
// comes back. done, if not nil, runs on the worker after that.
func (r *Registry) Drop(id seglog.GroupID, reason error, done func())

// Orphans lists the groups of the log that no Create has claimed.
func (r *Registry) Orphans() []Orphan

// Discard gives up on an orphan or on the data of a quarantined group.
func (r *Registry) Discard(id seglog.GroupID) error

// NewCredit returns the credit of one connection.
func (r *Registry) NewCredit() *Credit
