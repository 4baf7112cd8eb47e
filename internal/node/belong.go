package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/cluster"
)

// ErrRemoved says that the cluster has taken this node out. What its folder holds is of no use to anybody then.
var ErrRemoved = errors.New("the cluster has removed this node (forget_cluster_node): it must not serve what its data folder holds. " +
	"Empty the folder with ctl reset, and start it anew with ctl start_app")

// Times of a node that asks whether it still belongs to its cluster.
const (
	leaderless = time.Second     // without a leader of the catalog, before it asks
	askAgain   = 2 * time.Second // between two rounds
)

// belonging keeps track of the nodes of the cluster outside the catalog: a node that was away while others came and went
// finds them again by it, and one that was removed meanwhile is told so. All of it but the book is the watching goroutine's.
type belonging struct {
	m       *mesh
	without int64 // since when the catalog has had no leader; 0: it has one
	asked   int64 // when the last round of asking began
	began   bool
	asking  atomic.Bool
	entered atomic.Bool // the catalog has shown this node that it is in it

	mu   sync.Mutex
	book []cluster.Node // the others, as they were last known
	save sync.Mutex     // one write of the identity at a time
}

// tick asks whether this node belongs to the cluster when there is reason to: no leader has been known for a while, or
// the catalog that it has does not know it.
func (b *belonging) tick(now int64) {
	v := b.m.n.catalog.View()
	led := b.m.forward.Leader() != 0
	switch {
	case led:
		b.without = 0
	case b.without == 0:
		b.without = now
	}
	lost := b.without != 0 && now-b.without >= int64(leaderless)
	if known := v.Bootstrapped() && v.Node(b.m.self) != nil; known && !lost {
		return
	}
	if b.began && now-b.asked < int64(askAgain) || !b.asking.CompareAndSwap(false, true) {
		return
	}
	b.began, b.asked = true, now
	addrs := b.addresses()
	b.m.ended.Go(func() {
		defer b.asking.Store(false)
		b.ask(b.m.life, addrs)
	})
}

// addresses are where to ask: nodes that were known once, and those that this one was told.
func (b *belonging) addresses() []string {
	var addrs []string
	for _, n := range b.others() {
		addrs = append(addrs, n.Addr)
	}
	for _, f := range b.m.state.Founding.Founders {
		addrs = append(addrs, f.Addr)
	}
	addrs = append(addrs, joinList(b.m.n.settings.Cluster)...)
	var list []string
	for _, addr := range addrs {
		if addr != b.m.n.settings.Cluster.Address && !slices.Contains(list, addr) {
			list = append(list, addr)
		}
	}
	return list
}

// ask asks one address after another until somebody knows.
func (b *belonging) ask(ctx context.Context, addrs []string) {
	for _, addr := range addrs {
		t, err := ask(ctx, b.m.links, addr, asked{What: askNodes}, callWait)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			b.m.n.log.Debug("asked who is in the cluster", "address", addr, "error", err)
			continue
		case !t.In:
			b.m.n.expelled(ErrRemoved)
			return
		}
		b.learn(t.Nodes)
		b.m.happened(event{kind: eventChanged})
		return
	}
}

// others are the nodes of the book.
func (b *belonging) others() []cluster.Node {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.book
}

// learn takes over who is in the cluster, and writes it down.
func (b *belonging) learn(nodes []cluster.Node) {
	var book []cluster.Node
	for _, n := range nodes {
		if n.ID != b.m.self && n.ID != 0 && n.Addr != "" {
			book = append(book, n)
		}
	}
	b.mu.Lock()
	same := slices.Equal(book, b.book)
	b.book = book
	b.mu.Unlock()
	if !same {
		b.write()
	}
}

// write writes the book into the identity.
func (b *belonging) write() {
	b.save.Lock()
	defer b.save.Unlock()
	id := &b.m.n.identity
	id.Peers = b.others()
	if err := id.save(b.m.n.fs, b.m.n.settings.DataDir); err != nil {
		b.m.n.log.Warn("who is in the cluster could not be written down", "error", err)
	}
}

// look compares what the catalog says with the book; it reports whether this node has been taken out.
func (b *belonging) look() (removed bool) {
	v := b.m.n.catalog.View()
	if !v.Bootstrapped() {
		return false
	}
	if v.Node(b.m.self) == nil {
		return b.entered.Load()
	}
	var nodes []cluster.Node
	for n := range v.Nodes().All() {
		nodes = append(nodes, cluster.Node{ID: n.ID, Name: n.Name, Addr: n.Addr})
	}
	b.m.ended.Go(func() { b.learn(nodes) })
	return false
}

// tellRemoved writes down what went with a node that was taken out of the cluster.
func (m *mesh) tellRemoved(r *catalog.Result) {
	if r == nil || r.Err != nil || r.Node == nil || r.Node.ID == m.self || m.n.catalog.View().Node(r.Node.ID) != nil {
		return
	}
	const most = 20
	var names []string
	for _, q := range r.Removed.Queues[:min(len(r.Removed.Queues), most)] {
		names = append(names, q.Name)
	}
	m.n.log.Warn("a node was removed from the cluster, and with it the queues that lived there", "node", r.Node.Name,
		"queues", len(r.Removed.Queues), "first", names, "copies_of_quorum_queues", len(r.Removed.Members))
}

// removal is what becomes of a node when it hears that the cluster has taken it out, or, while it starts, that it does not fit.
type removal struct {
	is   chan struct{} // closed then
	once sync.Once
	why  error // set before
}

// say says why the node has no place in its cluster; the first reason counts.
func (r *removal) say(why error) {
	r.once.Do(func() {
		r.why = why
		close(r.is)
	})
}

// Removed is closed when the node has heard that its cluster has taken it out. Whoever runs it stops it then.
func (n *Node) Removed() <-chan struct{} { return n.removal.is }

// expelled takes note of it.
func (n *Node) expelled(why error) {
	select {
	case <-n.removal.is:
	default:
		n.log.Error("this node is no longer in its cluster", "reason", why)
		n.removal.say(why)
	}
}

// ends returns a context of the start that ends with it.
func (r *removal) ends(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-r.is:
			cancel(r.why)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}
