package peer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
)

// Two nodes that must not talk to each other: both say why, and no link comes up.
func TestNodesThatDoNotFit(t *testing.T) {
	secret := func(s string) func(*Options) { return func(o *Options) { o.Secret = []byte(s) } }
	levels := func(least, most, cluster uint16) func(*Options) {
		return func(o *Options) { o.Levels = func() Levels { return Levels{least, most, cluster} } }
	}
	for _, c := range []struct {
		name string
		x, y func(*Options)
		id   NodeID // of y
		why  error
		says string
	}{
		{"another secret", secret("a long secret"), secret("another one"), 2, ErrSecret, ""},
		{"a secret on one side", secret("a long secret"), nil, 2, ErrSecret, "has none"},
		{"another cluster", func(o *Options) { o.Cluster = ClusterID{1} }, func(o *Options) { o.Cluster = ClusterID{2} }, 2, ErrCluster, "it is in"},
		{"later versions only", nil, func(o *Options) { o.least, o.most = 2, 9 }, 2, ErrVersion, "2 to 9"},
		{"an older version", levels(2, 3, 3), levels(1, 2, 0), 2, ErrLevel, "level 3, the other node knows 1 to 2: update it"},
		{"a newer version", levels(1, 1, 0), levels(2, 3, 2), 2, ErrLevel, "level 2, this node knows 1 to 1: update it"},
		{"a version that says nothing", levels(2, 3, 2), nil, 2, ErrLevel, "the other node knows 1 to 1"},
		{"a much newer version", levels(1, 2, 1), levels(2, 3, 0), 2, ErrLevel, "first run a version on all nodes that knows both"},
		{"a copied folder", nil, nil, 1, ErrSameNode, "data folder"},
		{"another node at the address", nil, nil, 2, ErrOtherNode, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBoard()
			x, y := startTCP(t, b, 1, c.x), startTCP(t, b, c.id, c.y)
			expected := Target{ID: c.id, Addr: y.addr}
			switch c.why {
			case ErrSameNode:
				expected.ID = 0
			case ErrOtherNode:
				expected.ID = 7
			}
			x.SetPeers([]Target{expected})
			y.SetPeers([]Target{{Addr: x.addr}})
			x.awaitLog(t, "no link to a node yet", c.why.Error(), c.says)
			y.awaitLog(t, "was refused", c.why.Error())
			if c.id == 2 && c.why != ErrOtherNode {
				y.awaitLog(t, "no link to a node yet", c.why.Error())
				x.awaitLog(t, "was refused", c.why.Error(), c.says)
			}
			b.holds(func() bool {
				if len(x.hears.said)+len(y.hears.said) > 0 {
					t.Errorf("something came of it: %q %q", x.hears.said, y.hears.said)
				}
				return true
			})
			_, err := x.Call(context.Background(), y.addr, nil)
			if c.why != ErrOtherNode && !errors.Is(err, c.why) {
				t.Errorf("a call: %v", err)
			}
		})
	}
}

func TestASharedSecretIsEnough(t *testing.T) {
	b := newBoard()
	with := func(o *Options) { o.Secret = []byte("a long secret") }
	x, y := startTCP(t, b, 1, with), startTCP(t, b, 2, with)
	connect(t, x, y)
	if !x.Send(2, Data, numbered(0, 100)) {
		t.Fatal("no link")
	}
	b.await(t, "the message", func() bool { return len(y.got(x, Data)) == 1 })
	if answer, err := x.Call(context.Background(), y.addr, []byte("hello")); err != nil || len(answer) == 0 {
		t.Errorf("a call: %q, %v", answer, err)
	}
}

// Before it has proved itself nobody learns who the node is.
func TestStrangersLearnNothing(t *testing.T) {
	b := newBoard()
	x := startTCP(t, b, 1, func(o *Options) { o.Secret = []byte("a long secret"); o.Name = "castle" })
	conn, err := net.Dial("tcp", x.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	hello := appendGreeting(nil, &greeting{Hello: Hello{Least: 1, Most: 1, Node: 5}, purpose: purposeProbe, secret: true})
	conn.Write(hello)
	conn.Write(make([]byte, proofSize))
	told, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	if len(told) != challengeSize+2 || bytes.Contains(told, []byte("castle")) {
		t.Errorf("told: %q", told)
	}
	x.awaitLog(t, "was refused", ErrSecret.Error(), "node=5")
}

// Whoever only sends back what it is sent proves nothing, in either role.
func TestAnEchoProvesNothing(t *testing.T) {
	mine := greeter{secret: []byte("a long secret"), self: func() Hello { return Hello{Least: 1, Most: 1, Node: 1, Instance: 1} }}
	near, far := net.Pipe()
	go func() {
		io.Copy(far, far)
		far.Close()
	}()
	if h, err := mine.dial(near, purpose(Control), 0); err == nil {
		t.Errorf("an echo is %+v", h)
	}
	near.Close()

	// The one in the middle opens a greeting with the node it was dialled by and
	// hands everything on; the node refuses itself, and its proof in one role does
	// not count in the other.
	hello, challenge := []byte("hello"), []byte("challenge")
	if bytes.Equal(prove(mine.secret, roleDials, hello, challenge), prove(mine.secret, roleAccepts, hello, challenge)) {
		t.Error("both roles prove the same")
	}
	if bytes.Equal(prove(mine.secret, roleDials, []byte("ab"), []byte("c")), prove(mine.secret, roleDials, []byte("a"), []byte("bc"))) {
		t.Error("where one part ends and the next begins is not proved")
	}
}

// pipe runs a greeting between two greeters and returns what both say.
func pipe(x, y greeter, p purpose, to NodeID) (dialled, accepted error) {
	near, far := net.Pipe()
	done := make(chan error)
	go func() {
		_, err := y.accept(far, func(*greeting) error { return nil })
		far.Close()
		done <- err
	}()
	_, dialled = x.dial(near, p, to)
	near.Close()
	return dialled, <-done
}

func TestGreetings(t *testing.T) {
	node := func(id NodeID, instance uint64, change func(*Hello)) greeter {
		return greeter{secret: []byte("a long secret"), self: func() Hello {
			h := Hello{Least: 1, Most: 3, Node: id, Instance: instance, Name: "n", Addr: "a", Info: []byte("i")}
			if change != nil {
				change(&h)
			}
			return h
		}}
	}
	cluster := func(c byte) func(*Hello) { return func(h *Hello) { h.Cluster = ClusterID{c} } }
	for _, c := range []struct {
		name string
		x, y greeter
		p    purpose
		to   NodeID
		why  error
	}{
		{"well met", node(1, 1, nil), node(2, 2, nil), purpose(Data), 2, nil},
		{"anybody", node(1, 1, nil), node(2, 2, nil), purpose(Data), 0, nil},
		{"somebody else", node(1, 1, nil), node(2, 2, nil), purpose(Data), 3, ErrOtherNode},
		{"oneself", node(1, 1, nil), node(1, 1, nil), purposeProbe, 0, ErrSelf},
		{"one's double", node(1, 1, nil), node(1, 2, nil), purposeProbe, 0, ErrSameNode},
		{"not in a cluster", node(1, 1, cluster(1)), node(2, 2, nil), purpose(Data), 2, nil},
		{"the same cluster", node(1, 1, cluster(1)), node(2, 2, cluster(1)), purposeCall, 2, nil},
		{"another cluster", node(1, 1, cluster(1)), node(2, 2, cluster(2)), purposeCall, 2, ErrCluster},
		{"who is there", node(1, 1, cluster(1)), node(2, 2, cluster(2)), purposeProbe, 0, nil},
		{"versions that meet", node(1, 1, nil), node(2, 2, func(h *Hello) { h.Least, h.Most = 3, 7 }), purpose(Data), 2, nil},
		{"a version too late", node(1, 1, nil), node(2, 2, func(h *Hello) { h.Least, h.Most = 4, 7 }), purpose(Data), 2, ErrVersion},
		{"a version too early", node(1, 1, func(h *Hello) { h.Least = 2 }), node(2, 2, func(h *Hello) { h.Least, h.Most = 1, 1 }), purpose(Data), 2, ErrVersion},
	} {
		dialled, accepted := pipe(c.x, c.y, c.p, c.to)
		if !errors.Is(dialled, c.why) || !errors.Is(accepted, c.why) {
			t.Errorf("%s: %v; %v; want %v", c.name, dialled, accepted, c.why)
		}
	}
}

// What is not a node is told apart in the log.
func TestOthersKnockAtTheDoor(t *testing.T) {
	for _, c := range []struct{ sends, says string }{
		{"AMQP\x00\x00\x09\x01 and more than that", "clients have another port"},
		{"GET / HTTP/1.1\r\n\r\n", "HTTP"},
		{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 0123456789", "TLS"},
		{"something else entirely", "something else"[:8]},
		{"hfpeer", "closed during the greeting"},
		{magic + "\x01\x00\x01\x00\xff\xff\xff\x7f", "a hello of"},
	} {
		b := newBoard()
		x := startTCP(t, b, 1, nil)
		conn, err := net.Dial("tcp", x.addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.Write([]byte(c.sends))
		conn.(*net.TCPConn).CloseWrite()
		x.awaitLog(t, "was refused", c.says)
		conn.Close()
	}
}
