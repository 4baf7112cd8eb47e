package peer

import "time"

// Hold keeps everything that goes from one node to another where it is, or lets
// it go on. Nothing gets lost; but as with TCP the link breaks when something has
// waited for Options.Stall, and no new one is made meanwhile. Held in one
// direction only, it is a one-way partition.
func (n *Network) Hold(from, to NodeID, on bool) {
	if on {
		n.held[way{from, to}] = true
	} else {
		delete(n.held, way{from, to})
	}
}

// Partition holds both directions between nodes of different groups, and lets
// everything else go on. A node in no group is in one with all others of its kind.
func (n *Network) Partition(groups ...[]NodeID) {
	group := map[NodeID]int{}
	for i, ids := range groups {
		for _, id := range ids {
			group[id] = i + 1
		}
	}
	n.Heal()
	for _, a := range n.nodes {
		for _, b := range n.nodes {
			if group[a.o.Node] != group[b.o.Node] {
				n.Hold(a.o.Node, b.o.Node, true)
			}
		}
	}
}

// Heal lets everything go on that is held.
func (n *Network) Heal() { clear(n.held) }

// Delay lets every message from one node to another take between least and most;
// those of a lane stay in order.
func (n *Network) Delay(from, to NodeID, least, most time.Duration) {
	n.delay[way{from, to}] = [2]time.Duration{least, most}
}

// Narrow lets only so many bytes a second get from one node to another on each lane, from what is sent from now on; 0: as many as come.
func (n *Network) Narrow(from, to NodeID, rate int) { n.rate[way{from, to}] = rate }

// Break breaks the link between two nodes, if there is one. Of what is under
// way, some may still arrive before the Down. The link is made again after a while.
func (n *Network) Break(a, b NodeID) {
	if w := n.wires[pairOf(a, b)]; w != nil {
		n.fall(w, 0, errBroken)
		n.fall(w, 1, errBroken)
	}
}

// Crash ends a node as a killed process ends: its handler is not called any
// more, and the others notice as far as word of it gets to them.
func (n *Network) Crash(id NodeID) {
	if node := n.node(id); node != nil {
		n.remove(node, errCrashed)
	}
}

// Pause keeps a node from running, as a stopped process: nothing is delivered
// to it and it does not beat. What it is sent waits.
func (n *Network) Pause(id NodeID, on bool) {
	if node := n.node(id); node != nil {
		node.paused = on
	}
}

// Up says whether the link from one node's point of view is up.
func (n *Network) Up(at, other NodeID) bool {
	w := n.wires[pairOf(at, other)]
	return w != nil && w.ends[endOf(w, at)].state == endUp
}

func endOf(w *wire, id NodeID) int {
	if w.ids[0] == id {
		return 0
	}
	return 1
}
