package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"holdfast/internal/broker"
	"holdfast/internal/cluster"
	"holdfast/internal/peer"
	"holdfast/internal/replica"
)

// forceCatalog has this node go on with the catalog alone, after the majority of the nodes that voted on it was lost for good. It
// is refused while the catalog has a leader, or while any other node of the cluster answers: that one would be of another mind.
func (n *Node) forceCatalog(ctx context.Context) error {
	m := n.mesh
	if m == nil {
		return refuse(broker.Rejected, "this node is alone: it waits for nobody")
	}
	if by := m.whoAnswers(ctx); len(by) > 0 {
		return refuse(broker.Rejected, "other nodes of the cluster are there (%s). With a majority of those that vote nothing has to be forced; "+
			"without one, choose the node that goes on, stop the others for good, and let them join again after 'ctl force_reset'", strings.Join(by, ", "))
	}
	done := make(chan error, 1)
	if !m.ended.Go(func() { done <- m.forceSingle() }) {
		return refuse(broker.Unavailable, "the node is stopping")
	}
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		return refuse(broker.Unavailable, "the disk has not answered in time; it may still happen")
	case <-n.failed:
		err = n.Err()
	}
	switch {
	case errors.Is(err, replica.ErrHasLeader):
		return refuse(broker.Rejected, "the catalog has a leader: nothing has to be forced. To take out a node that is lost use 'ctl forget_cluster_node'")
	case errors.Is(err, replica.ErrNoState):
		return refuse(broker.Rejected, "this node has never had the catalog: it cannot go on from it")
	case err != nil:
		return refuse(broker.Unavailable, "%v", err)
	}
	n.log.Warn("this node goes on with the catalog alone: the operator has asked. The other nodes must never run again as they are")
	return nil
}

// forceSingle makes this node the only one of the catalog's group, and begins a new line of the catalog with it.
func (m *mesh) forceSingle() error {
	if err := m.lineage.begin(); err != nil {
		return err
	}
	done := make(chan error, 1)
	m.n.commands.Group().ForceSingle(func(err error) { done <- err })
	select {
	case err := <-done:
		if e := m.lineage.settle(err == nil); e != nil {
			m.n.fail(fmt.Errorf("the line of the catalog could not be written down: %w", e))
			return e
		}
		return err
	case <-m.ending: // the next start settles it
		return replica.ErrClosed
	}
}

// whoAnswers lists the other nodes of the cluster that are there, by name.
func (m *mesh) whoAnswers(ctx context.Context) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	others := map[uint64]cluster.Node{}
	for _, f := range m.state.Founding.Founders {
		others[f.ID] = f.Node
	}
	if v := m.n.catalog.View(); v.Bootstrapped() { // it knows who is in the cluster now
		clear(others)
		for n := range v.Nodes().All() {
			others[n.ID] = cluster.Node{ID: n.ID, Name: n.Name, Addr: n.Addr}
		}
	}
	delete(others, m.self)
	var mu sync.Mutex
	var all sync.WaitGroup
	for id, n := range others {
		all.Go(func() {
			is := m.isUp(id)
			if !is {
				h, err := m.links.Probe(ctx, n.Addr)
				is = err == nil && h.Node == peer.NodeID(id)
			}
			if is {
				mu.Lock()
				defer mu.Unlock()
				names = append(names, n.Name)
			}
		})
	}
	all.Wait()
	slices.Sort(names)
	return names
}

// ForceBoot implements mgmt.App. A node that runs, or waits for others, goes on at once; for one that is stopped the next start
// does not wait for anybody.
func (l *Life) ForceBoot(ctx context.Context) (next bool, err error) {
	if n := l.running(); n != nil {
		return false, n.forceCatalog(ctx)
	}
	told := make(chan error, 1)
	l.mu.Lock()
	starting := l.cancel != nil
	soon := !starting && l.state == lifeStarting // the start has yet to look
	if !starting {
		l.force = func(err error) {
			if err != nil {
				l.o.Logger.Error("the node was to go on alone", "error", err)
			}
			told <- err
		}
	}
	l.mu.Unlock()
	switch {
	case soon:
		select {
		case err := <-told:
			return false, err
		case <-ctx.Done():
			return false, refuse(broker.Unavailable, "the node is still starting; its log says what it waits for")
		}
	case !starting:
		return true, nil
	}
	l.stopStarting(errStopAsked)
	if err := l.take(ctx); err != nil {
		return false, err
	}
	if n := l.running(); n != nil { // it came up this very moment
		<-l.turn
		return false, n.forceCatalog(ctx)
	}
	l.mu.Lock()
	l.force = func(err error) { told <- err }
	l.mu.Unlock()
	started := make(chan error, 1)
	go func() { started <- l.goOn(ctx) }()
	select {
	case err = <-told:
		if err == nil {
			err = <-started
		}
	case err = <-started:
		select {
		case err = <-told:
		default:
			if err == nil {
				err = refuse(broker.Unavailable, "the node has started, and nothing was forced")
			}
		}
	}
	return false, err
}

// takeForce returns what is to be told when the catalog was forced, nil if it is not to be, once.
func (l *Life) takeForce() func(error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.force
	l.force = nil
	return f
}

// forgetOffline is Forget with --offline: where the majority is lost for good, this node goes on alone first.
func (l *Life) forgetOffline(ctx context.Context, name string) error {
	_, err := l.ForceBoot(ctx)
	var no *broker.AdminError
	if errors.As(err, &no) && no.Kind == broker.Rejected && l.running() != nil && l.running().mesh != nil {
		err = nil // with a leader it is an order like any other, which may be refused, too
	}
	if err == nil && l.running() == nil {
		err = l.Start(ctx)
	}
	if err != nil {
		return fmt.Errorf("this node does not go on alone: %w", err)
	}
	return l.Forget(ctx, name, false)
}
