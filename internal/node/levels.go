package node

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"holdfast/internal/catalog"
	"holdfast/internal/peer"
)

// levels is what this node knows of the formats that nodes have in common, and which of them the cluster uses.
type levels struct {
	known catalog.Levels
	at    atomic.Uint32 // the cluster's level as far as it has been heard of; 0: nothing has
	// fromNew: this start has filled the catalog, of a node that is alone.
	fromNew atomic.Bool
}

// levels are the levels that a node started from these options knows.
func (o *Options) levels() catalog.Levels {
	if o.Levels == (catalog.Levels{}) {
		return catalog.KnownLevels()
	}
	return o.Levels
}

// hello is what other nodes are told.
func (l *levels) hello() peer.Levels {
	return peer.Levels{Least: l.known.Least, Most: l.known.Most, Cluster: uint16(l.at.Load())}
}

// inUse is the level that queues write by. After a start the catalog may be behind for a while, and what a message says of itself counts
// nevertheless: the folder knows to what level the cluster went, which never goes back.
func (l *levels) inUse() uint16 { return uint16(max(l.at.Load(), 1)) }

// readable says why the folder cannot be read by this version, before anything of it is; nil: it can.
func (n *Node) readable(fresh bool) error {
	if fresh {
		return nil
	}
	level := max(n.identity.Level, 1)
	if err := n.levels.known.Check(level); err != nil {
		return fmt.Errorf("data folder %s: %w", n.settings.DataDir, err)
	}
	n.levels.at.Store(uint32(level))
	return nil
}

// raising takes note that the catalog goes up to a level, before anybody can write by it: the folder may hold what older
// versions cannot read from then on. On the catalog's worker.
func (n *Node) raising(level uint16) {
	n.levels.at.Store(uint32(level))
	if m := n.mesh; m != nil {
		m.belong.save.Lock()
		defer m.belong.save.Unlock()
	}
	if n.identity.Level < level {
		n.identity.Level = level
		if err := n.identity.save(n.fs, n.settings.DataDir); err != nil {
			n.fail(fmt.Errorf("the level of the cluster's formats could not be written down: %w", err))
			return
		}
		news := slog.LevelInfo
		if n.levels.fromNew.Load() { // nothing has ever run on this
			news = slog.LevelDebug
		}
		n.log.Log(context.Background(), news, "the cluster has gone up to another level of its formats; there is no way back to versions that do not know it", "level", level)
	}
	if level > n.levels.known.Most {
		n.fail(n.levels.known.Check(level))
	}
}

// tellLevels has the catalog know which levels this start knows, where it is told otherwise. by carries out a command.
func (n *Node) tellLevels(by func([]byte) (*catalog.Result, error)) error {
	v, known := n.catalog.View(), n.levels.known
	if v.Bootstrapped() {
		if err := known.Check(v.Level()); err != nil {
			return err
		}
	}
	self := v.Node(n.identity.number())
	if self == nil || self.Levels() == known {
		return nil
	}
	_, err := by(catalog.SetLevels(self.ID, known))
	return err
}

// tellLevels is Node.tellLevels in a cluster.
func (m *mesh) tellLevels(ctx context.Context) error {
	return m.n.tellLevels(func(cmd []byte) (*catalog.Result, error) { return m.n.ask(ctx, cmd) })
}

// raiseAlone leads the catalog of a node that is alone to the latest level it knows.
func (n *Node) raiseAlone() error {
	for next := n.catalog.View().NextLevel(); next != 0; next = n.catalog.View().NextLevel() {
		if _, err := n.propose(catalog.RaiseLevel(next)); err != nil {
			return err
		}
	}
	return nil
}

// unfit hears of a cluster whose level this version does not know: a node that is starting ends. One that has entered knows
// what its cluster does.
func (m *mesh) unfit(its peer.Hello) {
	err := m.n.levels.known.Check(its.Levels.Cluster)
	if err == nil || m.belong.entered.Load() {
		return
	}
	m.n.removal.say(fmt.Errorf("node %s says: %w", cmp.Or(its.Name, its.Addr), err))
}
