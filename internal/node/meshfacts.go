package node

import (
	"strconv"

	"holdfast/internal/cluster"
	"holdfast/internal/metrics"
	"holdfast/internal/mgmt"
)

// cluster tells how the cluster stands as this node sees it; a node that is alone is one, too.
func (n *Node) cluster() mgmt.Cluster {
	c := mgmt.Cluster{
		DiskNodes: []string{}, RAMNodes: []string{}, RunningNodes: []string{}, Alarms: []string{}, Flags: []string{},
		Versions: map[string]map[string]string{}, Maintenance: map[string]string{}, Partitions: map[string][]string{},
		Listeners: map[string][]mgmt.Listener{n.name(): n.facts().Listeners},
	}
	if n.mesh == nil {
		c.Name = n.name()
		add(&c, mgmt.ClusterNode{
			Name: n.name(), ID: strconv.FormatUint(n.identity.number(), 10), State: "up", Voter: true, Leader: true, Self: true,
		}, n.version, false)
		return c
	}
	m := n.mesh
	c.Name = m.state.Cluster().String()
	leader := m.forward.leaderNow()
	for node := range n.catalog.View().Nodes().All() {
		entry := mgmt.ClusterNode{
			Name: node.Name, ID: strconv.FormatUint(node.ID, 10), Address: node.Addr, State: cluster.Up.String(),
			Voter: node.Voter, Leader: node.ID == leader, Self: node.ID == m.self,
		}
		version := n.version
		if !entry.Self {
			m.mu.Lock()
			s := m.stands[node.ID]
			m.mu.Unlock()
			entry.State, entry.Reason, version = s.is.String(), s.why, s.version
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
	m.forward.mu.Lock()
	v.Leader, v.Waiting = m.forward.leader != 0, uint64(len(m.forward.pending))
	m.forward.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.stands {
		v.Nodes[s.is.String()]++
	}
	return v
}
