package node

import (
	"maps"
	"slices"
	"sync"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/bytecodec"
	"holdfast/internal/cluster"
	"holdfast/internal/detour"
	"holdfast/internal/peer"
)

// alarmBits are the alarms of a node as nodes tell each other. Bits that are not known say nothing.
type alarmBits uint8

const (
	alarmMemory alarmBits = 1 << iota
	alarmDisk
)

// asBits are alarms of this node's broker as others are told.
func asBits(list []broker.Alarm) (bits alarmBits) {
	for _, a := range list {
		switch a.Kind {
		case broker.AlarmMemory:
			bits |= alarmMemory
		case broker.AlarmDisk:
			bits |= alarmDisk
		}
	}
	return bits
}

// kinds are the alarms as the broker calls them, in its order.
func (b alarmBits) kinds() (list []broker.AlarmKind) {
	if b&alarmDisk != 0 {
		list = append(list, broker.AlarmDisk)
	}
	if b&alarmMemory != 0 {
		list = append(list, broker.AlarmMemory)
	}
	return list
}

// nodeAlarms are the alarms of one node.
type nodeAlarms struct {
	node uint64
	bits alarmBits
}

// mostAlarms is how many nodes a heartbeat names at most.
const mostAlarms = (detour.BeatRoom - 2) / 9

// appendAlarms appends what a heartbeat says of alarms, its sender's first: nothing, if there are none, as builds do that do not know
// alarms of other nodes.
func appendAlarms(dst []byte, list []nodeAlarms) []byte {
	list = list[:min(len(list), mostAlarms)]
	if len(list) == 0 {
		return dst
	}
	dst = bytecodec.AppendUint(dst, uint64(len(list)))
	for _, a := range list {
		dst = append(bytecodec.AppendFixed64(dst, a.node), byte(a.bits))
	}
	return dst
}

// parseAlarms reads what appendAlarms wrote. What follows is left alone: a later build may say more. Where it makes no sense, there
// are no alarms.
func parseAlarms(b []byte) map[uint64]alarmBits {
	c := bytecodec.Over(b)
	if len(b) == 0 {
		return nil
	}
	said := map[uint64]alarmBits{}
	for range min(c.Count(9), mostAlarms) {
		said[c.Fixed64()] |= alarmBits(c.Byte())
	}
	if c.Bad() {
		return nil
	}
	return said
}

// alarmBook is what the nodes say of alarms. A node is believed about itself; of one that this node has no link to, so that its
// heartbeats do not come, others tell.
type alarmBook struct {
	mu   sync.Mutex
	said map[uint64]map[uint64]alarmBits // by who said it in its last heartbeat: of whom
}

// heard takes what a heartbeat says.
func (k *alarmBook) heard(from uint64, said map[uint64]alarmBits) (news bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if was, knew := k.said[from]; knew && maps.Equal(was, said) {
		return false
	}
	if k.said == nil {
		k.said = map[uint64]map[uint64]alarmBits{}
	}
	k.said[from] = said
	return true
}

// lost forgets what a node has said, whose heartbeats do not come any more.
func (k *alarmBook) lost(node uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.said, node)
}

// direct are the alarms that nodes have told of themselves, in order.
func (k *alarmBook) direct() (list []nodeAlarms) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, from := range slices.Sorted(maps.Keys(k.said)) {
		if bits := k.said[from][from]; bits != 0 {
			list = append(list, nodeAlarms{from, bits})
		}
	}
	return list
}

// of returns the alarms of a node.
func (k *alarmBook) of(node uint64) (bits alarmBits) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if own, heard := k.said[node]; heard {
		return own[node]
	}
	for _, said := range k.said {
		bits |= said[node]
	}
	return bits
}

// alarmedNode reports whether a node has an alarm.
func (n *Node) alarmedNode(node uint64) bool {
	b := n.ready.Load()
	switch {
	case b == nil:
		return false
	case node == n.identity.number():
		return len(b.Alarms()) > 0
	}
	return slices.ContainsFunc(b.AlarmsElsewhere(), func(a broker.NodeAlarms) bool { return a.Node == node })
}

// sayAlarms is detour.Options.Beat.
func (m *mesh) sayAlarms(dst []byte) []byte {
	var list []nodeAlarms
	if b := m.n.ready.Load(); b != nil {
		if bits := asBits(b.Alarms()); bits != 0 {
			list = append(list, nodeAlarms{m.self, bits})
		}
	}
	return appendAlarms(dst, append(list, m.alarms.direct()...))
}

// hearAlarms takes what a heartbeat says of alarms.
func (m *mesh) hearAlarms(from peer.NodeID, said []byte) {
	if m.alarms.heard(uint64(from), parseAlarms(said)) {
		m.poke()
	}
}

// passAlarms has the broker and the groups know of the alarms of other nodes, whenever something may have changed. An alarm of a
// node that is not there is over. It runs where the other nodes are watched.
func (m *mesh) passAlarms() {
	b := m.n.ready.Load()
	if b == nil {
		return
	}
	now := map[uint64]alarmBits{}
	m.mu.Lock()
	for id, s := range m.stands {
		if s.is == cluster.Up {
			now[id] = 0
		}
	}
	m.mu.Unlock()
	for id := range now {
		if now[id] = m.alarms.of(id); now[id] == 0 {
			delete(now, id)
		}
	}
	if maps.Equal(now, m.alarmed) {
		return
	}
	for id := range m.alarmed {
		if now[id] == 0 {
			m.n.queues.SetAlarmed(id, false)
		}
	}
	for id := range now {
		m.n.queues.SetAlarmed(id, true)
	}
	m.alarmed = now
	list := make([]broker.NodeAlarms, 0, len(now))
	nodes := slices.Sorted(maps.Keys(now))
	for _, id := range nodes {
		list = append(list, broker.NodeAlarms{Node: id, Name: m.nameOf(id), Kinds: now[id].kinds()})
	}
	m.n.groups.SetReluctantPeers(nodes)
	b.SetAlarmsElsewhere(list)
}

// relieveEvery is how often a node that has an alarm looks for somebody to take over what it leads.
const relieveEvery = 3 * time.Second

// tickAlarms has publishers let go on who were held back for a queue that another node leads now, and hands over what this node
// leads although it should not.
func (m *mesh) tickAlarms(now int64) {
	b := m.n.ready.Load()
	if b == nil {
		return
	}
	b.Reconsider()
	switch {
	case len(b.Alarms()) == 0:
		m.relieved = 0
	case m.relieved == 0: // it was tried when the alarm began
		m.relieved = now
	case now-m.relieved >= int64(relieveEvery):
		m.relieved = now
		m.n.groups.Relieve()
	}
}
