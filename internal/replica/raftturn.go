package replica

import (
	"fmt"
	"math"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"holdfast/internal/invariant"
	"holdfast/internal/planted"
	"holdfast/internal/seglog"
)

// atOnce is how many results of raft a group works off before others have their turn.
const atOnce = 8

// turn takes what a raft group has to bring into the round. Its order is that of the
// path: what came from other members and from the disk; what is committed by that is
// applied; the host packs anew; and only then the messages leave, so that the news of
// the commit travels with the next entry.
func (x *raftGroup) turn(s *Shard, r *round) {
	g := x.g
	if g.dropped || g.failed != nil {
		if !g.dropped {
			x.wakeOthers(s)
		}
		x.end()
		x.discardInbox()
		if g.drop {
			g.drop = false
			r.addControl(g, seglog.KindDrop, g.index, s.time, nil)
		}
		return
	}
	if x.ended {
		x.discardInbox()
		return
	}
	if x.rn == nil {
		if err := x.start(r, s.time); err != nil {
			s.node.fail(g, err)
			return
		}
	}
	if x.left {
		clear(x.payloads)
		x.out = nil
		x.discardInbox()
		return
	}
	x.takeInbox(s, r)
	if x.forced != nil && !x.forced.begun && !g.dropped && g.failed == nil {
		x.forceSingle(s, r)
	}
	if g.dropped || g.failed != nil { // by an answer
		g.Wake()
		return
	}
	for n := 0; ; n++ {
		if x.rn.HasReady() {
			if n == atOnce {
				g.Wake()
				break
			}
			x.ready(s, r, x.rn.Ready())
			if g.dropped || g.failed != nil {
				g.Wake()
				break
			}
			continue
		}
		if !planted.Is(planted.PayloadOfOther) {
			clear(x.payloads)
		}
		x.afterTransfer()
		x.foundAgain()
		x.freeReads()
		if !x.proposeChange() && !x.packNext(s, r) && !x.tellDismissed() && !x.askReads() {
			break
		}
	}
	if x.store.applied > 0 && !g.dropped && g.failed == nil && g.snapshotDue(&s.node.o) {
		x.snapshot(r, s.time, true)
		s.stats.snapshots.Add(1)
	}
	x.flush(s)
	x.restNow()
}

// takeInbox steps what has come.
func (x *raftGroup) takeInbox(s *Shard, r *round) {
	x.inMu.Lock()
	in, asks, stirred := x.inbox, x.asks, x.stirred
	x.inbox, x.taken, x.inBytes, x.asks, x.stirred = x.taken[:0], nil, 0, nil, false
	x.inMu.Unlock()
	if stirred {
		x.stir()
	}
	for _, ask := range asks {
		ask()
	}
	for i := range in {
		if x.g.dropped || x.g.failed != nil { // by an answer, or by what came before
			break
		}
		if x.stirs(&in[i]) {
			x.stir()
		}
		x.receive(s, r, &in[i])
	}
	x.taken = emptied(in)
}

// carries notes what an entry carries that is not in the store yet.
func (x *raftGroup) carries(id entryID, p *payload) {
	if x.payloads == nil {
		x.payloads = map[entryID]*payload{}
	}
	x.payloads[id] = p
}

func (x *raftGroup) discardInbox() {
	x.inMu.Lock()
	asks := x.asks
	x.inbox, x.inBytes, x.asks = nil, 0, nil
	x.inMu.Unlock()
	for _, ask := range asks {
		ask()
	}
}

// receive takes one message.
func (x *raftGroup) receive(s *Shard, r *round, in *incoming) {
	if in.read != nil {
		x.readBack(in.read)
		return
	}
	if t := in.transfer; t != nil {
		if t.to == x.self {
			x.heard(t.from, in.node)
			x.takeTransfer(s, r, t)
		}
		return
	}
	if in.msg.GetTo() != x.self {
		return // for one that was here before
	}
	x.heard(in.msg.GetFrom(), in.node)
	for i, p := range in.payloads {
		if p != nil {
			e := in.msg.GetEntries()[i]
			x.carries(entryID{e.GetIndex(), e.GetTerm()}, p)
		}
	}
	if in.msg.GetType() == pb.MsgReadIndex && !x.answersReads() {
		x.holdRead(in.msg)
		return
	}
	if x.stranger(in.msg) || x.unwanted(in.msg) || x.beyond(s, r, in.msg) {
		return
	}
	// Errors say that the message is of no use, for instance from a member that was removed.
	_ = x.rn.Step(in.msg)
	x.givesWay(in.msg)
	x.outran(in.msg)
	x.deferVote(in.msg)
	if in.rest && in.msg.GetTerm() == x.rn.BasicStatus().GetTerm() {
		x.heardRest()
	}
}

// beyond fails the group if the leader has had more from this member than is here: its log is older than what it has answered
// for, put back from a copy or lost by the disk. Such a member must not vote. It reports whether raft must not see the message.
func (x *raftGroup) beyond(s *Shard, r *round, m *pb.Message) bool {
	if m.GetType() != pb.MsgHeartbeat || m.GetTerm() < x.term || m.GetCommit() <= x.store.last() {
		return false
	}
	for x.rn.HasReady() && x.g.failed == nil && !x.g.dropped { // what has just come is not in the store yet
		x.ready(s, r, x.rn.Ready())
	}
	if m.GetCommit() <= x.store.last() || x.g.dropped || x.g.failed != nil {
		return x.g.dropped || x.g.failed != nil
	}
	s.node.fail(x.g, fmt.Errorf("the log here is older than what was answered for: it ends at entry %d, and had entry %d before", x.store.last(), m.GetCommit()))
	return true
}

// ready carries out what raft has decided.
func (x *raftGroup) ready(s *Shard, r *round, rd raft.Ready) {
	if rd.SoftState != nil {
		x.lead, x.state = rd.SoftState.Lead, rd.SoftState.RaftState
	}
	if !raft.IsEmptyHardState(rd.HardState) {
		x.term = rd.HardState.GetTerm()
	}
	x.checkRole()
	x.readAnswers(rd.ReadStates)
	var apply *pb.Message
	for _, m := range rd.Messages {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			x.append(s, r, m)
		case raft.LocalApplyThread:
			apply = m
		default:
			if m.GetType() == pb.MsgSnap {
				x.offer(m)
			} else {
				x.out = append(x.out, m)
			}
		}
	}
	if apply != nil {
		x.apply(s, apply)
		x.checkRole()
	}
}

// checkRole looks whether this member still leads, and tells the host what has changed.
func (x *raftGroup) checkRole() {
	leads := x.state == raft.StateLeader
	if x.underWay != nil && (!leads || x.underWay.entry.Term != x.term) {
		x.abandon()
	}
	x.serving = (x.serving && x.store.appliedTerm == x.term || planted.Is(planted.ServesEarly)) && leads
	if x.lead != 0 {
		x.campaign, x.attempts = 0, 0
	} else if x.campaign == 0 {
		x.awaitElection() // raft alone would take its time
	}
	if now := (role{x.term, x.leaderNode(), x.serving}); now != x.told {
		x.told = now
		x.changed()
		x.againReads()
		if x.lead != 0 && x.lead != x.self {
			if x.lead == x.handTo {
				x.handed(nil)
			}
			x.handed(x.notLeader())
		}
		if x.state != raft.StateLeader {
			x.dropTransfers()
		}
		if !x.serving {
			x.failChanges(x.notLeader())
			x.passing = x.passing || x.handing
			x.handing = false
		}
		x.host.Role(now.term, now.leader, now.serving)
	}
	x.passing = x.passing && !x.serving && x.store.appliedTerm != x.term
	x.g.shard.node.leads(x, x.serving || x.passing)
}

// abandon gives up the entry under way: it may still be committed, but nobody here will say so.
func (x *raftGroup) abandon() {
	if x.underWay == nil {
		return
	}
	x.underWay = nil
	x.host.Abandoned()
}

// append puts what raft wants on disk into the round. What waits for it is delivered by
// stable. A commit index alone is not written: it comes with the next entry, and
// who answers to it need not wait for more than what is on its way already.
func (x *raftGroup) append(s *Shard, r *round, m *pb.Message) {
	before := len(r.batch.Records)
	if m.Term != nil {
		changed := m.GetTerm() != x.store.term || m.GetVote() != x.store.vote
		x.store.term, x.store.vote, x.store.commit = m.GetTerm(), m.GetVote(), m.GetCommit()
		if changed && !planted.Is(planted.VoteNotWritten) {
			x.writeHardState(r, s.time)
		}
	}
	var then func()
	if snap := m.GetSnapshot(); !raft.IsEmptySnap(snap) {
		if then = x.install(s, r, snap); x.g.failed != nil {
			return
		}
	}
	for _, e := range m.GetEntries() {
		x.appendEntry(s, r, e)
	}
	switch {
	case len(r.batch.Records) > before && planted.Is(planted.AnswerBeforeSync):
		x.wait(r, storageAppend{nil, then})
		x.respond(m.GetResponses())
	case len(r.batch.Records) > before:
		x.wait(r, storageAppend{m.GetResponses(), then})
	case len(x.appends) > 0:
		l := &x.appends[len(x.appends)-1]
		l.responses = append(l.responses, m.GetResponses()...)
	default:
		x.respond(m.GetResponses())
	}
}

// wait has something happen when the records put into the round so far are stable.
func (x *raftGroup) wait(r *round, a storageAppend) {
	r.groups[len(r.groups)-1] = x.g
	r.batch.Sync = true
	x.appends = append(x.appends, a)
}

// appendEntry puts one entry into the round and into the store.
func (x *raftGroup) appendEntry(s *Shard, r *round, e *pb.Entry) {
	id := entryID{e.GetIndex(), e.GetTerm()}
	rec := seglog.Record{Kind: seglog.KindEntry, Term: id.term, Index: id.index, Time: s.time}
	now := slot{term: id.term, kind: kindOf(e)}
	if now.kind == entryNormal {
		if planted.Is(planted.PayloadOfOther) {
			for other := uint64(1); other < id.term; other++ {
				if old := x.payloads[entryID{id.index, other}]; old != nil {
					x.payloads[id] = old
				}
			}
		}
		p := x.payloads[id]
		if p == nil {
			invariant.Failf("group %d: entry %d of term %d carries nothing", x.g.id, id.index, id.term)
		}
		p.seal(entryNormal, x.store.commit)
		if planted.Is(planted.CommitAhead) {
			p.seal(entryNormal, id.index)
		}
		rec.Time, rec.Meta, rec.Blocks = p.time, p.record, p.blocks
		now.payload, now.size = p, p.size
		if len(x.staged) > 0 {
			x.unstage(p)
		}
	} else {
		now.data = e.GetData()
		p := newPayload(s.time, now.data, nil)
		p.seal(now.kind, x.store.commit)
		rec.Meta = p.record
		x.changeAppended(id, now.kind)
		if planted.Is(planted.ConfEarly) && now.kind == entryConf {
			x.applyConf(id, now.data)
		}
	}
	x.store.append(id.index, now, x.gone)
	r.addRecord(x.g, rec)
	x.g.sinceEntries++
	x.g.sinceBytes += int64(now.size)
}

// stable implements replicator: the oldest write is on disk.
func (x *raftGroup) stable(*Group, uint64) {
	first := x.appends[0]
	x.appends[0] = storageAppend{}
	if x.appends = x.appends[1:]; len(x.appends) == 0 {
		x.appends = nil
	}
	if x.ended {
		return
	}
	x.respond(first.responses)
	if first.then != nil {
		first.then()
	}
	x.g.touch()
}

// respond delivers what was waiting for the disk, or for an apply.
func (x *raftGroup) respond(ms []*pb.Message) {
	for _, m := range ms {
		if m.GetTo() == x.self {
			_ = x.rn.Step(m)
		} else {
			x.out = append(x.out, m)
		}
	}
}

// apply carries out committed entries.
func (x *raftGroup) apply(s *Shard, m *pb.Message) {
	for _, e := range m.GetEntries() {
		x.applyEntry(s, entryID{e.GetIndex(), e.GetTerm()})
		if x.g.dropped || x.g.failed != nil {
			return
		}
	}
	x.serving = x.state == raft.StateLeader && (x.store.appliedTerm == x.term || planted.Is(planted.ServesEarly))
	x.respond(m.GetResponses())
}

func (x *raftGroup) applyEntry(s *Shard, id entryID) {
	g := x.g
	e := x.store.at(id.index)
	if e == nil || e.term != id.term || id.index != x.store.applied+1 {
		invariant.Failf("group %d: entry %d of term %d is to be applied after %d", g.id, id.index, id.term, x.store.applied)
	}
	x.store.applied, x.store.appliedTerm = id.index, id.term
	g.index, g.term = id.index, id.term
	switch e.kind {
	case entryConf:
		if !planted.Is(planted.ConfEarly) {
			x.applyConf(id, e.data)
		}
	case entryNormal:
		p := e.payload
		x.time = p.time
		if own := x.underWay; own.is(id) {
			x.underWay = nil
			invariant.Pass("replica", "entry committed")
			g.host.Apply(&own.entry)
		} else {
			x.heardTime(s, p.time)
			ids, items := p.items()
			x.host.ApplyForeign(&Entry{Index: id.index, Term: id.term, Time: p.time, Logged: true}, p.meta(), ids, items)
		}
		s.stats.entries.Add(1)
		if !g.dropped && g.failed == nil {
			x.keepPayload(s, id.index, e)
		}
	}
}

// keepPayload decides what becomes of the payload of an entry that was applied: members
// that are a little behind may need it, if this one leads or will.
func (x *raftGroup) keepPayload(s *Shard, index uint64, e *slot) {
	if e.payload.partial || x.allHave(index) {
		e.payload = nil
		return
	}
	s.cache.keep(x, index, e.payload)
}

// allHave says whether this member leads and knows that all others have the entry.
func (x *raftGroup) allHave(index uint64) bool {
	if len(x.nodes) == 1 {
		return true
	}
	if x.state != raft.StateLeader {
		return false
	}
	all := true
	x.rn.WithProgress(func(_ uint64, _ raft.ProgressType, p tracker.Progress) { all = all && p.Match >= index })
	return all
}

// heardTime takes note of the time that another leader has given an entry, or that was the last one in a state which was found or came
// whole: should this member lead, time must not stand still until its own clock is as far.
func (x *raftGroup) heardTime(s *Shard, time int64) {
	if ms := (time - s.time + int64(milli) - 1) / int64(milli); ms > int64(x.ahead) {
		x.ahead = int32(min(ms, math.MaxInt32))
	}
}

// timeOn is the time of the group.
func (x *raftGroup) timeOn(s *Shard) int64 { return s.time + int64(x.ahead)*int64(milli) }

const milli = time.Millisecond

// packNext lets the host pack an entry and proposes it. It reports whether there is one.
func (x *raftGroup) packNext(s *Shard, r *round) bool {
	if !x.serving || x.underWay != nil || x.isHanding() || s.node.closing.Load() {
		return false
	}
	e := &s.entry
	*e = Entry{Index: x.store.last() + 1, Term: x.term, Time: max(x.timeOn(s), x.time+1), Logged: true}
	r.begin(e)
	more := x.host.Pack(e)
	if !e.packed {
		if more {
			x.g.Wake()
		}
		return false
	}
	x.stir()
	id := entryID{e.Index, e.Term}
	p := r.payload(e)
	x.carries(id, p)
	x.underWay = &packing{
		entry: Entry{Index: e.Index, Term: e.Term, Time: e.Time, Logged: true, Sync: e.Sync, Meta: p.meta()},
		since: s.node.o.Clock.Mono(),
	}
	if err := x.rn.Step(&pb.Message{Type: pb.MsgProp.Enum(), From: &x.self, Entries: []*pb.Entry{{Data: dataOfNormal}}}); err != nil {
		x.abandon()
		return false
	}
	return true
}

// snapshot writes a snapshot and forgets what it covers.
func (x *raftGroup) snapshot(r *round, time int64, mayWait bool) {
	x.keepTail(x.store.applied)
	x.writeSnapshot(r, time, mayWait)
}

// flush sends the messages of the turn. One that only tells how far the group is
// committed stays behind if another to the same member tells it, too.
func (x *raftGroup) flush(s *Shard) {
	for i, m := range x.out {
		if onlyCommit(m) && x.toldLater(m, x.out[i+1:]) {
			continue
		}
		x.send(s, m)
	}
	clear(x.out)
	x.out = x.out[:0]
}

func onlyCommit(m *pb.Message) bool { return m.GetType() == pb.MsgApp && len(m.GetEntries()) == 0 }

func (x *raftGroup) toldLater(m *pb.Message, later []*pb.Message) bool {
	for _, l := range later {
		if l.GetType() == pb.MsgApp && l.GetTo() == m.GetTo() && l.GetTerm() == m.GetTerm() && l.GetCommit() >= m.GetCommit() &&
			l.GetIndex() >= m.GetIndex() {
			return true
		}
	}
	return false
}
