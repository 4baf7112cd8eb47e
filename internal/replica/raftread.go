package replica

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"holdfast/internal/invariant"
	"holdfast/internal/planted"
)

// ErrNoAnswer says that a read barrier was not answered in time, although a leader is known.
var ErrNoAnswer = errors.New("replica: the leader of the group does not answer")

// readAgain is after how many ticks a leader is asked again.
const readAgain = 3

// barrier is somebody who waits until this member knows all that was committed.
type barrier struct {
	index uint64 // once the leader has said it
	until int64  // clock.Mono
	done  func(index uint64, err error)
}

// barriers are the read barriers of a group. One question is under way at a time, for all who
// came before it was asked: what comes later must not be answered by it.
type barriers struct {
	fresh     []barrier // not asked for
	asked     []barrier // the leader has been asked
	confirmed []barrier // it has said how far to go; this member is not there yet
	question  uint64    // number of the question under way; names it for good
	wait      int       // ticks until it is asked again

	// early are the last questions of the other members that came while this one led and did not serve yet.
	early []*pb.Message
}

// ReadIndex is a read barrier: done runs when this member, leading or not, has applied everything that was
// committed anywhere in the group before the call, and gets the index it has gone to. Nothing is written: the leader
// makes sure with one round of heartbeats that it still leads. Many calls share a round.
//
// done runs once, on the group's worker, and must not block. After wait, which is counted in ticks of
// Options.Tick, it gets an error: *NotLeaderError with no leader if nobody is known to lead, else ErrNoAnswer; after the
// end of the group or the node ErrClosed, after that of this member ErrRemoved. If wait is 0 and nobody is known to lead it gets the error at once.
// A leader that changes meanwhile costs nothing but time. Only for raft groups; any goroutine may call it.
func (g *Group) ReadIndex(wait time.Duration, done func(index uint64, err error)) {
	x := g.raft
	if x == nil {
		invariant.Failf("group %d is asked for a read barrier and has no other members", g.id)
	}
	until := g.shard.node.o.Clock.Mono() + int64(wait)
	x.ask(func() {
		switch {
		case x.rn == nil && (x.ended || g.failed != nil || g.shard.node.closing.Load()):
			done(0, ErrClosed)
		case x.left:
			done(0, ErrRemoved)
		case planted.Is(planted.BarrierAtOnce):
			done(x.store.applied, nil)
		case wait <= 0 && x.lead == 0:
			done(0, &NotLeaderError{})
		default:
			if x.reads == nil {
				x.reads = &barriers{}
			}
			x.reads.fresh = append(x.reads.fresh, barrier{until: until, done: done})
		}
	})
}

// any says whether somebody waits.
func (b *barriers) any() bool { return b != nil && len(b.fresh)+len(b.asked)+len(b.confirmed) > 0 }

// holdRead keeps a question that a leader is asked before it serves, which is a moment after the others know that it leads: who
// asks would try again only much later.
func (x *raftGroup) holdRead(m *pb.Message) {
	if x.reads == nil {
		x.reads = &barriers{}
	}
	b := x.reads
	b.early = slices.DeleteFunc(b.early, func(was *pb.Message) bool { return was.GetFrom() == m.GetFrom() })
	if x.has(m.GetFrom()) {
		b.early = append(b.early, m)
	}
}

// askReads puts the question for those who wait. It reports whether raft has something to do by it.
func (x *raftGroup) askReads() bool {
	b := x.reads
	if b != nil && len(b.early) > 0 && x.answersReads() {
		for _, m := range b.early {
			if x.serving {
				_ = x.rn.Step(m)
			}
		}
		b.early = nil
		return x.serving
	}
	if b == nil || len(b.fresh) == 0 || len(b.asked) > 0 || x.lead == 0 || x.lead == x.self && !x.serving {
		return false
	}
	b.asked, b.fresh = b.fresh, nil
	x.question()
	return true
}

// question asks the leader, under a new number.
func (x *raftGroup) question() {
	b := x.reads
	// The numbers go on from the time, so that no answer to an earlier process fits.
	b.question = max(b.question+1, uint64(x.g.shard.node.o.Clock.Now().UnixNano()))
	b.wait = readAgain
	if planted.Is(planted.ReadsUnasked) && x.lead == x.self {
		x.readAnswers([]raft.ReadState{{Index: x.store.commit, RequestCtx: binary.LittleEndian.AppendUint64(nil, b.question)}})
		x.freeReads()
		return
	}
	x.rn.ReadIndex(binary.LittleEndian.AppendUint64(nil, b.question))
}

// readAnswers takes what the leader has said.
func (x *raftGroup) readAnswers(states []raft.ReadState) {
	b := x.reads
	for _, st := range states {
		if b == nil || len(b.asked) == 0 || len(st.RequestCtx) != 8 || binary.LittleEndian.Uint64(st.RequestCtx) != b.question {
			continue // asked again meanwhile
		}
		for _, w := range b.asked {
			w.index = st.Index
			b.confirmed = append(b.confirmed, w)
		}
		b.asked = nil
	}
}

// freeReads answers those who wait for nothing any more.
func (x *raftGroup) freeReads() {
	b := x.reads
	if b == nil || len(b.confirmed) == 0 {
		return
	}
	rest := b.confirmed[:0]
	for _, w := range b.confirmed {
		if w.index <= x.store.applied {
			w.done(x.store.applied, nil)
		} else {
			rest = append(rest, w)
		}
	}
	clear(b.confirmed[len(rest):])
	if b.confirmed = rest; len(rest) == 0 {
		b.confirmed = nil
	}
}

// tickReads asks again, and gives up what has waited too long.
func (x *raftGroup) tickReads(n int, now int64) {
	b := x.reads
	var err error = ErrNoAnswer
	if x.lead == 0 {
		err = &NotLeaderError{}
	}
	for _, l := range []*[]barrier{&b.fresh, &b.asked, &b.confirmed} {
		rest := (*l)[:0]
		for _, w := range *l {
			if now >= w.until {
				w.done(0, err)
			} else {
				rest = append(rest, w)
			}
		}
		clear((*l)[len(rest):])
		*l = rest
	}
	if len(b.asked) > 0 {
		if b.wait -= n; b.wait <= 0 {
			x.againReads()
		}
	}
	x.g.touch()
}

// againReads has those who wait for an answer asked for again: the leader is another one, or silent.
func (x *raftGroup) againReads() {
	b := x.reads
	if b == nil {
		return
	}
	b.fresh, b.asked = append(b.asked, b.fresh...), nil
	b.wait = 0
}

// failReads answers all who wait.
func (x *raftGroup) failReads(err error) {
	b := x.reads
	if b == nil {
		return
	}
	x.reads = &barriers{question: b.question}
	for _, l := range [][]barrier{b.fresh, b.asked, b.confirmed} {
		for _, w := range l {
			w.done(0, err)
		}
	}
}

// answersReads says whether a question of another member may be passed to raft. A leader that is the only
// voter would answer it before it knows what is committed.
func (x *raftGroup) answersReads() bool { return x.state != raft.StateLeader || x.serving }

// isRead says whether a message asks for a read barrier, or answers: what it carries is a number, not an entry.
func isRead(t pb.MessageType) bool { return t == pb.MsgReadIndex || t == pb.MsgReadIndexResp }
