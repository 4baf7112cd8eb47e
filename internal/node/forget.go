package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/catalog"
	"holdfast/internal/cluster"
	"holdfast/internal/peer"
)

// forgetWait bounds how long the removal of another node waits for a majority.
const forgetWait = 15 * time.Second

func refuse(kind broker.AdminErrorKind, format string, args ...any) error {
	return &broker.AdminError{Kind: kind, Text: fmt.Sprintf(format, args...)}
}

// Forget takes another node out of the cluster for good. It is refused while any node of the cluster hears that node, or
// while it answers: its queues would go from under its clients.
func (n *Node) Forget(ctx context.Context, name string) error {
	m := n.mesh
	var node *catalog.Node
	if m != nil {
		if node = n.catalog.View().NodeByName(name); node == nil && m.barrier(ctx) == nil {
			node = n.catalog.View().NodeByName(name)
		}
	}
	switch {
	case node == nil && name == n.name():
		return refuse(broker.Unavailable, "this node is alone; there is nobody to remove it")
	case node == nil:
		return refuse(broker.NotFound, "{:not_a_cluster_node, 'The node selected is not in the cluster.'}")
	case node.ID == m.self:
		return refuse(broker.Unavailable, "a node does not remove itself: run this on another node while this one is stopped, or stop it with 'ctl stop_app' and use 'ctl reset'")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, forgetWait, errors.New("no majority of the nodes that vote has agreed in time; the removal may still happen"))
	defer cancel()
	if by := m.whoHears(ctx, node); by != "" {
		return refuse(broker.Unavailable, "Holdfast on node %s must be stopped with 'ctl stop_app' there before it can be removed (%s)", name, by)
	}
	r, err := n.ask(ctx, catalog.RemoveNode(node.ID))
	switch {
	case err != nil && n.catalog.View().Node(node.ID) == nil:
		return nil // somebody else has done it
	case err != nil:
		return refuse(broker.Unavailable, "%v", err)
	}
	n.log.Warn("removed a node from the cluster", "node", name, "queues", len(r.Removed.Queues), "copies_of_quorum_queues", len(r.Removed.Members))
	n.broker.Changed(r, false) // whoever asks for a change of the catalog sees to its consequences here
	return nil
}

// whoHears says who takes a node to be there, "" if nobody does.
func (m *mesh) whoHears(ctx context.Context, node *catalog.Node) string {
	if m.isUp(node.ID) {
		return "this node hears it"
	}
	probe, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	if h, err := m.links.Probe(probe, node.Addr); h.Node == peer.NodeID(node.ID) && err == nil {
		return "it answers at " + node.Addr
	}
	for other := range m.n.catalog.View().Nodes().All() {
		if other.ID == m.self || other.ID == node.ID || !m.isUp(other.ID) {
			continue
		}
		if t, err := ask(ctx, m.links, other.Addr, asked{What: askSees, Node: node.ID}, callWait); err == nil && t.Up {
			return other.Name + " hears it"
		}
	}
	return ""
}

// holds says what a node has that would be lost if it became a member of another cluster; "" if there is nothing.
func (n *Node) holds() string {
	v := n.catalog.View()
	if q := v.AllQueues().Len(); q > 0 {
		return fmt.Sprintf("it has %d queues", q)
	}
	for vh := range v.VHosts().All() {
		if vh.Name != n.settings.DefaultVHost {
			return fmt.Sprintf("it has the virtual host '%s'", vh.Name)
		}
		for x := range v.Exchanges(vh.Name).All() {
			if x.Name != "" && !strings.HasPrefix(x.Name, "amq.") {
				return fmt.Sprintf("it has the exchange '%s'", x.Name)
			}
		}
	}
	return ""
}

// ghost is a node that was let in under this name and address and has never started: its folder was emptied before it
// could, and now it comes as another one.
func ghost(v *catalog.View, node cluster.Node) *catalog.Node {
	if was := v.NodeByName(node.Name); was != nil && was.ID != node.ID && was.Addr == node.Addr && was.Incarnation == 0 {
		return was
	}
	return nil
}
