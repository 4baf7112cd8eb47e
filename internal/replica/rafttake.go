package replica

import (
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"holdfast/internal/invariant"
	"holdfast/internal/planted"
	"holdfast/internal/seglog"
)

// inTransfer is a state on its way here.
type inTransfer struct {
	from, term, index, stateTerm uint64

	size  uint64
	state []byte
	seq   uint64
	lost  bool // items of it that were here are not any more
	// held are items whose ids entries have that are not applied here and that the state
	// will replace: they go to the log behind it.
	held []seglog.Block

	// What the state here had when applied entries were looked at last: more may come by the log meanwhile.
	have    []seglog.Range
	applied uint64
}

func (t *inTransfer) is(m *transferMsg) bool {
	return t != nil && t.from == m.from && t.term == m.term && t.index == m.index
}

// answer sends a message of the transfer back.
func (x *raftGroup) answer(m *transferMsg, a transferMsg) {
	a.to, a.term, a.index = m.from, m.term, m.index
	x.sendTransfer(&a)
}

// offered takes an offer, and says what is here already.
func (x *raftGroup) offered(m *transferMsg) {
	if m.term < x.term {
		return // of a leader that does not know yet
	}
	if m.index <= x.store.applied {
		x.answer(m, transferMsg{kind: msgGot, last: true})
		return
	}
	t := &inTransfer{from: m.from, term: m.term, index: m.index, stateTerm: m.stateTerm, size: m.size}
	x.receiving = t
	x.lookAgain(t)
	have := mergeRanges(slices.Concat(t.have, x.staged))
	x.answer(m, transferMsg{kind: msgWant, have: have[:min(len(have), haveRanges)]})
}

// lookAgain finds out which items the state here has.
func (x *raftGroup) lookAgain(t *inTransfer) {
	have, _ := x.host.Live(nil)
	t.have, t.applied = mergeRanges(have), x.store.applied
}

// takePart takes a part: of the state into memory, items into the log.
func (x *raftGroup) takePart(s *Shard, r *round, m *transferMsg) {
	t := x.receiving
	if !t.is(m) || m.seq != t.seq+1 {
		x.answer(m, transferMsg{kind: msgNo}) // what came before it was lost
		return
	}
	t.seq = m.seq
	if len(t.state)+len(m.data) > int(t.size) {
		x.answer(m, transferMsg{kind: msgNo})
		x.receiving = nil
		return
	}
	t.state = append(t.state, m.data...)
	got := func() { x.answer(m, transferMsg{kind: msgGot, seq: m.seq}) }
	switch {
	case len(m.blocks) > 0:
		x.stage(s, r, t, m.blocks, got)
	case m.last:
		x.receiving = nil
		id, _, err := parseSnapshot(t.state)
		if err != nil || !id.has(x.self) || t.lost || x.installing != nil {
			x.answer(m, transferMsg{kind: msgNo})
			return
		}
		x.installing = t
		_ = x.rn.Step(&pb.Message{
			Type: pb.MsgSnap.Enum(), To: &x.self, From: &t.from, Term: &t.term,
			Snapshot: &pb.Snapshot{Metadata: &pb.SnapshotMetadata{ConfState: id.conf, Index: &t.index, Term: &t.stateTerm}},
		})
	default:
		got()
	}
}

// afterTransfer ends a transfer that raft had no use for: all that was in it is here.
func (x *raftGroup) afterTransfer() {
	if t := x.installing; t != nil {
		x.installing = nil
		x.answer(&transferMsg{from: t.from, term: t.term, index: t.index}, transferMsg{kind: msgGot, last: true})
	}
}

// stage writes items that belong to a state which is not here yet.
func (x *raftGroup) stage(s *Shard, r *round, t *inTransfer, blocks []seglog.Block, then func()) {
	if t.applied != x.store.applied {
		x.lookAgain(t)
	}
	mine := x.unapplied()
	rec := seglog.Record{Kind: seglog.KindItems, Term: max(x.store.term, 1), Index: x.store.last(), Time: s.time}
	for _, b := range blocks {
		for _, b := range without(b, t.have) {
			rest := without(b, mine)
			rec.Blocks = append(rec.Blocks, rest...)
			var ids []seglog.Range
			for _, r := range rest {
				ids = append(ids, rangeOf(r))
			}
			x.staged = append(x.staged, ids...)
			t.held = append(t.held, without(b, ids)...)
		}
	}
	x.staged = mergeRanges(x.staged)
	if len(x.staged) > 0 {
		x.stagedFor = max(x.stagedFor, t.index)
	}
	if len(rec.Blocks) == 0 {
		then()
		return
	}
	r.addRecord(x.g, rec)
	if planted.Is(planted.StagedNotStable) {
		then()
		then = nil
	}
	x.wait(r, storageAppend{then: then})
}

// unstage forgets items that are here if an entry brings others under their ids: with the
// entry, should it be replaced, the log lets go of both.
func (x *raftGroup) unstage(p *payload) {
	ids, _ := p.items()
	left := subtractRanges(x.staged, mergeRanges(slices.Clone(ids)))
	if !slices.Equal(left, x.staged) && x.receiving != nil {
		x.receiving.lost = true
	}
	x.staged = left
}

// outgrown lets go of items received for states that are not needed any more, as the entries up to there have come
// by the log. The items have been live here meanwhile, under records of their own, and are not: those that are were not received.
func (x *raftGroup) outgrown() {
	t := x.receiving
	switch {
	case x.installing != nil || len(x.appends) > 0 || x.store.applied < x.stagedFor || t != nil && t.index > x.store.applied:
		return
	case len(x.staged) == 0:
		x.receiving = nil // nothing of it has come, and the group could not rest
		return
	}
	live, _ := x.host.Live(nil)
	x.g.shard.node.raftLog.Release(x.g.id, x.store.applied, subtractRanges(x.staged, mergeRanges(slices.Concat(live, x.unapplied()))))
	x.staged, x.stagedFor, x.receiving = nil, 0, nil
}

// unapplied is the ids of the items of entries that are not applied.
func (x *raftGroup) unapplied() (ids []seglog.Range) {
	for i := x.store.applied + 1; i <= x.store.last(); i++ {
		if p := x.store.at(i).payload; p != nil {
			own, _ := p.items()
			ids = append(ids, own...)
		}
	}
	return mergeRanges(ids)
}

// install puts the state in place of the one here, as raft has decided.
func (x *raftGroup) install(s *Shard, r *round, snap *pb.Snapshot) (then func()) {
	t, meta := x.installing, snap.GetMetadata()
	if t == nil || t.index != meta.GetIndex() || t.stateTerm != meta.GetTerm() {
		invariant.Failf("group %d: state %d is to be installed, and is not here", x.g.id, meta.GetIndex())
	}
	// The log lets go of the entries above the last snapshot with all they carry; what is
	// applied of them may be part of the new state.
	if x.store.applied > 0 {
		x.writeSnapshot(r, s.time, false)
	}
	head, blob, err := parseSnapshot(t.state)
	old, _ := x.host.Live(nil)
	if err == nil {
		err = x.host.Restore(blob)
	}
	if err != nil {
		s.node.fail(x.g, err)
		return nil
	}
	x.members, x.time = s.node.shared(head.members), head.time
	x.heardTime(s, x.time)
	x.store.reset(t.index, t.stateTerm, x.conf, x.gone)
	x.g.index, x.g.term = t.index, t.stateTerm
	head.self = x.self
	rec := seglog.Record{
		Kind: seglog.KindInstall, Term: t.stateTerm, Index: t.index, Time: s.time, Meta: append(head.append(nil), blob...),
	}
	r.addRecord(x.g, rec)
	if len(t.held) > 0 {
		r.addRecord(x.g, seglog.Record{Kind: seglog.KindItems, Term: t.stateTerm, Index: t.index, Time: s.time, Blocks: t.held})
	}
	live, _ := x.host.Live(nil)
	gone := subtractRanges(mergeRanges(append(old, x.staged...)), mergeRanges(live))
	index := t.index
	switch {
	case planted.Is(planted.ReleasedEarly):
		index = 0
	case planted.Is(planted.ReleasedTooMuch):
		gone = mergeRanges(old)
	}
	if len(gone) > 0 {
		s.node.raftLog.Release(x.g.id, index, gone)
	}
	x.snapshotAt = t.index
	x.g.snapshotTaken(len(rec.Meta))
	x.staged, x.stagedFor, x.receiving, x.installing = nil, 0, nil, nil
	x.forgetTail()
	x.before, x.lately = t.index, t.index
	m := &transferMsg{from: t.from, term: t.term, index: t.index}
	return func() { x.answer(m, transferMsg{kind: msgGot, last: true}) }
}
