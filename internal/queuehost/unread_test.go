package queuehost

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/message"
	"holdfast/internal/seglog"
	"holdfast/internal/vfs"
)

// A leader that cannot read what it has to deliver, though nothing of it is damaged, has another member lead: it is needed no less for that.
func TestLeaderThatCannotReadHandsOver(t *testing.T) {
	x := newTrio(t, 3, func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, durable(7))
	defer x.close(t)
	bad := x.nodes[1]
	keepNothing(bad.reg.member(7))
	bad.reg.o.NewReader = func() *Reader { return &Reader{} }
	h := x.nodes[0].reg.Get(7)
	all := publishTwenty(h)
	leads := func(v *liveNode) bool { return v.reg.member(7).lead.leads() }
	for end := time.Now().Add(time.Minute); !leads(bad); time.Sleep(time.Millisecond) {
		for _, v := range x.nodes {
			if leads(v) {
				v.rep.Group(7).TransferLeader(bad.id)
			}
		}
		if time.Now().After(end) {
			t.Fatal("nobody hands over")
		}
	}
	c := newHearer(x.nodes[2].reg.Get(7))
	c.attach()
	want(t, "bodies", c.wait(len(all)), all)
	want(t, "members out of service", len(bad.reg.Damaged()), 0)
}

// keepNothing has a member keep no bodies in memory that are on disk.
func keepNothing(m *host) {
	done := make(chan struct{})
	m.group.Do(func() {
		m.lane.cache.limit = 0
		close(done)
	})
	<-done
}

// Where nobody can take over it reads again.
func TestLeaderThatCouldNotReadReadsAgain(t *testing.T) {
	x, m := newTrioThatServes(t)
	defer x.close(t)
	keepNothing(m)
	node := x.nodes[0]
	var began atomic.Int32
	node.reg.o.NewReader = func() *Reader {
		if began.Add(1) == 1 {
			return &Reader{}
		}
		return NewReader(node.log.NewReader())
	}
	h := node.reg.Get(7)
	all := publishTwenty(h)
	c := newHearer(h)
	c.attach()
	want(t, "bodies", c.wait(len(all)), all)
	if began.Load() < 2 {
		t.Error("everything was in memory")
	}
}

// In the end it is taken out of service.
func TestLeaderThatCannotReadAndIsAlone(t *testing.T) {
	x, h := newTrioThatServes(t)
	defer x.close(t)
	reg := x.nodes[0].reg
	now := h.reg.o.Clock.Mono()
	fails := func() {
		done := make(chan struct{})
		h.group.Do(func() {
			h.passOn(newSession(reg.guest(9), farHead{try: 1}), errors.New("no answer"), now)
			close(done)
		})
		<-done
	}
	for range 3 { // what is long ago does not count
		for range mostUnread {
			fails()
		}
		want(t, "members out of service", len(reg.Damaged()), 0)
		now += unreadFor
	}
	for range mostUnread {
		fails()
	}
	want(t, "members out of service", len(reg.Damaged()), 0)
	fails()
	want(t, "members out of service", len(reg.Damaged()), 1)
	fails() // nobody leads here any more
}

// What was handed over and could not be read is of a quorum queue no less with others: one that is damaged is taken out of service, else another one
// leads, and in the end whoever is alone is taken out of service, too.
func TestWhatWasHandedOverCannotBeRead(t *testing.T) {
	x := newTrio(t, 3, func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, durable(7))
	defer x.close(t)
	h := x.leader(7)
	for n := 0; x.leader(7) == h; n++ { // a handover may fail
		if n%1000 == 0 {
			h.handle.Unreadable(errors.New("no answer"))
		}
		time.Sleep(time.Millisecond)
	}
	want(t, "members out of service", len(h.reg.Damaged()), 0)
	h = x.leader(7)
	h.handle.Unreadable(&seglog.CorruptError{})
	for x.leader(7) == h {
		runtime.Gosched()
	}
	want(t, "members out of service", len(h.reg.Damaged()), 1)

	r := newRig(t, newFakeLog(), []QueueDef{durable(7)}, newest) // others have nothing of it
	r.queue(7).Unreadable(&seglog.CorruptError{})
	r.settle()
	want(t, "out of service", r.queue(7).Unavailable(), nil)
}

// publishTwenty publishes persistent messages, waits until they are accepted, and returns them.
func publishTwenty(h *Handle) (all []string) {
	tk := &countTicket{ready: make(chan struct{}, 1)}
	for i := range 20 {
		m := message.Message{Head: testHead([]byte{byte(i)})}
		all = append(all, whole(m))
		h.Publish([]Publish{{Message: m, Persistent: true, Ticket: tk}})
	}
	tk.wait(uint64(len(all)))
	return all
}
