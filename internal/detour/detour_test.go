package detour

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"holdfast/internal/peer"
)

// Two nodes without a link to each other are up for each other as long as a third hears both.
func TestDetour(t *testing.T) {
	for _, how := range []struct {
		name string
		part func(w *town)
	}{
		{"no way", func(w *town) { w.apart(1, 2, true, true) }},
		{"one way", func(w *town) { w.apart(1, 2, false, true) }},
		{"the other way", func(w *town) { w.apart(2, 1, false, true) }},
		{"broken", func(w *town) { w.apart(1, 2, true, true); w.net.Break(1, 2) }},
	} {
		t.Run(how.name, func(t *testing.T) {
			w := newTown(t, 1, 1, 2, 3)
			w.startAll()
			w.pass(2 * time.Second)
			w.whole()
			w.want("no detour", w.nodes[1].detours()+w.nodes[2].detours()+w.nodes[3].detours() == 0)
			how.part(w)
			w.pass(4 * time.Second)
			w.want("a detour", w.nodes[1].Via(2) == 3 && w.nodes[2].Via(1) == 3)
			w.whole()
			w.pass(time.Minute)
			w.want("the same detour", w.nodes[1].ups[2] == 2 && w.nodes[2].ups[1] == 2)
			w.net.Heal()
			w.pass(5 * time.Second)
			w.want("no detour any more", w.nodes[1].detours() == 0 && w.nodes[2].detours() == 0)
			w.want("the same links to the third", w.nodes[3].ups[1] == 1 && w.nodes[3].ups[2] == 1)
			w.whole()
		})
	}
}

// A node that is gone is not reached by anybody: it is suspect as soon as without detours, and so is one that is cut off
// when there was a detour to it.
func TestNoDetourToWhoIsGone(t *testing.T) {
	w := newTown(t, 2, 1, 2, 3)
	w.startAll()
	w.pass(2 * time.Second)
	w.crash(2)
	w.pass(1100 * time.Millisecond)
	w.want("down and suspect", !w.nodes[1].up[2] && w.nodes[1].doubt[2] && !w.nodes[3].up[2] && w.nodes[3].doubt[2])
	w.start(2)
	w.pass(3 * time.Second)
	w.whole()

	w.apart(1, 2, true, true)
	w.pass(4 * time.Second)
	w.whole()
	w.crash(2)
	w.pass(2500 * time.Millisecond)
	w.want("down and suspect, after a detour", !w.nodes[1].up[2] && w.nodes[1].doubt[2])
	w.start(2)
	w.pass(5 * time.Second)
	w.whole()

	w.crash(3) // the one in the middle
	w.pass(2500 * time.Millisecond)
	w.want("nobody hears anybody", !w.nodes[1].up[2] && w.nodes[1].doubt[2] && !w.nodes[2].up[1] && w.nodes[2].doubt[1])
	w.start(3)
	w.pass(5 * time.Second)
	w.whole()
}

// Who hears nobody any more is as suspect as who is not heard: the others know it by its own word. It is trusted again when it hears
// them.
func TestWhoHearsNothingIsSuspect(t *testing.T) {
	w := newTown(t, 6, 1, 2, 3)
	w.startAll()
	w.pass(2 * time.Second)
	w.apart(2, 1, false, true)
	w.apart(3, 1, false, true)
	w.pass(1300 * time.Millisecond)
	for _, n := range w.nodes {
		for id := range n.up {
			w.want(fmt.Sprintf("%d is suspect for %d", id, n.id), n.doubt[id] == (n.id == 1 || id == 1))
		}
	}
	w.net.Heal()
	w.pass(300 * time.Millisecond)
	w.whole()
	w.want("the same links", w.nodes[1].ups[2] == 1 && w.nodes[1].ups[3] == 1)
}

// A node that stands still has its links when it goes on, and no detour.
func TestNoDetourToWhoStandsStill(t *testing.T) {
	w := newTown(t, 3, 1, 2, 3)
	w.startAll()
	w.pass(2 * time.Second)
	w.net.Pause(2, true)
	w.pass(1200 * time.Millisecond)
	w.want("suspect", w.nodes[1].doubt[2] && w.nodes[3].doubt[2])
	w.net.Pause(2, false)
	w.pass(3 * time.Second)
	w.whole()
	w.want("the same link", w.nodes[1].ups[2] == 1)
}

// Where a detour cannot be opened by way of one node, it is tried by way of the next.
func TestDetourByAnotherWay(t *testing.T) {
	w := newTown(t, 7, 1, 2, 3, 4)
	w.startAll()
	w.pass(2 * time.Second)
	w.apart(1, 2, true, true)
	for _, id := range []peer.NodeID{1, 2} { // what goes by way of 3 is lost
		l := w.nodes[3].links
		w.nodes[3].links = deafTo{l, id}
	}
	w.pass(6 * time.Second)
	w.want("a detour by way of the other", w.nodes[1].Via(2) == 4 && w.nodes[2].Via(1) == 4)
	w.whole()
}

// deafTo are links that lose what a node in the middle leads on to another.
type deafTo struct {
	peer.Links
	to peer.NodeID
}

func (l deafTo) Send(to peer.NodeID, lane peer.Lane, add func([]byte) []byte) bool {
	if b := add(nil); to == l.to && b[0] == tag {
		return true
	}
	return l.Links.Send(to, lane, add)
}

// What is under way is bounded by the window, and whoever was refused hears when there is room: also if the lane to the
// one in the middle, or the next one, is narrower than that.
func TestDetourIsFull(t *testing.T) {
	for _, bytes := range []int{0, 100 << 10} {
		t.Run(fmt.Sprint(bytes), func(t *testing.T) {
			w := newTown(t, 4, 1, 2, 3)
			w.lanes = [peer.Lanes]int{bytes, bytes, bytes}
			w.startAll()
			w.pass(2 * time.Second)
			w.apart(1, 2, true, true)
			w.pass(4 * time.Second)
			w.net.Hold(3, 2, true) // what is for 2 lies in the middle
			a, b := w.nodes[1], w.nodes[2]
			for lane := range peer.Lane(peer.Lanes) {
				sent := 0
				for a.say(2, lane, 1000) {
					sent++
					w.net.Settle(1 << 20)
				}
				w.want("bounded", sent > 90 && sent <= window/1000)
				w.want("no room", a.Room(2, lane) == 0)
			}
			w.net.Hold(3, 2, false)
			w.pass(400 * time.Millisecond)
			for lane := range peer.Lane(peer.Lanes) {
				w.want("all has come", b.got[1][lane] == a.sent[2][lane])
				w.want("there is room", !a.refuse[2][lane] && a.Room(2, lane) > 0)
			}
			w.want("the same detour", a.ups[2] == 2)
			w.whole()
		})
	}
}

// A message that is lost in the middle, whatever the reason, ends the detour: the rooms never see what comes after it.
func TestDetourWithAMessageMissing(t *testing.T) {
	w := newTown(t, 5, 1, 2, 3)
	w.lanes = [peer.Lanes]int{50 << 10, 50 << 10, 50 << 10}
	w.startAll()
	w.pass(2 * time.Second)
	w.apart(1, 2, true, true)
	w.pass(4 * time.Second)
	w.net.Hold(3, 2, true)
	for range 20 {
		w.want("room", w.nodes[1].say(2, peer.Data, 10_000))
		w.net.Settle(1 << 20)
	}
	w.pass(10 * time.Millisecond)
	w.want("messages wait in the middle", len(w.nodes[3].passing) == 1)
	w.nodes[3].mu.Lock()
	w.nodes[3].forget(1, 2)
	w.nodes[3].mu.Unlock()
	w.net.Hold(3, 2, false)
	w.pass(10 * time.Millisecond)
	w.want("room again", w.nodes[1].say(2, peer.Data, 10))
	w.pass(10 * time.Millisecond)
	w.want("the detour has ended", w.nodes[1].ups[2] == 2 && !w.nodes[1].up[2] && !w.nodes[2].up[1])
	w.pass(5 * time.Second)
	w.whole()
}

// Whatever happens to links and nodes, the rules of peer.Handler hold (the town checks them all along), and in the end all are up
// for each other again.
func TestDetoursAtRandom(t *testing.T) {
	with := 0
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 1))
		ids := []peer.NodeID{1, 2, 3, 4, 5}[:3+rng.IntN(3)]
		w := newTown(t, seed, ids...)
		if rng.IntN(2) == 0 {
			w.lanes = [peer.Lanes]int{50 << 10, 50 << 10, 50 << 10}
		}
		w.startAll()
		opened := 0
		for range 200 {
			a, b := ids[rng.IntN(len(ids))], ids[rng.IntN(len(ids))]
			switch rng.IntN(13) {
			case 0:
				if a != b {
					w.apart(a, b, rng.IntN(2) == 0, true)
				}
			case 1:
				if a != b {
					w.apart(a, b, true, false)
				}
			case 2:
				w.net.Heal()
			case 3:
				if a != b {
					w.net.Break(a, b)
				}
			case 4:
				if rng.IntN(3) == 0 && w.nodes[a] != nil {
					w.crash(a)
				}
			case 5:
				if w.nodes[a] == nil {
					w.start(a)
				}
			case 6:
				if n := w.nodes[a]; n != nil && rng.IntN(4) == 0 {
					w.net.Pause(a, true)
					w.pass(time.Duration(rng.IntN(1500)) * time.Millisecond)
					w.net.Pause(a, false)
				}
			case 7:
				if a != b {
					w.net.Narrow(a, b, rng.IntN(3)*100<<10)
				}
			case 8:
				w.pass(time.Duration(rng.IntN(3000)) * time.Millisecond)
			default:
				for range rng.IntN(50) {
					if n := w.nodes[a]; n != nil && n.up[b] {
						n.say(b, peer.Lane(rng.IntN(peer.Lanes)), rng.IntN(20_000))
					}
				}
				w.pass(time.Duration(rng.IntN(300)) * time.Millisecond)
			}
			for _, n := range w.nodes {
				opened += n.detours()
			}
		}
		w.net.Heal()
		for _, a := range ids {
			for _, b := range ids {
				w.net.Narrow(a, b, 0)
			}
		}
		for _, id := range ids {
			if w.nodes[id] == nil {
				w.start(id)
			}
		}
		w.pass(10 * time.Second)
		w.whole()
		for _, id := range slices.Sorted(maps.Keys(w.nodes)) {
			w.want("no detour is left", w.nodes[id].detours() == 0 && len(w.nodes[id].passing) == 0)
		}
		if opened > 0 {
			with++
		}
	}
	if with < 100 {
		t.Errorf("detours with %d of 150 seeds only", with)
	}
}

func FuzzFrame(f *testing.F) {
	for _, x := range []frame{
		{kind: kindOpen, from: 1, to: 2, id: 3, incarnation: 4, info: []byte("info")},
		{kind: kindData, from: 1, to: 2, id: 1 << 40, seq: 900, msg: []byte("message")},
		{kind: kindAck, from: 1, to: 2, id: 3, taken: [peer.Lanes]uint64{1, 200, 1 << 50}},
		{kind: kindEnd, from: 1, to: 2, id: 3},
	} {
		f.Add(x.append(nil))
	}
	f.Add(appendHeard(nil, []heard{{1, true}, {1 << 60, false}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if x, err := parse(b); err == nil {
			again, err := parse(x.append(nil))
			if err != nil || fmt.Sprint(again) != fmt.Sprint(x) {
				t.Fatalf("%+v became %+v, %v", x, again, err)
			}
		}
		if list, _, known := parseHeard(b); known {
			if again, _, _ := parseHeard(appendHeard(nil, list)); !slices.Equal(again, list) {
				t.Fatalf("%v changes", list)
			}
		}
	})
}

// What the rooms say in a heartbeat comes to the rooms of the other node; to a build that does not look for it, it does no harm. R497
func TestRoomsSpeakInHeartbeats(t *testing.T) {
	w := newTown(t, 1, 1, 2)
	w.startAll()
	w.nodes[1].o.Beat = func(dst []byte) []byte { return append(dst, "news"...) }
	w.pass(time.Second)
	if got := string(w.nodes[2].said[1]); got != "news" {
		t.Errorf("node 2 was told %q", got)
	}
	if got, told := w.nodes[1].said[2]; !told || len(got) != 0 {
		t.Errorf("node 1 was told %q", got)
	}
	list, rest, known := parseHeard(append(appendHeard(nil, []heard{{3, true}}), 1, 2, 3))
	if !known || len(list) != 1 || len(rest) != 3 {
		t.Errorf("%v, %v, %v", list, rest, known)
	}
}
