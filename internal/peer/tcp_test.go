package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"
)

func TestThreeNodesCarryMessagesInOrder(t *testing.T) {
	b := newBoard()
	nodes := []*tcpNode{startTCP(t, b, 1, nil), startTCP(t, b, 2, nil), startTCP(t, b, 3, nil)}
	connect(t, nodes...)
	const each = 500
	for _, from := range nodes {
		for _, to := range nodes {
			if to == from {
				continue
			}
			go func() {
				for i := range each {
					for l := range Lane(Lanes) {
						size := 8 + i%100
						if i%100 == 99 {
							size = 300_000
						}
						if !from.Send(to.o.Node, l, numbered(uint64(i), size)) {
							t.Errorf("no room on %s", l) // it has room for all of them
						}
					}
				}
			}()
		}
	}
	for _, at := range nodes {
		for _, from := range nodes {
			if at == from {
				continue
			}
			for l := range Lane(Lanes) {
				b.await(t, "all messages", func() bool { return len(at.got(from, l)) == each })
				b.holds(func() bool {
					if !slices.Equal(at.got(from, l), upTo(each)) {
						t.Errorf("%s from %s on %s: out of order", at.hears.name, from.hears.name, l)
					}
					return true
				})
			}
		}
	}
	b.holds(func() bool {
		for _, at := range nodes {
			for _, from := range nodes {
				if l := at.hears.last(from.o.Node); at != from && (l.ended || l.incarnation != 1 || l.info != fmt.Sprint("info of ", from.o.Node)) {
					t.Errorf("%s knows of %s: %+v", at.hears.name, from.hears.name, l)
				}
			}
		}
		return true
	})
	for id, up := range nodes[0].Peers() {
		if !up {
			t.Errorf("the link to %d is not up", id)
		}
	}
}

func TestANodeIsFoundByItsAddressAlone(t *testing.T) {
	b := newBoard()
	x, y := startTCP(t, b, 1, nil), startTCP(t, b, 2, nil)
	list := []Target{{Addr: x.addr}, {Addr: y.addr}}
	x.SetPeers(list) // with our own address among them
	y.SetPeers(list)
	x.awaitUp(t, 1, y)
	y.awaitUp(t, 1, x)
	// The same said with ids later changes nothing.
	x.SetPeers([]Target{x.target(), y.target()})
	if !x.Send(2, Control, numbered(0, 8)) {
		t.Fatal("the link is not up any more")
	}
	b.await(t, "the message", func() bool { return len(y.got(x, Control)) == 1 })
}

func TestSendRefusesWithoutALink(t *testing.T) {
	b := newBoard()
	x, y := startTCP(t, b, 1, nil), startTCP(t, b, 2, nil)
	never := func(dst []byte) []byte { t.Error("asked to write"); return dst }
	if x.Send(2, Data, never) || x.Room(2, Data) != 0 {
		t.Fatal("sent to a node nobody knows")
	}
	x.SetPeers([]Target{y.target()}) // y does not want x
	if x.Send(2, Data, never) || x.Room(2, Data) != 0 {
		t.Fatal("sent without a link")
	}
	x.awaitLog(t, ErrStranger.Error())
	y.awaitLog(t, ErrStranger.Error())
}

func TestControlDoesNotWaitForBodies(t *testing.T) {
	b := newBoard()
	x, y := startTCP(t, b, 1, nil), startTCP(t, b, 2, nil)
	p := startProxy(t, y.addr)
	x.SetPeers([]Target{{ID: 2, Addr: p.addr}})
	y.SetPeers([]Target{x.target()})
	x.awaitUp(t, 1, y)
	y.awaitUp(t, 1, x)
	p.hold(purpose(Data), true)
	for i := uint64(0); x.Send(2, Data, numbered(i, 64<<10)); i++ {
	}
	if !x.Send(2, Control, numbered(0, 100)) || !x.Send(2, Bulk, numbered(0, 100)) {
		t.Fatal("the other lanes are full, too")
	}
	b.await(t, "the messages of the other lanes", func() bool {
		return len(y.got(x, Control)) == 1 && len(y.got(x, Bulk)) == 1
	})
	p.hold(purpose(Data), false)
	b.await(t, "bodies", func() bool { return len(y.got(x, Data)) > 100 })
}

func TestALinkThatBreaksComesBack(t *testing.T) {
	b := newBoard()
	x, y := startTCP(t, b, 1, nil), startTCP(t, b, 2, nil)
	p := startProxy(t, y.addr)
	x.SetPeers([]Target{{ID: 2, Addr: p.addr}})
	y.SetPeers([]Target{x.target()})
	next := uint64(0)
	for range 5 {
		b.await(t, "a link", func() bool { return x.isUp(y) && y.isUp(x) })
		var at *life
		b.await(t, "a message on it", func() bool {
			for i := 0; i < 100 && x.Send(2, Data, numbered(next, 500)); i++ {
				next++
			}
			at = y.hears.last(1)
			return len(at.messages[Data]) > 0 || !x.isUp(y) || !y.isUp(x)
		})
		p.cut() // in the middle
		b.await(t, "the end of the link", func() bool { return at.ended })
	}
	b.await(t, "a link", func() bool { return x.isUp(y) && y.isUp(x) })
	b.holds(func() bool {
		for i, life := range y.lives(x) {
			for j, n := range life.messages[Data] {
				if n != life.messages[Data][0]+uint64(j) {
					t.Errorf("link %d: %d is where %d should be", i, n, life.messages[Data][0]+uint64(j))
				}
			}
		}
		return true
	})
}

func TestASilentLineBreaksTheLink(t *testing.T) {
	b := newBoard()
	x := startTCP(t, b, 1, func(o *Options) { o.Stall = 20 * time.Millisecond })
	y := startTCP(t, b, 2, nil)
	p := startProxy(t, y.addr)
	x.SetPeers([]Target{{ID: 2, Addr: p.addr}})
	y.SetPeers([]Target{x.target()})
	x.awaitUp(t, 1, y)
	p.hold(purpose(Bulk), true)
	for i := uint64(0); x.Send(2, Bulk, numbered(i, 64<<10)); i++ {
		// until there is no room, or the link has broken
	}
	x.awaitDown(t, 1, y)
}

func TestWhoSaysGoodbyeIsNotMourned(t *testing.T) {
	b := newBoard()
	x, y := startTCP(t, b, 1, nil), startTCP(t, b, 2, nil)
	connect(t, x, y)
	for i := range uint64(1000) {
		if !x.Send(2, Control, numbered(i, 100)) {
			t.Fatal("no room")
		}
	}
	x.Close()
	if why := y.awaitDown(t, 1, x); !errors.Is(why, ErrGoodbye) {
		t.Errorf("the other side heard: %v", why)
	}
	if why := x.awaitDown(t, 1, y); !errors.Is(why, ErrClosed) {
		t.Errorf("this side heard: %v", why)
	}
	b.holds(func() bool {
		if got := y.got(x, Control); !slices.Equal(got, upTo(1000)) {
			t.Errorf("of the control lane %d messages came", len(got))
		}
		return true
	})
	x.Close() // once more does no harm
}

func TestPeersComeAndGo(t *testing.T) {
	b := newBoard()
	x, y := startTCP(t, b, 1, nil), startTCP(t, b, 2, nil)
	connect(t, x, y)
	x.SetPeers(nil)
	if why := x.awaitDown(t, 1, y); !errors.Is(why, ErrRemoved) {
		t.Errorf("this side heard: %v", why)
	}
	y.awaitDown(t, 1, x)
	x.SetPeers([]Target{y.target()})
	x.SetPeers(nil)
	x.SetPeers([]Target{y.target()})
	x.awaitUp(t, 2, y)
	y.awaitUp(t, 2, x)
}

func TestANodeThatStartsAgain(t *testing.T) {
	b := newBoard()
	x := startTCP(t, b, 1, nil)
	y := startTCP(t, b, 2, nil)
	connect(t, x, y)
	y.Close()
	x.awaitDown(t, 1, y)
	again := startTCP(t, b, 2, func(o *Options) { o.Incarnation = 2 })
	again.SetPeers([]Target{x.target()})
	x.SetPeers([]Target{again.target()})
	x.awaitUp(t, 2, again)
	again.awaitUp(t, 1, x)
	b.holds(func() bool {
		if got := x.lives(y)[1].incarnation; got != 2 {
			t.Errorf("incarnation %d", got)
		}
		return true
	})
	again.Close()
	x.awaitDown(t, 2, again)
	// The earlier one again, from a backup or beside the later.
	old := startTCP(t, b, 2, nil)
	x.SetPeers([]Target{old.target()})
	old.SetPeers([]Target{x.target()})
	old.awaitLog(t, ErrEarlier.Error())
	x.awaitLog(t, ErrEarlier.Error())
}

func TestSuspectAndTrust(t *testing.T) {
	b := newBoard()
	x := startTCP(t, b, 1, nil)
	y := startTCP(t, b, 2, func(o *Options) { o.Beat = func(dst []byte) []byte { return append(dst, "well"...) } })
	connect(t, x, y)
	b.await(t, "the heartbeat of a new link", func() bool { return slices.Equal(x.hears.beats[2], []string{"well"}) })
	doubts := func() (d bool) {
		x.hears.holds(func() bool { d = x.hears.doubt[2]; return true })
		return d
	}
	for range 7 {
		x.steps(100 * time.Millisecond)
	}
	if doubts() {
		t.Fatal("suspect too early")
	}
	x.steps(100 * time.Millisecond)
	if !doubts() {
		t.Fatal("not suspect after four missed heartbeats")
	}
	y.steps(200 * time.Millisecond)
	b.await(t, "trust", func() bool { return !x.hears.doubt[2] })
	// A broken link changes nothing about the time.
	y.Close()
	x.awaitDown(t, 1, y)
	for range 8 {
		x.steps(100 * time.Millisecond)
	}
	if !doubts() {
		t.Fatal("a node that is gone is not suspect")
	}
}

// Whatever waits for an answer over a link is let go when the other side says nothing for long, as a process that
// stands still does: its system takes every byte.
func TestALinkToASilentNodeIsGivenUp(t *testing.T) {
	b := newBoard()
	x, y := startTCP(t, b, 1, nil), startTCP(t, b, 2, nil)
	connect(t, x, y)
	first := (*x.byID.Load())[2].up.Load()
	for range 99 {
		x.steps(100 * time.Millisecond)
	}
	if first.isBroken() {
		t.Fatal("given up too early")
	}
	for range 150 { // what came while time was passed on may have been heard late
		// A step breaks the link before it returns; that the link has ended is heard only later.
		if x.steps(100 * time.Millisecond); first.isBroken() {
			break
		}
	}
	x.awaitDown(t, 1, y)
	x.awaitUp(t, 2, y) // it is tried again, and gets its time
	second := (*x.byID.Load())[2].up.Load()
	for range 50 {
		x.steps(100 * time.Millisecond)
	}
	if second == nil || second.isBroken() {
		t.Error("the new link got no time to be heard")
	}
}

func TestProbeAndCall(t *testing.T) {
	b := newBoard()
	x := startTCP(t, b, 1, func(o *Options) { o.Cluster = ClusterID{1} })
	y := startTCP(t, b, 2, nil)
	other := startTCP(t, b, 3, func(o *Options) { o.Cluster = ClusterID{3} })
	ctx := context.Background()
	h, err := x.Probe(ctx, y.addr)
	if err != nil || h.Node != 2 || h.Name != "n2" || h.Addr != y.addr || string(h.Info) != "info of 2" || h.Cluster != (ClusterID{}) {
		t.Fatalf("%+v, %v", h, err)
	}
	if h, err := x.Probe(ctx, x.addr); !errors.Is(err, ErrSelf) || h.Node != 1 {
		t.Errorf("of itself: %+v, %v", h, err)
	}
	if h, err := x.Probe(ctx, other.addr); err != nil || h.Cluster != (ClusterID{3}) {
		t.Errorf("of another cluster: %+v, %v", h, err)
	}
	big := slices.Repeat([]byte("x"), 1<<20)
	for _, msg := range [][]byte{nil, []byte("may I join"), big} {
		answer, err := y.Call(ctx, x.addr, msg)
		if want := fmt.Sprintf("n1 heard %q from n2", msg); err != nil || string(answer) != want {
			t.Errorf("%.100s, %v", answer, err)
		}
	}
	if _, err := x.Call(ctx, other.addr, nil); !errors.Is(err, ErrCluster) {
		t.Errorf("a call to another cluster: %v", err)
	}
	if _, err := x.Call(ctx, x.addr, nil); !errors.Is(err, ErrSelf) {
		t.Errorf("a call to itself: %v", err)
	}
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	if _, err := x.Probe(ctx, gone.Addr().String()); err == nil {
		t.Error("nobody answered, and well")
	}
	// A call whose answer does not come ends with its context.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ended, end := context.WithCancel(ctx)
	go func() {
		if conn, err := silent.Accept(); err == nil {
			defer conn.Close()
			end()
			conn.Read(make([]byte, 1<<10))
			conn.Read(make([]byte, 1))
		}
	}()
	if _, err := x.Call(ended, silent.Addr().String(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was given up: %v", err)
	}
}

func TestANewClusterEndsLinksToOthers(t *testing.T) {
	b := newBoard()
	x := startTCP(t, b, 1, func(o *Options) { o.Cluster = ClusterID{1} })
	y := startTCP(t, b, 2, nil) // not in one yet
	connect(t, x, y)
	y.SetCluster(ClusterID{1})
	y.SetCluster(ClusterID{2})
	if why := y.awaitDown(t, 1, x); !errors.Is(why, ErrCluster) {
		t.Errorf("heard: %v", why)
	}
	y.awaitLog(t, ErrCluster.Error())
}
