package peer

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

func TestWhoGreetsWithoutEndIsNotAlone(t *testing.T) {
	b := newBoard()
	x := startTCP(t, b, 1, nil)
	var idle []net.Conn
	knock := func() {
		conn, err := net.Dial("tcp", x.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		idle = append(idle, conn)
	}
	for range maxGreetings {
		knock()
	}
	knock()
	x.awaitLog(t, "too many greet at once")
	if _, err := idle[maxGreetings].Read(make([]byte, 1)); err == nil {
		t.Error("the one too many was told something")
	}
	// When the others are gone there is room again.
	for _, conn := range idle {
		conn.Close()
	}
	y := startTCP(t, b, 2, nil)
	for end := time.Now().Add(patience); ; {
		if _, err := y.Probe(context.Background(), x.addr); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the place of those that are gone stays taken")
		}
	}
}

// busy is a handler whose calls wait to be let go.
type busy struct {
	*hears
	began chan struct{}
	let   chan struct{}
}

func (h busy) Call(Hello, []byte) []byte {
	h.began <- struct{}{}
	<-h.let
	return []byte("done")
}

func TestCallsAreBounded(t *testing.T) {
	b := newBoard()
	h := busy{newHears(t, b, "busy"), make(chan struct{}), make(chan struct{})}
	x := startTCP(t, b, 1, func(o *Options) { o.Handler = h })
	y := startTCP(t, b, 2, nil)
	answers := make(chan error)
	for range maxCalls {
		go func() {
			answer, err := y.Call(context.Background(), x.addr, nil)
			if err == nil && string(answer) != "done" {
				err = errors.New("another answer")
			}
			answers <- err
		}()
		<-h.began
	}
	if _, err := y.Call(context.Background(), x.addr, nil); !errors.Is(err, ErrBusy) {
		t.Errorf("one call too many: %v", err)
	}
	close(h.let)
	for range maxCalls {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}

func TestAMessageTooLongEndsTheLink(t *testing.T) {
	b := newBoard()
	x := startTCP(t, b, 1, func(o *Options) { o.MaxMessage = 100 })
	y := startTCP(t, b, 2, nil)
	connect(t, x, y)
	if !y.Send(1, Bulk, numbered(0, 101)) {
		t.Fatal("no room")
	}
	if why := x.awaitDown(t, 1, y); !errors.Is(why, ErrGarbage) {
		t.Errorf("why: %v", why)
	}
	y.awaitDown(t, 1, x)
}

// What the links say among themselves in a later version does no harm.
func TestAnOwnFrameThatIsNotKnownIsLeftAlone(t *testing.T) {
	b := newBoard()
	x, y := startTCP(t, b, 1, nil), startTCP(t, b, 2, nil)
	connect(t, x, y)
	l := (*x.byID.Load())[2].up.Load().out[Control]
	l.mu.Lock()
	l.pending = appendOwn(appendOwn(l.pending, 77, []byte("later")), 78, nil)
	l.unlockAndWake()
	x.Send(2, Control, numbered(0, 8))
	b.await(t, "the message behind it", func() bool { return len(y.got(x, Control)) == 1 })
}
