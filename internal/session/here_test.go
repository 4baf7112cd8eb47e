package session

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"

	"holdfast/internal/broker"
	"holdfast/internal/queuehost"
	"holdfast/internal/wire"
)

// hooked is a socket that tells before something is written without waiting.
type hooked struct {
	syscall.RawConn
	before func()
}

func (h *hooked) Write(f func(uintptr) bool) error {
	if h.before != nil {
		h.before()
	}
	return h.RawConn.Write(f)
}

// hereRig is a writer that sleeps, over a real socket: whoever puts a little writes it.
type hereRig struct {
	t      *testing.T
	w      *writer
	out    *outbox
	ch     *channel
	hook   *hooked
	client net.Conn
	ended  chan struct{} // closed when the writer that goOn began has ended
	empty  func()        // lets a full socket take more; nil: it does
}

func newHereRig(t *testing.T) *hereRig {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	c := &conn{server: &Server{}, socket: server, frameMax: 131072, stop: make(chan struct{}), log: slog.New(slog.DiscardHandler)}
	c.out.wake = make(chan struct{}, 1)
	w := &writer{c: c, raw: newRawWriter(server)}
	r := &hereRig{t: t, w: w, out: &c.out, ch: &channel{conn: c, number: 1}, client: client, ended: make(chan struct{})}
	r.hook = &hooked{RawConn: w.raw.conn}
	w.raw.conn = r.hook
	c.out.here, c.out.taken = w.here, &w.b
	c.out.parked = true // as if run slept
	return r
}

// fill makes the socket full, and returns with what. It stays full until goOn: the kernel may find room for more by itself.
func (r *hereRig) fill() []byte {
	try := r.w.raw.try
	defer func() {
		r.empty = func() { r.w.raw.try = try }
		r.w.raw.try = func(uintptr) bool { return true } // nothing is written
	}()
	var all []byte
	piece := bytes.Repeat([]byte("full"), 16<<10)
	for {
		n, err := r.w.raw.write(piece)
		if err != nil {
			r.t.Fatal(err)
		}
		if n == 0 {
			return all
		}
		all = append(all, piece[:n]...)
	}
}

// goOn is the writer, which has been woken.
func (r *hereRig) goOn() {
	r.t.Helper()
	select {
	case <-r.out.wake:
	default:
		r.t.Fatal("the writer is not woken")
	}
	if r.empty != nil {
		r.empty()
	}
	go func() {
		r.w.run()
		r.w.c.socket.Close()
		close(r.ended)
	}()
}

// wantAll wants the client to get exactly this, and ends the connection.
func (r *hereRig) wantAll(want []byte) {
	r.t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(r.client, got)
	if err != nil {
		r.t.Fatalf("%d of %d bytes: %v", n, len(want), err)
	}
	r.out.end(nil)
	rest, err := io.ReadAll(r.client)
	if err != nil {
		r.t.Fatal(err)
	}
	got = append(got, rest...)
	if !bytes.Equal(got, want) {
		r.t.Fatalf("the client got %d bytes, not the %d that were put: %.100q", len(got), len(want), got[min(len(got), len(want))/2:])
	}
}

// What is little is written by whoever puts it, and nobody is woken.
func TestLittleIsWrittenWhereItIsPut(t *testing.T) {
	r := newHereRig(t)
	h := &holder{ch: r.ch, tag: []byte("c"), noAck: true}
	var want []byte
	for range 3 {
		r.out.method(r.ch, &wire.BasicQosOk{})
		want = wire.AppendMethod(want, 1, &wire.BasicQosOk{})
	}
	if !r.out.parked || len(r.out.wake) != 0 || r.w.lent != nil {
		t.Fatalf("the writer sleeps: %v, woken: %v, has a buffer: %v", r.out.parked, len(r.out.wake) != 0, r.w.lent != nil)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r.client, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%q, %v", got, err)
	}
	if n := r.w.c.sentBytes.Load(); n != uint64(len(want)) {
		t.Errorf("%d bytes count as sent", n)
	}
	if r.out.waiting != 0 {
		t.Errorf("%d bytes of answers wait", r.out.waiting)
	}
	h.window.Size = windowSize
	r.out.deliver(h, []broker.Delivery{{Message: build(1)}})
	if !r.out.parked || h.inTurn != 0 || len(r.w.sent) != 0 {
		t.Errorf("the consumer is not granted more in place of %d deliveries", h.inTurn)
	}
	if r.w.raw.p != nil {
		t.Error("who sleeps keeps what was written")
	}
	// A body in pieces or on the disk, many at once, and many bytes are for the writer itself.
	for name, ds := range map[string][]broker.Delivery{
		"a body in pieces": {{Message: build(1 << 20)}},
		"one to be read":   {{Load: &queuehost.Loader{}}},
		"many":             make([]broker.Delivery, littleItems+1),
		"large ones":       {{Message: build(littleBytes / 2)}, {Message: build(littleBytes / 2)}},
	} {
		for i := range ds {
			if ds[i].Message.Head == nil && ds[i].Load == nil {
				ds[i].Message = build(1)
			}
		}
		r.out.deliver(h, ds)
		if r.out.parked || len(r.out.wake) != 1 || len(r.out.batch.items) != len(ds) {
			t.Errorf("%s: the writer sleeps: %v, %d wait for it", name, r.out.parked, len(r.out.batch.items))
		}
		<-r.out.wake
		r.out.parked, r.out.batch.items = true, nil
	}
	r.out.encoded(itemRaw, nil, func(dst []byte) []byte { return append(dst, make([]byte, littleBytes+1)...) })
	if r.out.parked || len(r.out.wake) != 1 {
		t.Error("a large method is written by who put it")
	}
}

// A socket that is full, or becomes so, keeps nobody but the writer waiting, and no byte is lost.
func TestAFullSocketIsLeftToTheWriter(t *testing.T) {
	r := newHereRig(t)
	want := r.fill()
	r.out.method(r.ch, &wire.BasicQosOk{})
	r.out.method(r.ch, &wire.BasicRecoverOk{}) // behind it
	want = wire.AppendMethod(want, 1, &wire.BasicQosOk{})
	want = wire.AppendMethod(want, 1, &wire.BasicRecoverOk{})
	if r.out.parked || r.out.waiting == 0 {
		t.Fatalf("the writer sleeps: %v; %d bytes of answers wait", r.out.parked, r.out.waiting)
	}
	r.goOn()
	r.wantAll(want)
	<-r.ended
	if r.out.waiting != 0 {
		t.Errorf("%d bytes of answers wait at the end", r.out.waiting)
	}
	if n := r.w.c.sentBytes.Load(); n != uint64(len(want)-len(r.filler(want))) {
		t.Errorf("%d bytes count as sent", n)
	}
}

// filler is what fill wrote of all.
func (r *hereRig) filler(all []byte) []byte { return all[:bytes.LastIndex(all, []byte("full"))+4] }

// A socket that takes a part gets the rest from the writer.
func TestAPartIsWritten(t *testing.T) {
	r := newHereRig(t)
	try := r.w.raw.try
	r.w.raw.try = func(fd uintptr) bool {
		p := r.w.raw.p
		r.w.raw.p = p[:5]
		defer func() { r.w.raw.p = p }()
		return try(fd)
	}
	r.out.method(r.ch, &wire.BasicQosOk{})
	r.goOn()
	r.wantAll(wire.AppendMethod(nil, 1, &wire.BasicQosOk{}))
}

// Confirms of which there are many, with gaps, are as much as they are: whoever
// brings the last of them must not wait for the client either.
func TestManyConfirmsWaitForNobody(t *testing.T) {
	r := newHereRig(t)
	want := r.fill()
	c := &confirms{ch: r.ch, base: 1}
	r.ch.confirms = c
	const n = 2 * writeSize / 21 // of the size of an ack
	queues := make([]uint32, n+1)
	queues[0] = 1 // the first is not settled: the others are told one by one
	c.add(queues)
	for seq := uint64(2); seq <= n+1; seq++ {
		want = wire.AppendMethod(want, 1, &wire.BasicAck{DeliveryTag: seq})
	}
	r.goOn()
	r.wantAll(want)
}

// What is put while another writes is not forgotten when that one is done, be it
// a method, a confirm, or the end.
func TestWhatIsPutMeanwhileIsWritten(t *testing.T) {
	for name, put := range map[string]func(r *hereRig) []byte{
		"a method": func(r *hereRig) []byte {
			r.out.method(r.ch, &wire.BasicRecoverOk{})
			return wire.AppendMethod(nil, 1, &wire.BasicRecoverOk{})
		},
		"a confirm": func(r *hereRig) []byte {
			r.ch.confirms = &confirms{ch: r.ch, base: 1}
			r.ch.confirms.add([]uint32{0})
			return wire.AppendMethod(nil, 1, &wire.BasicAck{DeliveryTag: 1})
		},
		"the end": func(r *hereRig) []byte {
			r.out.close()
			return nil
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			r := newHereRig(t)
			var more []byte
			r.hook.before = func() {
				if r.hook.before = nil; r.out.parked {
					t.Error("the writer sleeps, and another writes")
				}
				more = put(r)
			}
			r.out.method(r.ch, &wire.BasicQosOk{})
			r.goOn()
			r.wantAll(append(wire.AppendMethod(nil, 1, &wire.BasicQosOk{}), more...))
		})
	}
}

// A socket that fails ends the connection, whoever notices.
func TestAFailedSocketIsTheWritersEnd(t *testing.T) {
	r := newHereRig(t)
	r.w.c.socket.Close()
	r.out.method(r.ch, &wire.BasicQosOk{})
	<-r.out.wake
	r.w.run()
	if !r.w.c.stopping() || !r.out.closed {
		t.Error("the connection goes on")
	}
}
