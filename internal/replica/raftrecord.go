package replica

import (
	"errors"
	"fmt"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"holdfast/internal/bytecodec"
)

// Member is one member of a raft group. Its id is that of its node, unless it came
// back there after damage: ids are never used again.
type Member struct {
	ID, Node uint64
	Learner  bool // gets everything and has no vote
}

// members is who belongs to a group and where they are.
type members struct {
	conf  *pb.ConfState
	nodes map[uint64]uint64 // of every member
}

// newMembers is the configuration a group begins with.
func newMembers(list []Member) members {
	m := members{conf: &pb.ConfState{}, nodes: map[uint64]uint64{}}
	for _, x := range list {
		m.nodes[x.ID] = x.Node
		if x.Learner {
			m.conf.Learners = append(m.conf.Learners, x.ID)
		} else {
			m.conf.Voters = append(m.conf.Voters, x.ID)
		}
	}
	slices.Sort(m.conf.Voters)
	slices.Sort(m.conf.Learners)
	return m
}

// shared returns the same members in memory that other groups have, too: mostly all groups of a node have the same, and who
// changes them makes a copy.
func (n *Node) shared(m members) members {
	key := string(m.append(nil))
	n.downMu.Lock()
	defer n.downMu.Unlock()
	if same, is := n.same[key]; is {
		return same
	}
	if n.same == nil || len(n.same) >= keepSame {
		n.same = map[string]members{}
	}
	n.same[key] = m
	return m
}

// keepSame is how many different configurations are remembered, so that others can share them.
const keepSame = 256

// has says whether a member is in the configuration, in whatever part.
func (m *members) has(id uint64) bool {
	c := m.conf
	return slices.Contains(c.Voters, id) || slices.Contains(c.Learners, id) ||
		slices.Contains(c.VotersOutgoing, id) || slices.Contains(c.LearnersNext, id)
}

// list returns the members in order of id.
func (m *members) list() []Member {
	var out []Member
	for id, node := range m.nodes {
		out = append(out, Member{id, node, !slices.Contains(m.conf.Voters, id) && !slices.Contains(m.conf.VotersOutgoing, id)})
	}
	slices.SortFunc(out, func(a, b Member) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return out
}

// append encodes the configuration with the nodes of the members.
func (m *members) append(dst []byte) []byte {
	for _, ids := range [][]uint64{m.conf.Voters, m.conf.Learners, m.conf.VotersOutgoing, m.conf.LearnersNext} {
		dst = bytecodec.AppendUint(dst, uint64(len(ids)))
		for _, id := range ids {
			dst = bytecodec.AppendUint(dst, id)
			dst = bytecodec.AppendUint(dst, m.nodes[id])
		}
	}
	if m.conf.GetAutoLeave() {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func (d *decoder) members() members {
	m := members{conf: &pb.ConfState{}, nodes: map[uint64]uint64{}}
	for _, ids := range []*[]uint64{&m.conf.Voters, &m.conf.Learners, &m.conf.VotersOutgoing, &m.conf.LearnersNext} {
		for n := d.Count(1); n > 0 && !d.Bad(); n-- {
			id := d.Uint()
			*ids = append(*ids, id)
			m.nodes[id] = d.Uint()
		}
	}
	if d.Byte() == 1 {
		m.conf.AutoLeave = new(true)
	}
	return m
}

// recordVersion starts what raft groups write besides entries.
const recordVersion = 1

// hardState is what a member must not forget: which one it is, and what it promised.
type hardState struct{ self, term, vote, commit uint64 }

func (h hardState) append(dst []byte) []byte {
	dst = append(dst, recordVersion)
	for _, v := range [...]uint64{h.self, h.term, h.vote, h.commit} {
		dst = bytecodec.AppendUint(dst, v)
	}
	return dst
}

func parseHardState(b []byte) (h hardState, err error) {
	d, err := openRecord(b)
	if err != nil {
		return h, err
	}
	h = hardState{d.Uint(), d.Uint(), d.Uint(), d.Uint()}
	return h, d.End()
}

// snapshotHead goes before the host's blob in a snapshot record.
type snapshotHead struct {
	self uint64
	time int64 // of the last entry applied
	members
}

func (h *snapshotHead) append(dst []byte) []byte {
	dst = append(dst, recordVersion)
	dst = bytecodec.AppendUint(dst, h.self)
	dst = bytecodec.AppendFixed64(dst, uint64(h.time))
	return h.members.append(dst)
}

// parseSnapshot splits a snapshot record into its head and the host's blob.
func parseSnapshot(b []byte) (h snapshotHead, blob []byte, err error) {
	d, err := openRecord(b)
	if err != nil {
		return h, nil, err
	}
	h = snapshotHead{self: d.Uint(), time: int64(d.Fixed64()), members: d.members()}
	return h, d.Rest, d.Err()
}

func openRecord(b []byte) (decoder, error) {
	if len(b) == 0 {
		return decoder{}, errors.New("empty record")
	}
	if b[0] != recordVersion {
		return decoder{}, fmt.Errorf("record of version %d, not %d", b[0], recordVersion)
	}
	return decoder{bytecodec.Over(b[1:])}, nil
}
