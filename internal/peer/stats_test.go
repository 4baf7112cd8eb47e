package peer

import (
	"slices"
	"testing"
	"time"

	"holdfast/internal/clock"
)

// sender sends numbered messages on one lane as far as there is room, and goes on
// only when it is told that there is some.
type sender struct {
	links Links
	to    NodeID
	lane  Lane
	next  uint64
	until uint64
}

// send is called by one goroutine at a time.
func (s *sender) send() {
	for s.next < s.until && s.links.Send(s.to, s.lane, numbered(s.next, 200)) {
		s.next++
	}
}

// Over TCP a sender that was refused and waits for Writable gets everything through.
func TestWhoIsRefusedIsToldWhenThereIsRoom(t *testing.T) {
	b := newBoard()
	s := &sender{lane: Data, until: 5000}
	turn := make(chan struct{}, 1)
	x := startTCP(t, b, 1, func(o *Options) { o.LaneBytes[Data] = 3000 })
	x.hears.after = func(NodeID, Lane) {
		select {
		case turn <- struct{}{}:
		default:
		}
	}
	y := startTCP(t, b, 2, nil)
	s.links, s.to = x.TCP, 2
	connect(t, x, y)
	for s.send(); s.next < s.until; s.send() {
		<-turn
	}
	y.hears.await(t, "all messages", func() bool { return len(y.got(x, Data)) == int(s.until) })
	b.holds(func() bool {
		if !slices.Equal(y.got(x, Data), upTo(int(s.until))) {
			t.Error("not in order")
		}
		if room := x.hears.room[2]; room[Control] > 0 || room[Bulk] > 0 || room[Data] == 0 {
			t.Errorf("told of room: %v", room)
		}
		return true
	})
	st := x.Stats()[2]
	if l := st.Lanes[Data]; l.SentMessages != s.until || l.SentBytes != s.until*(200+frameHead) || l.Refused == 0 {
		t.Errorf("counted: %+v", l)
	}
}

// The same in the network in memory, whatever its course.
func TestWhoIsRefusedIsToldInMemory(t *testing.T) {
	for seed := range uint64(50) {
		m := clock.NewManual(time.Unix(0, 0))
		n := NewNetwork(seed, m)
		b := newBoard()
		join := func(id NodeID) (Links, *hears) {
			h := newHears(t, b, "n")
			return n.Join(Options{Node: id, Addr: string('a' + rune(id)), Handler: h, LaneBytes: [Lanes]int{1000, 1000, 1000}}), h
		}
		x, hx := join(1)
		y, hy := join(2)
		s := &sender{links: x, to: 2, lane: Lane(seed % Lanes), until: 100}
		hx.after = func(NodeID, Lane) { s.send() }
		x.SetPeers([]Target{{ID: 2, Addr: "c"}})
		y.SetPeers([]Target{{ID: 1, Addr: "b"}})
		for !hx.isUp(2) || !hy.isUp(1) {
			if !n.Step() {
				wait, _ := n.Next()
				m.Advance(wait)
			}
		}
		for s.send(); s.next < s.until || len(hy.last(1).messages[s.lane]) < int(s.until); {
			if !n.Step() {
				t.Fatalf("seed %d: %d of %d sent, and nothing goes on", seed, s.next, s.until)
			}
		}
		if !slices.Equal(hy.last(1).messages[s.lane], upTo(int(s.until))) || hx.room[2][s.lane] == 0 {
			t.Fatalf("seed %d: %v, told of room %d times", seed, hy.last(1).messages[s.lane], hx.room[2][s.lane])
		}
	}
}

// What went over the links of a peer is counted over all of them.
func TestStatsOutliveALink(t *testing.T) {
	b := newBoard()
	x, y := startTCP(t, b, 1, nil), startTCP(t, b, 2, nil)
	connect(t, x, y)
	send := func(round int, lane Lane, n, size int) {
		t.Helper()
		for i := range n {
			if !x.Send(2, lane, numbered(uint64(i), size)) {
				t.Fatal("refused")
			}
		}
		y.hears.await(t, "the messages", func() bool { return len(y.lives(x)) == round && len(y.got(x, lane)) == n })
	}
	send(1, Data, 10, 100)
	send(1, Bulk, 1, 1000)
	(*x.byID.Load())[2].up.Load().fail(errBroken)
	x.awaitUp(t, 2, y)
	y.awaitUp(t, 2, x)
	send(2, Data, 5, 100)
	send(2, Control, 3, 8)
	// The reader counts before it reads on: with word of the end all is counted.
	x.Close()
	y.awaitDown(t, 2, x)
	at := y.Stats()[1]
	sent := x.Stats()[2]
	want := [Lanes]LaneStats{
		Control: {SentMessages: 3, SentBytes: 3 * 12},
		Data:    {SentMessages: 15, SentBytes: 15 * 104},
		Bulk:    {SentMessages: 1, SentBytes: 1004},
	}
	if sent.Lanes[Data] != want[Data] || sent.Lanes[Bulk] != want[Bulk] || sent.Lanes[Control].SentMessages != 3 || sent.Links != 2 || sent.Up {
		t.Errorf("sent: %+v", sent)
	}
	for l := range want {
		if at.Lanes[l].ReceivedMessages != want[l].SentMessages || at.Lanes[l].ReceivedBytes != want[l].SentBytes {
			t.Errorf("received on %s: %+v", Lane(l), at.Lanes[l])
		}
	}
	if at.Links != 2 || at.Suspicions != 0 {
		t.Errorf("the other side counts %+v", at)
	}
}

// A heartbeat comes back, and how long that took is known; a node that is silent is counted as suspect.
func TestHeartbeatsAreTimed(t *testing.T) {
	b := newBoard()
	x, y := startTCP(t, b, 1, nil), startTCP(t, b, 2, nil)
	connect(t, x, y)
	g := (*x.byID.Load())[2]
	for beats := 1; ; beats++ { // the first ping goes with the link
		x.hears.await(t, "a heartbeat", func() bool { return len(x.hears.beats[2]) >= beats })
		if g.roundTrip.Load() != 0 {
			break
		}
		y.steps(200 * time.Millisecond)
	}
	if rt := x.Stats()[2].RoundTrip; rt <= 0 || rt > time.Minute {
		t.Errorf("round trip %v", rt)
	}
	g.roundTrip.Store(0)
	for _, odd := range []int64{x.o.Clock.Mono() + 1, x.o.Clock.Mono() - int64(time.Hour), -1 << 63} {
		if g.echoed(odd); g.roundTrip.Load() != 0 {
			t.Errorf("an echo of %d is believed", odd)
		}
	}
	for range 20 { // y says nothing
		x.steps(100 * time.Millisecond)
	}
	if s := x.Stats()[2]; s.Suspicions != 1 {
		t.Errorf("%d suspicions", s.Suspicions)
	}
}
