package catalog

import (
	"fmt"
	"slices"

	"holdfast/internal/wire"

	"pgregory.net/rapid"
)

// The model's nodes and what lives on them: loops over all queues, no counts, no index.

func (m *model) node(id uint64) *Node {
	for _, n := range m.nodes {
		if n.ID == id {
			return n
		}
	}
	return nil
}

func (m *model) nodeOf(inc Incarnation) *Node {
	for _, n := range m.nodes {
		if inc != 0 && n.Incarnation == inc {
			return n
		}
	}
	return nil
}

// place says where a new queue lives.
func (m *model) place(q *Queue, d QueueDecl) uint16 {
	if q.Type == Quorum {
		if code := m.checkMembers(d.Members); code != 0 {
			return code
		}
		q.Members = d.Members
		return 0
	}
	home := m.nodeOf(d.Conn.Incarnation())
	if d.Home != 0 && !d.Exclusive {
		if home = m.node(d.Home); home == nil || home.Incarnation == 0 && !q.Durable {
			return 404
		}
	}
	if home != nil {
		q.Home = home.ID
		if !q.Durable {
			q.Incarnation = home.Incarnation
		}
	}
	return 0
}

func (m *model) checkMembers(members []Member) uint16 {
	nodes, ids := map[uint64]bool{}, map[uint64]bool{}
	for _, member := range members {
		if m.node(member.Node) == nil {
			return 404
		}
		if nodes[member.Node] || ids[member.ID] {
			return 406
		}
		nodes[member.Node], ids[member.ID] = true, true
	}
	if len(members) == 0 {
		return 406
	}
	return 0
}

// end removes what dies with an incarnation.
func (m *model) end(inc Incarnation) {
	if inc == 0 {
		return
	}
	m.dropQueues(func(q *Queue) bool { return q.Incarnation == inc })
	for _, x := range slices.Clone(m.exchanges) {
		if x.Incarnation != inc || !slices.Contains(m.exchanges, x) {
			continue
		}
		if heir := m.heir(x); heir != 0 {
			x.Incarnation = heir
		} else {
			m.dropExchange(x)
		}
	}
}

// heir returns the start of the first node, by id, that has been running since an exchange was declared.
func (m *model) heir(x *Exchange) Incarnation {
	first := new(Node)
	for _, n := range m.nodes {
		if n.Incarnation > 0 && n.Incarnation != x.Incarnation && n.Incarnation <= x.Born && (first.ID == 0 || n.ID < first.ID) {
			first = n
		}
	}
	if !m.isCluster() {
		return 0
	}
	return first.Incarnation
}

func (m *model) start(id uint64) (cmd []byte, code uint16) {
	n := m.node(id)
	if n == nil {
		if m.isCluster() {
			return NewIncarnation(id), 404
		}
		for _, old := range m.nodes {
			m.end(old.Incarnation)
			for _, q := range m.queues {
				q.Members = slices.Clone(q.Members)
				for i := range q.Members {
					if q.Members[i].Node == old.ID {
						q.Members[i].Node = id
					}
				}
			}
		}
		n = &Node{ID: id, Name: fmt.Sprintf("node-%016x", id)}
		m.nodes = []*Node{n}
		for _, q := range m.queues {
			if q.Durable && q.Type != Quorum && q.Home != 0 {
				q.Home = id
			}
		}
	}
	if !m.isCluster() {
		for _, q := range m.queues {
			if q.Durable && q.Type != Quorum && q.Home == 0 {
				q.Home = id
			}
		}
	}
	old := n.Incarnation
	m.started++
	n.Incarnation = m.started
	m.end(old)
	return NewIncarnation(id), 0
}

func (m *model) isCluster() bool {
	return slices.ContainsFunc(m.nodes, func(n *Node) bool { return n.Joined != 0 })
}

func drawNode(t *rapid.T) uint64 { return uint64(rapid.IntRange(1, 4).Draw(t, "node")) }

func drawMember(t *rapid.T) Member {
	node := drawNode(t)
	return Member{rapid.SampledFrom([]uint64{node, node, node, 1, 2, 9}).Draw(t, "member"), node}
}

// drawPlace gives a queue a home, or makes it a quorum queue.
func drawPlace(t *rapid.T, d *QueueDecl) {
	switch rapid.IntRange(0, 5).Draw(t, "place") {
	case 0:
		d.Home = drawNode(t)
	case 1, 2, 3:
		d.Args = wire.NewTable(map[string]any{"x-queue-type": "quorum"})
		for range rapid.IntRange(0, 3).Draw(t, "members") {
			d.Members = append(d.Members, drawMember(t))
		}
		if rapid.IntRange(0, 9).Draw(t, "well-formed") > 0 {
			d.Durable, d.AutoDelete, d.Exclusive = true, false, false
		}
	}
}

func (m *model) drawNodes(t *rapid.T) (cmd []byte, code uint16) {
	id := drawNode(t)
	n := m.node(id)
	switch rapid.SampledFrom([]string{"add", "add", "add", "remove", "drain", "vote", "gone", "levels", "raise"}).Draw(t, "on node") {
	case "add":
		added := Node{ID: id, Name: fmt.Sprint("n", rapid.IntRange(1, 5).Draw(t, "name")), Addr: "a", Voter: rapid.Bool().Draw(t, "voter")}
		cmd = AddNode(added)
		if slices.ContainsFunc(m.nodes, func(n *Node) bool { return n.ID != id && n.Name == added.Name }) {
			return cmd, 406
		}
		if n == nil {
			n = new(Node)
			m.nodes = append(m.nodes, n)
		}
		n.ID, n.Name, n.Addr, n.Voter, n.Joined = id, added.Name, added.Addr, added.Voter, 1
	case "remove":
		cmd = RemoveNode(id)
		if n == nil {
			return cmd, 404
		}
		m.nodes = slices.DeleteFunc(m.nodes, func(n *Node) bool { return n.ID == id })
		m.end(n.Incarnation)
		m.dropQueues(func(q *Queue) bool {
			return q.Home == id || len(q.Members) == 1 && q.Members[0].Node == id
		})
		for _, q := range m.queues {
			q.Members = slices.DeleteFunc(slices.Clone(q.Members), func(m Member) bool { return m.Node == id })
		}
	case "drain":
		on := rapid.Bool().Draw(t, "drained")
		cmd = SetDrained(id, on)
		if n == nil {
			return cmd, 404
		}
		n.Drained = on
	case "vote":
		on := rapid.Bool().Draw(t, "votes")
		cmd = SetVoter(id, on)
		if n == nil {
			return cmd, 404
		}
		n.Voter = on
	case "levels":
		l := Levels{1, uint16(rapid.IntRange(1, 3).Draw(t, "most"))}
		if l.Most > 1 {
			l.Least = uint16(rapid.IntRange(1, 2).Draw(t, "least"))
		}
		cmd = SetLevels(id, l)
		switch {
		case n == nil:
			return cmd, 404
		case l.Least > m.level || l.Most < m.level:
			return cmd, 406
		}
		n.levels = l
	case "raise":
		to := uint16(rapid.IntRange(1, 3).Draw(t, "level"))
		cmd = RaiseLevel(to)
		if to > m.level {
			for _, n := range m.nodes {
				if knows := max(n.levels.Most, 1); knows < to {
					return cmd, 406
				}
			}
			m.level = to
		}
	case "gone":
		inc := Incarnation(rapid.IntRange(0, int(m.started)).Draw(t, "incarnation"))
		cmd = NodeGone(id, inc)
		if n != nil && n.Incarnation == inc {
			m.end(inc)
		}
	}
	return cmd, 0
}

func (m *model) drawMembers(t *rapid.T, v *View) (cmd []byte, code uint16) {
	id, q := QueueID(9999), (*Queue)(nil)
	if n := v.AllQueues().Len(); n > 0 {
		for of := range v.AllQueues().From(rapid.IntRange(0, n-1).Draw(t, "queue")) {
			if id, q = of.ID, m.queue(of.VHost, of.Name); q.Type == Quorum {
				break
			}
		}
	}
	refused := uint16(0)
	switch {
	case q == nil:
		refused = 404
	case q.Type != Quorum:
		refused = 406
	}
	switch rapid.SampledFrom([]string{"add", "remove", "set"}).Draw(t, "with members") {
	case "add":
		member := drawMember(t)
		if cmd = AddMember(id, member); refused != 0 || slices.Contains(q.Members, member) {
			return cmd, refused
		}
		with := append(slices.Clone(q.Members), member)
		if code := m.checkMembers(with); code != 0 {
			return cmd, code
		}
		q.Members = with
	case "remove":
		node := drawNode(t)
		if cmd = RemoveMember(id, node); refused != 0 {
			return cmd, refused
		}
		without := slices.DeleteFunc(slices.Clone(q.Members), func(m Member) bool { return m.Node == node })
		if len(without) == 0 {
			return cmd, 406
		}
		q.Members = without
	case "set":
		var members []Member
		for range rapid.IntRange(0, 3).Draw(t, "members") {
			members = append(members, drawMember(t))
		}
		if cmd = SetMembers(id, members); refused != 0 {
			return cmd, refused
		}
		if code := m.checkMembers(members); code != 0 {
			return cmd, code
		}
		q.Members = members
	}
	return cmd, 0
}

func summarizeNode(n *Node, c Counts, queues []string) string {
	slices.Sort(queues)
	return fmt.Sprintf("node %d %q %q incarnation %d %v %v %d %v %+v: %q", n.ID, n.Name, n.Addr, n.Incarnation, n.Voter, n.Drained, n.Joined, n.Levels(), c, queues)
}

func (m *model) summarizeNodes() (lines []string) {
	lines = append(lines, fmt.Sprint("level ", m.level))
	for _, n := range append(slices.Clone(m.nodes), new(Node)) {
		var c Counts
		var queues []string
		for _, q := range m.queues {
			_, there := q.MemberOn(n.ID)
			if there = there || q.Type != Quorum && q.Home == n.ID; there {
				queues = append(queues, q.VHost+" "+q.Name)
			}
			switch {
			case q.Type != Quorum && there:
				c.Homes++
			case there:
				c.Members++
				if q.Members[0].Node == n.ID {
					c.Leaders++
				}
			}
		}
		lines = append(lines, summarizeNode(n, c, queues))
	}
	return lines
}

func summarizeNodes(v *View) (lines []string) {
	lines = append(lines, fmt.Sprint("level ", v.Level()))
	for _, n := range append(slices.Collect(v.Nodes().All()), new(Node)) {
		var queues []string
		for q := range v.QueuesOn(n.ID).All() {
			queues = append(queues, q.VHost+" "+q.Name)
		}
		lines = append(lines, summarizeNode(n, v.Counts(n.ID), queues))
	}
	return lines
}
