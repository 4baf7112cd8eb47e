package peer

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync"
)

// link is one try at six connections: a lane each way for each purpose. It
// stands when all are there, and breaks as a whole, once.
//
// Its target's mu guards everything but the channels and the lanes.
type link struct {
	t *target

	incarnation uint64 // of the other side; 0 until its first connection
	hello       Hello
	out         [Lanes]*lane    // written to the connections we dialled
	dialled     [Lanes]net.Conn // nil: not there yet
	accepted    [Lanes]net.Conn
	count       int
	parted      bool // the other side said goodbye

	standing chan struct{} // closed when all six are there
	released chan struct{} // closed when Up has returned: messages may be handed on
	broken   chan struct{}
	why      error

	work sync.WaitGroup // goroutines that may call the handler or use a connection
}

func newLink(t *target) *link {
	k := &link{t: t, standing: make(chan struct{}), released: make(chan struct{}), broken: make(chan struct{})}
	for i := range k.out {
		k.out[i] = newLane(t.o.LaneBytes[i], t.o.MaxMessage, &t.sent[i])
	}
	return k
}

func (k *link) isBroken() bool {
	select {
	case <-k.broken:
		return true
	default:
		return false
	}
}

// add takes a connection whose greeting is over. The target's mu is held.
func (k *link) add(conn net.Conn, l Lane, dialled bool, h Hello) {
	if k.count == 0 {
		k.incarnation, k.hello = h.Incarnation, h
	}
	k.count++
	if dialled {
		k.dialled[l] = conn
		k.work.Add(2)
		go k.write(l, conn)
		go k.watch(l, conn)
	} else {
		k.accepted[l] = conn
		k.work.Add(1)
		go k.read(l, conn)
	}
	if k.count == 2*Lanes {
		close(k.standing)
	}
}

// fail breaks the link, unless it is broken.
func (k *link) fail(why error) {
	k.t.mu.Lock()
	defer k.t.mu.Unlock()
	k.failLocked(why)
}

func (k *link) failLocked(why error) {
	if k.isBroken() {
		return
	}
	switch {
	case k.t.parting != nil:
		why = k.t.parting
	case k.parted:
		why = ErrGoodbye
	}
	k.why = why
	close(k.broken)
	for l := range k.out {
		k.out[l].close()
		for _, conn := range []net.Conn{k.dialled[l], k.accepted[l]} {
			if conn != nil {
				hangUp(conn)
			}
		}
	}
}

// hangUp closes a connection without a word of TLS, which might block.
func hangUp(conn net.Conn) {
	for {
		switch c := conn.(type) {
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		case *steady:
			conn = c.Conn
		default:
			conn.Close()
			return
		}
	}
}

// write sends what waits on a lane.
func (k *link) write(l Lane, conn net.Conn) {
	defer k.work.Done()
	err := k.out[l].run(conn, func() {
		select {
		case <-k.released: // Up has returned
			k.t.o.Handler.Writable(k.hello.Node, l)
		case <-k.broken:
		}
	})
	if err != nil {
		k.fail(fmt.Errorf("the %s connection to it ended: %w", l, err))
	}
}

// watch notices that the other side closes a connection we only write to.
func (k *link) watch(l Lane, conn net.Conn) {
	defer k.work.Done()
	var one [1]byte
	n, err := conn.Read(one[:])
	if n > 0 {
		err = ErrGarbage
	}
	k.fail(fmt.Errorf("the %s connection to it ended: %w", l, err))
}

// read hands on what comes on a lane, once the link is up.
func (k *link) read(l Lane, conn net.Conn) {
	defer k.work.Done()
	if err := k.receive(l, newFrames(conn, k.t.o.MaxMessage)); err != nil {
		k.fail(fmt.Errorf("the %s connection from it ended: %w", l, err))
	}
}

func (k *link) receive(l Lane, f *frames) error {
	if err := f.fill(); err != nil {
		return err
	}
	select {
	case <-k.released:
	case <-k.broken:
		return nil
	}
	handler, from := k.t.o.Handler, k.hello.Node
	var messages, bytes uint64 // not counted yet
	defer func() { k.t.received[l].add(messages, bytes) }()
	for {
		payload, own, ok, err := f.next()
		switch {
		case err != nil:
			return err
		case !ok:
			k.t.received[l].add(messages, bytes)
			messages, bytes = 0, 0
			if err := f.fill(); err != nil {
				return err
			}
		case !own:
			messages++
			bytes += uint64(frameHead + len(payload))
			handler.Message(from, l, payload)
		case l == Control && len(payload) > 0 && payload[0] == ownBeat:
			k.t.heard()
			handler.Beat(from, payload[1:])
		case l == Control && len(payload) == 1+pingSize && payload[0] == ownPing:
			k.out[Control].putEcho(payload[1:])
		case l == Control && len(payload) == 1+pingSize && payload[0] == ownEcho:
			k.t.echoed(int64(binary.LittleEndian.Uint64(payload[1:])))
		case l == Control && len(payload) > 0 && payload[0] == ownGoodbye:
			k.t.mu.Lock()
			k.parted = true
			k.t.mu.Unlock()
			return ErrGoodbye
		}
	}
}
