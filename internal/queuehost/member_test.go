package queuehost

import (
	"errors"
	"testing"
	"time"

	"holdfast/internal/bytecodec"
	"holdfast/internal/clock"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/vfs"
)

// newTrioThatServes is three nodes with the quorum queue 7, which has a leader, and the first node's member of it.
func newTrioThatServes(t *testing.T) (*trio, *host) {
	t.Helper()
	x := newTrio(t, 1, func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, durable(7))
	led := make(chan struct{})
	x.nodes[0].reg.Get(7).Count(func(uint64, uint64, error) { close(led) })
	<-led
	return x, x.nodes[0].reg.member(7)
}

// A member whose log turns out to be damaged is given up in the middle of a turn of its group: what the
// group still has to say to it then is of no use, and does no harm.
func TestMemberGivenUpInItsTurn(t *testing.T) {
	x, h := newTrioThatServes(t)
	defer x.close(t)
	done := make(chan struct{})
	h.group.Do(func() {
		defer close(done)
		h.pack = h.lane.newPack()
		h.quarantine(errors.New("damaged"))
		h.Role(9, x.nodes[0].id, true)
		h.Apply(&replica.Entry{Index: 100, Term: 9})
		h.ApplyForeign(&replica.Entry{Index: 101, Term: 9}, queue.AppendCommands(nil, []queue.Command{{Kind: queue.Purge}}), nil, nil)
		if _, ok := h.Live(nil); ok {
			t.Error("a member that was given up knows what lives")
		}
		h.Pack(&replica.Entry{Index: 102, Term: 9})
	})
	<-done
}

// A member that was given up names nobody as the leader, and keeps nobody waiting for itself.
func TestMemberGivenUpLeadsNobody(t *testing.T) {
	x, h := newTrioThatServes(t)
	defer x.close(t)
	done := make(chan struct{})
	h.group.Do(func() {
		defer close(done)
		h.quarantine(errors.New("damaged"))
		h.Role(9, x.nodes[0].id, true)
		s := newSession(x.nodes[0].reg.guest(9), farHead{try: 1})
		if ok, leader := h.lead.resumes(s); ok || leader != 0 {
			t.Errorf("a session waits for it: %v; leader %d", ok, leader)
		}
	})
	<-done
}

// A node whose member has stopped leading is not named as the leader, although it was the last that the entry heard of.
func TestWhoStoppedLeadingIsNotNamed(t *testing.T) {
	x := newTrio(t, 1, func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, durable(7))
	defer x.close(t)
	self, h, member := x.nodes[0].id, x.nodes[0].reg.Get(7), x.nodes[0].reg.member(7)
	led := make(chan struct{})
	h.Count(func(uint64, uint64, error) { close(led) })
	<-led
	done := make(chan struct{})
	member.group.Do(func() {
		defer close(done)
		if leader := h.Leader(); leader != self {
			t.Errorf("led by %d", leader)
		}
		h.far.mu.Lock()
		h.far.entry.hint = self
		h.far.mu.Unlock()
		term := member.lead.term
		member.Role(term+1, 0, false)
		if leader := h.Leader(); leader != 0 {
			t.Errorf("nobody leads, and %d is named", leader)
		}
		member.Role(term+2, self, true)
	})
	<-done
}

// No session is kept with a queue that was deleted, or that has no member here.
func TestSessionsOfQueuesThatAreNotHere(t *testing.T) {
	x := newTrio(t, 1, func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, durable(7))
	defer x.close(t)
	reg := x.nodes[0].reg
	g := reg.guest(reg.self())
	kept := func(id seglog.GroupID) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		s := g.sessions[id]
		return s != nil && s.handle != nil // else the entry has just asked, and is being told
	}
	used := make(chan struct{})
	reg.Get(7).Count(func(uint64, uint64, error) { close(used) })
	<-used
	if !kept(7) {
		t.Fatal("there is no session")
	}
	dropped := make(chan struct{})
	reg.Drop(7, nil, func() { close(dropped) })
	<-dropped
	if kept(7) {
		t.Error("the session with the deleted queue is kept")
	}
	other := reg.guest(9)
	resume := bytecodec.AppendUint(farHead{kind: farResume, life: life{1, 1}, queue: 8, try: 1}.append(nil), 1)
	reg.Receive(9, resume)
	if len(other.sessions) > 0 {
		t.Error("a session with a queue that is not here is kept")
	}
}

// A member that nobody needs is found before the catalog here says that it is not to be here.
func TestMemberThatIsOverIsAdopted(t *testing.T) {
	h := &host{lead: &lead{removed: true}}
	if h.over() {
		t.Error("a member that is wanted goes")
	}
	if h.lead.unwanted = true; !h.over() {
		t.Error("a member that nobody wants or needs stays")
	}
}

// Whether a quorum queue may be deleted is decided by what the group has agreed on: the answer comes with an entry.
func TestSealOfAQuorumQueue(t *testing.T) {
	x := newTrio(t, 1, func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, durable(7))
	defer x.close(t)
	h := x.nodes[0].reg.Get(7)
	seal := func() (n uint64, err error) {
		done := make(chan struct{})
		h.Seal(false, true, func(ready uint64, e error) {
			n, err = ready, e
			close(done)
		})
		<-done
		return n, err
	}
	publish(h, nil, true, "a")
	if _, err := seal(); err == nil {
		t.Error("a queue with a message was taken for an empty one")
	}
	purged := make(chan struct{})
	h.Purge(func(uint64, error) { close(purged) })
	<-purged
	before := applied(x.nodes[0].reg.member(7))
	if n, err := seal(); n != 0 || err != nil {
		t.Errorf("%d ready: %v", n, err)
	}
	if after := applied(x.nodes[0].reg.member(7)); after <= before {
		t.Errorf("the seal was decided at entry %d, as the purge", after)
	}
}

// A node that has sealed a queue and is taken for dead does not leave it sealed.
func TestSealOfANodeThatIsGone(t *testing.T) {
	x, h := newTrioThatServes(t)
	defer x.close(t)
	s := newSession(h.reg.guest(2), farHead{queue: 7, try: 1})
	s.handle = &h.handle
	sealed := make(chan struct{})
	h.handle.Seal(false, false, func(_ uint64, err error) {
		if err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.sealed = true
		s.mu.Unlock()
		close(sealed)
	})
	<-sealed
	h.group.Do(func() { s.lost(h.reg.self()) }) // as its sessions end where the queue is led
	told := make(outcomeOf)
	publish(h.reg.Get(7), told, true, "a")
	if o := <-told; o != Accepted {
		t.Errorf("a publish to a queue that is sealed no more: %v", o)
	}
}

// A node that takes back a seal which it was not told of takes back its own, if that comes, and nobody else's.
func TestSealOfAnotherNodeIsNotTakenBack(t *testing.T) {
	x, h := newTrioThatServes(t)
	defer x.close(t)
	guest := func(node uint64) *session {
		s := newSession(h.reg.guest(node), farHead{queue: 7, try: 1})
		s.handle = &h.handle
		return s
	}
	after := func(what string, sealed bool, s *session, kinds ...askKind) {
		t.Helper()
		s.mu.Lock()
		for _, kind := range kinds {
			s.ask(&ask{kind: kind})
		}
		s.mu.Unlock()
		var is bool
		for range 2 { // what follows from it waits behind the first one
			done := make(chan struct{})
			h.handle.Count(func(uint64, uint64, error) {
				is = h.sealed
				close(done)
			})
			<-done
		}
		want(t, what, is, sealed)
	}
	one, other := guest(2), guest(3)
	after("sealed by the other", true, other, askSeal)
	after("taken back by one whose seal is refused", true, one, askSeal, askUnseal)
	after("taken back by the other", false, other, askUnseal)
	after("taken back before it has come", false, one, askSeal, askUnseal)
	after("sealed by the other again", true, other, askSeal)
	one.end()
	after("by one that has ended", true, one)
	other.end()
	after("by the other, which has ended", false, other)
}

// A session that was to end with an entry which was not agreed on is resumed anew, like those that were to go on.
func TestSessionsOfAnEntryThatIsAbandoned(t *testing.T) {
	x, h := newTrioThatServes(t)
	defer x.close(t)
	s := newSession(h.reg.guest(2), farHead{queue: 7, try: 1})
	done := make(chan struct{})
	h.group.Do(func() {
		defer close(done)
		h.pack = h.lane.newPack()
		h.pack.ended = append(h.pack.ended, &leadSession{node: 2, guest: s}, &leadSession{node: 3})
		h.Abandoned()
	})
	<-done
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	want(t, "the session is over", over, true)
	told := make(outcomeOf)
	publish(h.reg.Get(7), told, true, "a")
	want(t, "a publish afterwards", <-told, Accepted)
}

// outcomeOf is the ticket of one publish.
type outcomeOf chan Outcome

// Settled implements Ticket.
func (c outcomeOf) Settled(_, _ uint64, o Outcome) { c <- o }

func applied(h *host) uint64 {
	at := make(chan uint64)
	h.group.Do(func() { at <- h.m.Applied() })
	return <-at
}

// A node that led and gave its member up is not named as the leader any more.
func TestLeaderWithoutAMember(t *testing.T) {
	x := newTrio(t, 1, func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, durable(7))
	defer x.close(t)
	reg := x.nodes[0].reg
	h, err := reg.CreateQuorum(durable(8), []Member{{ID: 21, Node: 21}, {ID: 22, Node: 22}})
	if err != nil {
		t.Fatal(err)
	}
	h.far.entry.told(21)
	if on := h.Leader(); on != 21 {
		t.Errorf("node %d leads", on)
	}
	reg.SetMembers(8, []Member{{ID: 22, Node: 22}})
	if on := h.Leader(); on != 0 {
		t.Errorf("node %d leads, and has no member", on)
	}
}

// What a node holds that is not in the cluster any more goes back: one that was removed while this node was down, too, once it is sure that
// this one has heard of all that are.
func TestSessionsOfNodesThatWereRemoved(t *testing.T) {
	clk, log := clock.NewManual(testTime), newFakeLog()
	node := replica.Open(replica.Options{Log: log, Shards: 1, Clock: clk})
	joined := false
	reg := New(Options{Log: log, Clock: clk, Node: node, Self: 1, Stepped: true, Incarnation: 1, Member: func(n uint64) bool {
		return n == 2 || n == 4 && joined
	}})
	for _, n := range []uint64{1, 2, 3, 4} { // 3 was removed; 4 has just joined, and this node does not know yet
		reg.meet(n)
	}
	clk.Advance(strangerFor - time.Second)
	reg.meet(3)
	reg.Tick()
	joined = true
	for n := range uint64(5) {
		want(t, "counts as gone", reg.health.of(n).gone, uint64(0))
	}
	clk.Advance(time.Second)
	reg.Tick()
	for n := range uint64(5) {
		gone := uint64(0)
		if n == 3 {
			gone = everyProcess
		}
		want(t, "counts as gone", reg.health.of(n).gone, gone)
	}
	reg.Removed(2)
	want(t, "counts as gone", reg.health.of(2).gone, uint64(everyProcess))
}

// A member that was damaged when the node started is taken out, so that another one can take its place.
func TestDamagedMemberIsTakenOut(t *testing.T) {
	clk, log := clock.NewManual(testTime), newFakeLog()
	log.hits = []seglog.Hit{{Group: 7, Reason: "index gap"}}
	node := replica.Open(replica.Options{Log: log, Shards: 1, Clock: clk})
	reg := New(Options{Log: log, Clock: clk, Node: node, Self: 1, Stepped: true, Incarnation: 1})
	others := []Member{{ID: 2, Node: 2}, {ID: 3, Node: 3}}
	if _, err := reg.CreateQuorum(durable(7), append([]Member{{ID: 1, Node: 1}}, others...)); err != nil {
		t.Fatal(err)
	}
	node.Prepare()
	settle := func() {
		for range 10 {
			for node.Shard(0).Step() {
			}
			log.sync()
		}
	}
	settle()
	want(t, "damaged", reg.Damaged(), []seglog.GroupID{7})
	reg.SetMembers(7, others)
	settle()
	if reg.member(7) != nil {
		t.Fatal("the damaged member is still there")
	}
	want(t, "record", log.records[len(log.records)-1].Kind, seglog.KindDrop)
	want(t, "damaged afterwards", len(reg.Damaged()), 0)
}

// A member whose part of the log was found damaged at the start is replaced also if the catalog here goes from the damaged one to the
// new one in one step: a snapshot brought it.
func TestDamagedMemberIsReplacedInOneStep(t *testing.T) {
	x := newTrio(t, 1, func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, durable(7))
	defer x.close(t)
	reg, self := x.nodes[0].reg, x.nodes[0].id
	reg.mu.Lock()
	reg.quarantined[8] = "damaged"
	reg.mu.Unlock()
	other := Member{ID: 21, Node: 21}
	if _, err := reg.CreateQuorum(durable(8), []Member{{ID: 31, Node: self}, other}); err != nil {
		t.Fatal(err)
	}
	reg.SetMembers(8, []Member{{ID: 31, Node: self}, other}) // nothing new
	if ids := reg.Damaged(); len(ids) != 1 || ids[0] != 8 {
		t.Fatalf("damaged: %v", ids)
	}
	reg.SetMembers(8, []Member{{ID: 32, Node: self}, other})
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if h := reg.member(8); h != nil && h.is() == 32 && len(reg.Damaged()) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the new member is not there; damaged: %v", reg.Damaged())
		}
	}
}
