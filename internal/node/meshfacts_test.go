package node

import (
	"slices"
	"testing"
)

// The numbers of a scrape tell of the links to the other nodes, by name.
func TestLinksAreCounted(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	for i, n := range tr.nodes {
		if names := n.cluster().DiskNodes; !slices.IsSorted(names) {
			t.Errorf("%s: cluster_status names the nodes in the order %q", n.name(), names)
		}
		var names []string
		sent, received := uint64(0), uint64(0)
		for _, p := range n.values().Peers {
			names = append(names, p.Name)
			for _, l := range p.Lanes {
				sent += l.SentMessages
				received += l.ReceivedMessages
			}
		}
		// A node that came last may not be known to all yet.
		if len(names) == 0 || slices.Contains(names, n.name()) || !slices.IsSorted(names) || sent == 0 || received == 0 {
			t.Errorf("%s: links to %q; %d messages sent, %d received", n.name(), names, sent, received)
		}
		for _, name := range names {
			if !slices.ContainsFunc(tr.nodes[:], func(n *Node) bool { return n.name() == name }) {
				t.Errorf("node %d has a link to %q", i, name)
			}
		}
	}
}
