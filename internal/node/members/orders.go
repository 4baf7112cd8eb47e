package members

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/catalog"
	"holdfast/internal/seglog"
)

// askAgain is how long an order waits for a leader before it looks for one again.
const askAgain = 50 * time.Millisecond

// atLeader has the node that leads a queue do something. As long as nobody leads it looks again, until ctx ends.
func (m *Manager) atLeader(ctx context.Context, q *catalog.Queue, do question) error {
	do.Queue = uint64(q.ID)
	hint, why := uint64(0), "nobody leads it"
	for {
		asked := map[uint64]bool{}
		for _, node := range append([]uint64{hint, m.o.Leader(seglog.GroupID(q.ID))}, nodesOf(q)...) {
			if node == 0 || asked[node] || !m.o.Up(node) {
				continue
			}
			asked[node] = true
			_, err := m.asker.ask(ctx, node, do)
			var f *failure
			if !errors.As(err, &f) || f.problem != notLeader && f.problem != unreached {
				return err
			}
			hint, why = f.leader, f.text
		}
		if !m.pause(ctx, askAgain) {
			return &failure{problem: late, text: fmt.Sprintf("%s: %s", errLate.text, why)}
		}
		if q = m.o.View().QueueByID(q.ID); q == nil {
			return &failure{problem: refused, text: "the queue was deleted meanwhile"}
		}
	}
}

func nodesOf(q *catalog.Queue) []uint64 {
	var nodes []uint64
	for _, x := range q.Members {
		nodes = append(nodes, x.Node)
	}
	return nodes
}

// Add gives a queue a member on a node. It gets the queue's contents, and then a vote, by and by.
func (m *Manager) Add(ctx context.Context, vhost, queue, node string) error {
	q, id, err := m.named(vhost, queue, node)
	if err != nil {
		return err
	}
	return told(m.add(ctx, q, id))
}

func (m *Manager) add(ctx context.Context, q *catalog.Queue, node uint64) error {
	if _, has := q.MemberOn(node); has {
		return nil
	}
	if !m.o.Up(node) {
		return &failure{problem: unavailable, text: fmt.Sprintf("node_not_running: node %s is not up", m.o.Name(node))}
	}
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	return m.atLeader(ctx, q, question{Do: doAdd, Node: node})
}

// Delete takes the member of a queue on a node away; the last one stays.
func (m *Manager) Delete(ctx context.Context, vhost, queue, node string) error {
	q, id, err := m.named(vhost, queue, node)
	if err != nil {
		return err
	}
	return told(m.remove(ctx, q, id))
}

func (m *Manager) remove(ctx context.Context, q *catalog.Queue, node uint64) error {
	if _, has := q.MemberOn(node); !has {
		return nil
	}
	if len(q.Members) == 1 {
		return &failure{problem: refused, text: errLast}
	}
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	return m.atLeader(ctx, q, question{Do: doRemove, Node: node})
}

// Transfer has the member of a queue on a node lead it.
func (m *Manager) Transfer(ctx context.Context, vhost, queue, node string) error {
	q, id, err := m.named(vhost, queue, node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	return told(m.atLeader(ctx, q, question{Do: doTransfer, Node: id}))
}

// ForceShrink makes the member on this node the only one of a queue, after the others were lost for good. What they had and
// this one has not is lost.
func (m *Manager) ForceShrink(ctx context.Context, vhost, queue string) error {
	q, err := m.queue(vhost, queue)
	if err != nil {
		return err
	}
	id := seglog.GroupID(q.ID)
	g := m.o.Group(id)
	if g == nil {
		return &broker.AdminError{Kind: broker.Rejected, Text: fmt.Sprintf("queue '%s' in vhost '%s' has no member on this node", q.Name, q.VHost)}
	}
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	done := make(chan error, 1)
	g.ForceSingle(func(err error) { done <- err })
	select {
	case err = <-done:
	case <-ctx.Done():
		return told(errLate)
	}
	if err != nil {
		return &broker.AdminError{Kind: broker.Rejected, Text: err.Error()}
	}
	m.o.Logger.Warn("a quorum queue was shrunk to the member on this node", "queue", q.Name, "vhost", q.VHost)
	recorded, end := context.WithTimeout(ctx, recordWait)
	defer end()
	if err := m.record(recorded, id, g, 0); err != nil { // the catalog may have lost its majority, too
		m.o.Logger.Warn("the catalog does not know yet that a quorum queue was shrunk", "queue", q.Name, "vhost", q.VHost, "error", err)
		m.Look(id)
	}
	return nil
}

// recordWait is how long a forced change waits for the catalog.
const recordWait = 3 * time.Second
