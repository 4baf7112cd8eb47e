package perf

import (
	"encoding/binary"
	"errors"
	"sync"

	"holdfast/internal/wire"
)

// window holds what one producer has sent and the broker has not answered. The
// producer calls take, the reader of its connection everything else.
type window struct {
	limit int // most unconfirmed messages; 0 = the producer does not ask for confirms

	mu        sync.Mutex
	room      sync.Cond
	sent      []int64 // send time by tag, 0 = answered; a power of two long
	low, next uint64  // lowest unanswered tag, tag of the next publish
	inflight  int
	confirmed uint64
	nacked    uint64
	returned  uint64
	blocked   bool // the broker has said connection.blocked
	latency   Histogram
	err       error // why nothing more can be sent
}

var errStopped = errors.New("stopped")

func newWindow(limit int) *window {
	size := 1
	for size < 4*limit {
		size *= 2
	}
	w := &window{limit: limit, low: 1, next: 1, sent: make([]int64, size)}
	w.room.L = &w.mu
	return w
}

// take waits until at least one of n publishes may be sent, counts as many of
// them as may be as sent now, and says how many and when that is.
func (w *window) take(n int) (int, int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.limit == 0 {
		return n, now(), w.err
	}
	for w.err == nil && (w.inflight >= w.limit || w.next-w.low >= uint64(len(w.sent))) {
		w.room.Wait()
	}
	if w.err != nil {
		return 0, 0, w.err
	}
	n = min(n, w.limit-w.inflight, len(w.sent)-int(w.next-w.low))
	at := now()
	for range n {
		w.sent[w.next&uint64(len(w.sent)-1)] = at
		w.next++
	}
	w.inflight += n
	return n, at, nil
}

// end makes take fail from now on.
func (w *window) end(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.room.Broadcast()
	w.mu.Unlock()
}

// answer settles the tags that a basic.ack or basic.nack names.
func (w *window) answer(tag uint64, multiple, ack bool, at int64) {
	if tag >= w.next || tag < w.low {
		return
	}
	first := tag
	if multiple {
		first = w.low
	}
	var n uint64
	for ; first <= tag; first++ {
		p := &w.sent[first&uint64(len(w.sent)-1)]
		if *p == 0 {
			continue
		}
		w.latency.Add(at - *p)
		*p = 0
		n++
	}
	w.inflight -= int(n)
	if ack {
		w.confirmed += n
	} else {
		w.nacked += n
	}
	for w.low < w.next && w.sent[w.low&uint64(len(w.sent)-1)] == 0 {
		w.low++
	}
}

// read handles what a producer's connection receives until it ends; nil means
// that the end was asked for.
func (w *window) read(c *conn) error {
	for {
		if err := c.fill(); err != nil {
			return err
		}
		done, err := w.buffered(c, now())
		if done || err != nil {
			return err
		}
	}
}

// buffered handles the whole frames of the buffer.
func (w *window) buffered(c *conn, at int64) (done bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.room.Signal()
	for {
		f, ok, err := c.next()
		if err != nil || !ok {
			return false, err
		}
		if f.Type != wire.FrameMethod {
			continue
		}
		id, args, _ := wire.SplitMethod(f.Payload)
		switch id {
		case wire.IDBasicAck, wire.IDBasicNack:
			if len(args) >= 9 {
				w.answer(binary.BigEndian.Uint64(args), args[8]&1 != 0, id == wire.IDBasicAck, at)
			}
		case wire.IDBasicReturn:
			w.returned++
		case wire.IDConnectionBlocked:
			w.blocked = true
		case wire.IDConnectionUnblocked:
			w.blocked = false
		case wire.IDConnectionCloseOk:
			return true, nil
		default:
			if err := c.closed(f); err != nil {
				return false, err
			}
		}
	}
}

// counts are what a window has seen so far.
type counts struct {
	sent, confirmed, nacked, returned, received uint64
	blocked                                     int // connections
}

func (n *counts) add(o counts) {
	n.sent += o.sent
	n.confirmed += o.confirmed
	n.nacked += o.nacked
	n.returned += o.returned
	n.received += o.received
	n.blocked += o.blocked
}

// collect gives the counts, and moves the latencies seen since the last call to
// the histogram.
func (w *window) collect(latency *Histogram) counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	latency.Merge(&w.latency)
	w.latency.Reset()
	n := counts{confirmed: w.confirmed, nacked: w.nacked, returned: w.returned}
	if w.blocked {
		n.blocked = 1
	}
	return n
}

// unanswered is how many publishes wait for a confirm.
func (w *window) unanswered() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inflight
}
