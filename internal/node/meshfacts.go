package node

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"holdfast/internal/catalog"
	"holdfast/internal/cluster"
	"holdfast/internal/metrics"
	"holdfast/internal/mgmt"
	"holdfast/internal/peer"
)

// cluster tells how the cluster stands as this node sees it; a node that is alone is one, too.
func (n *Node) cluster() mgmt.Cluster {
	c := mgmt.Cluster{
		DiskNodes: []string{}, RAMNodes: []string{}, RunningNodes: []string{}, Flags: []string{},
		Versions: map[string]map[string]string{}, Maintenance: map[string]string{}, Partitions: map[string][]string{},
		Listeners: map[string][]mgmt.Listener{n.name(): n.facts().Listeners},
	}
	v := n.catalog.View()
	c.Level = int(v.Level())
	if n.mesh == nil {
		c.Name = n.name()
		add(&c, mgmt.ClusterNode{
			Name: n.name(), ID: strconv.FormatUint(n.identity.number(), 10), State: "up", Voter: true, Leader: true, Self: true,
			Levels: mgmt.Levels{Least: int(n.levels.known.Least), Most: int(n.levels.known.Most)},
		}, n.version, false)
		return c
	}
	m := n.mesh
	c.Name = m.state.Cluster().String()
	leader := m.forward.Leader()
	nodes := slices.SortedFunc(v.Nodes().All(), func(a, b *catalog.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, node := range nodes {
		entry := mgmt.ClusterNode{
			Name: node.Name, ID: strconv.FormatUint(node.ID, 10), Address: node.Addr, State: cluster.Up.String(),
			Voter: node.Voter, Leader: node.ID == leader, Self: node.ID == m.self,
			Levels: mgmt.Levels{Least: int(node.Levels().Least), Most: int(node.Levels().Most)},
		}
		version := n.version
		if !entry.Self {
			m.mu.Lock()
			s := m.stands[node.ID]
			m.mu.Unlock()
			entry.State, entry.Reason, version = s.is.String(), s.why, s.version
			if why := m.lineage.from(node.ID); why != "" {
				entry.Reason = why
				c.Partitions[m.name] = append(c.Partitions[m.name], node.Name)
			}
		}
		add(&c, entry, version, node.Drained)
	}
	return c
}

// add enters a node.
func add(c *mgmt.Cluster, entry mgmt.ClusterNode, version string, drained bool) {
	c.Nodes = append(c.Nodes, entry)
	c.DiskNodes = append(c.DiskNodes, entry.Name)
	c.Maintenance[entry.Name] = "not under maintenance"
	if drained {
		c.Maintenance[entry.Name] = "marked for maintenance"
	}
	if entry.State == cluster.Up.String() {
		c.RunningNodes = append(c.RunningNodes, entry.Name)
	}
	if version != "" {
		c.Versions[entry.Name] = map[string]string{"holdfast_version": version}
	}
}

// clusterValues are the numbers of a scrape about other nodes.
func (n *Node) clusterValues() metrics.Cluster {
	v := metrics.Cluster{Leader: true, Nodes: map[string]uint64{cluster.Up.String(): 1, cluster.Suspect.String(): 0, cluster.Gone.String(): 0}}
	if n.mesh == nil {
		return v
	}
	m := n.mesh
	v.Leader, v.Waiting = m.forward.Leader() != 0, uint64(m.forward.Waiting())
	v.Stale = m.touch.blind.Load()
	v.Apart = m.lineage.count()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.stands {
		v.Nodes[s.is.String()]++
	}
	v.Alarmed = uint64(len(n.broker.AlarmsElsewhere()))
	return v
}

// peerValues are the numbers of a scrape about the links to other nodes, in order of their names.
func (n *Node) peerValues() []metrics.Peer {
	if n.mesh == nil {
		return nil
	}
	var list []metrics.Peer
	names := map[string]bool{}
	all := n.mesh.links.Stats()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		s := all[id]
		p := metrics.Peer{
			Name: n.mesh.nameOf(uint64(id)), Up: s.Up, Detour: n.mesh.ways.Via(id) != 0, Reconnects: max(s.Links, 1) - 1, Suspicions: s.Suspicions, RoundTrip: s.RoundTrip,
		}
		if names[p.Name] {
			p.Name = fmt.Sprintf("%s-%016x", p.Name, uint64(id))
		}
		names[p.Name] = true
		for lane, l := range s.Lanes {
			p.Lanes = append(p.Lanes, metrics.PeerLane{
				Name: peer.Lane(lane).String(), SentMessages: l.SentMessages, SentBytes: l.SentBytes,
				ReceivedMessages: l.ReceivedMessages, ReceivedBytes: l.ReceivedBytes, Refused: l.Refused, WaitingBytes: uint64(l.Waiting),
			})
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b metrics.Peer) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
