package replica

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"holdfast/internal/seglog"
)

// promises is what members have said to others, or what they know, and must stand by.
type promises struct {
	votes map[[2]uint64]uint64 // for whom a node has voted, by node and term
	terms map[uint64]uint64    // the highest term in which it has voted
	parts map[partOf][]seglog.Block
	confs map[uint64]string // members of the group by index applied
	force bool              // a member is made the only one: then they are not the same everywhere
	seen  map[uint64]confSeen
}

type partOf struct{ to, from, term, index, seq uint64 }

type confSeen struct {
	conf    *pb.ConfState
	applied uint64
}

// sends looks at a message as it leaves a node: what it promises is on the node's disk, and fits what it promised before.
func (j *judge) sends(m *member, b []byte) {
	log, is := m.disk.(*memLog)
	if !is {
		return
	}
	d, kind, err := openMessage(b)
	if err != nil {
		j.t.Fatalf("node %d sends %x: %v", m.id, b, err)
	}
	switch {
	case kind == msgRaft:
		in, err := d.raft()
		if err != nil {
			j.t.Fatalf("node %d sends %x: %v", m.id, b, err)
		}
		if in.group == m.c.group {
			j.promisesOf(m, log, in.msg)
		}
	case kind == msgGot:
		in, err := d.transfer(kind)
		if err != nil {
			j.t.Fatalf("node %d sends %x: %v", m.id, b, err)
		}
		t := in.transfer
		for _, b := range j.parts[partOf{t.from, t.to, t.term, t.index, t.seq}] {
			for k := range b.Items {
				if id := b.First + uint64(k); log.of(in.group).items[id] == nil && !overlaps(m.h.g.raft.unapplied(), seglog.Range{First: id, Last: id}) {
					j.t.Fatalf("node %d says that it has item %d, and it is not on its disk", m.id, id)
				}
			}
		}
	}
}

func (j *judge) promisesOf(m *member, log *memLog, msg *pb.Message) {
	term := msg.GetTerm()
	switch msg.GetType() {
	case pb.MsgVoteResp:
		if msg.GetReject() {
			return
		}
		_, hard, _ := log.group(m.c.group)
		var h hardState
		if hard != nil {
			h, _ = parseHardState(hard.Meta)
		}
		if h.term != term && h.term <= term || h.term == term && h.vote != msg.GetTo() {
			j.t.Fatalf("node %d votes for %d in term %d, and on its disk is %+v", m.id, msg.GetTo(), term, h)
		}
		key := [2]uint64{m.id, term}
		if was, voted := j.votes[key]; voted && was != msg.GetTo() {
			j.t.Fatalf("node %d votes for %d in term %d, and voted for %d", m.id, msg.GetTo(), term, was)
		}
		if j.votes == nil {
			j.votes, j.terms = map[[2]uint64]uint64{}, map[uint64]uint64{}
		}
		j.votes[key] = msg.GetTo()
		j.terms[m.id] = max(j.terms[m.id], term)
	case pb.MsgAppResp:
		_, hard, _ := log.group(m.c.group)
		var h hardState
		if hard != nil {
			h, _ = parseHardState(hard.Meta)
		}
		if g := log.of(m.c.group); !msg.GetReject() && g.last < msg.GetIndex() && h.term <= term {
			j.t.Fatalf("node %d says in term %d that it has entry %d, and on its disk is no more than %d (term %d)", m.id, term, msg.GetIndex(), g.last, m.h.g.raft.term)
		}
	case pb.MsgVote:
	default:
		return // what a leader said may leave late
	}
	if term < j.terms[m.id] {
		j.t.Fatalf("node %d sends a %v of term %d, and has voted in term %d", m.id, msg.GetType(), term, j.terms[m.id])
	}
}

// receives looks at a message before a node gets it.
func (j *judge) receives(m *member, b []byte) {
	d, kind, err := openMessage(b)
	if err != nil || kind != msgPart {
		return
	}
	in, err := d.transfer(kind)
	if err != nil {
		return
	}
	if j.parts == nil {
		j.parts = map[partOf][]seglog.Block{}
	}
	t := in.transfer
	j.parts[partOf{t.to, t.from, t.term, t.index, t.seq}] = t.blocks
}

// looks compares what a node knows with what others knew at the same place: who the members are.
func (j *judge) looks(m *member) {
	x := m.h.g.raft
	now := confSeen{x.conf, x.store.applied}
	if j.force || now == j.seen[m.id] || now.applied == 0 || m.h.failed != nil {
		return
	}
	if j.seen == nil {
		j.seen, j.confs = map[uint64]confSeen{}, map[uint64]string{}
	}
	j.seen[m.id] = now
	conf := fmt.Sprint(now.conf.Voters, now.conf.Learners, now.conf.VotersOutgoing, now.conf.LearnersNext)
	if was := j.confs[now.applied]; was != "" && was != conf {
		j.t.Fatalf("node %d takes %v for the members at %d, another %v", m.id, conf, now.applied, was)
	}
	j.confs[now.applied] = conf
}
