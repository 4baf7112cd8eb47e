package perf

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/wire"
)

// delivery is what an observer sees of a message.
type delivery struct {
	id          uint64
	redelivered bool
	at          int64
}

// consumer receives on one connection, from one queue or more. run belongs to
// one goroutine.
type consumer struct {
	conn     *conn
	autoAck  bool
	ackEvery int     // acknowledge with multiple; 0 = each message by itself
	rate     float64 // most messages a second, 0 = no limit
	limit    uint64  // messages after which full is closed, 0 = none
	full     chan struct{}
	observe  func([]delivery) // sees the messages of each buffer; nil if nobody does

	mu       sync.Mutex // taken once per buffer
	latency  Histogram
	received atomic.Uint64
	first    atomic.Int64 // when the first message came
	halted   atomic.Bool

	tag         uint64 // of the message being read
	redelivered bool
	left        uint64 // bytes of its body still to come
	begun       bool   // its stamp was read, or it has none
	unacked     int    // received and not acknowledged, with ackEvery
	acks        []byte // to write after this buffer
	seen        []delivery
}

var errCancelled = errors.New("the broker cancelled a consumer")

// run receives until the connection ends.
func (k *consumer) run() error {
	start := now()
	for {
		if err := k.buffered(now()); err != nil {
			return k.end(err)
		}
		if k.observe != nil && len(k.seen) > 0 {
			k.observe(k.seen)
			k.seen = k.seen[:0]
		}
		if len(k.acks) > 0 {
			if _, err := k.conn.nc.Write(k.acks); err != nil {
				return k.end(err)
			}
			k.acks = k.acks[:0]
		}
		if k.rate > 0 {
			if ahead := start + int64(float64(k.received.Load())/k.rate*1e9) - now(); ahead > int64(tick) {
				time.Sleep(time.Duration(min(ahead, 1e9)))
			}
		}
		if err := k.conn.fill(); err != nil {
			return k.end(err)
		}
	}
}

// errGone is the end of a connection that the broker was asked to close.
var errGone = errors.New("closed as asked")

func (k *consumer) end(err error) error {
	if err == errGone || k.halted.Load() {
		return nil
	}
	return err
}

// buffered handles the whole frames of the buffer.
func (k *consumer) buffered(at int64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := uint64(0)
	defer func() { k.count(n, at) }()
	for {
		f, ok, err := k.conn.next()
		if err != nil || !ok {
			return err
		}
		whole := false
		switch f.Type {
		case wire.FrameBody:
			if !k.begun {
				k.stamped(f.Payload, at)
			}
			k.left -= min(k.left, uint64(len(f.Payload)))
			whole = k.left == 0
		case wire.FrameHeader:
			if len(f.Payload) < 12 {
				return errors.New("a content header is too short")
			}
			k.left = binary.BigEndian.Uint64(f.Payload[4:])
			k.begun = false
			whole = k.left == 0
		case wire.FrameMethod:
			if err := k.method(f); err != nil {
				return err
			}
		}
		if whole {
			n++
			k.settle()
		}
	}
}

func (k *consumer) method(f wire.Frame) error {
	id, args, _ := wire.SplitMethod(f.Payload)
	switch id {
	case wire.IDBasicDeliver:
		at := 1
		if len(args) > 0 {
			at += int(args[0])
		}
		if len(args) < at+9 {
			return errors.New("a basic.deliver is too short")
		}
		k.tag = binary.BigEndian.Uint64(args[at:])
		k.redelivered = args[at+8]&1 != 0
	case wire.IDBasicCancel:
		return errCancelled
	case wire.IDConnectionCloseOk:
		return errGone
	default:
		return k.conn.closed(f)
	}
	return nil
}

// stamped reads what the producer wrote into the body.
func (k *consumer) stamped(body []byte, at int64) {
	k.begun = true
	if len(body) < stampSize {
		return // a message of somebody else
	}
	k.latency.Add(at - int64(binary.BigEndian.Uint64(body)))
	if k.observe != nil {
		k.seen = append(k.seen, delivery{binary.BigEndian.Uint64(body[8:]), k.redelivered, at})
	}
}

// settle acknowledges a message that has come whole, if it is its turn.
func (k *consumer) settle() {
	switch {
	case k.autoAck:
	case k.ackEvery <= 1:
		k.acks = appendAck(k.acks, k.tag, false)
	default:
		if k.unacked++; k.unacked >= k.ackEvery {
			k.unacked = 0
			k.acks = appendAck(k.acks, k.tag, true)
		}
	}
}

func (k *consumer) count(n uint64, at int64) {
	if n == 0 {
		return
	}
	before := k.received.Load()
	if before == 0 {
		k.first.Store(at)
	}
	k.received.Store(before + n)
	if k.limit > 0 && before < k.limit && before+n >= k.limit {
		close(k.full)
	}
}

// collect moves the latencies seen since the last call to the histogram.
func (k *consumer) collect(latency *Histogram) counts {
	k.mu.Lock()
	defer k.mu.Unlock()
	latency.Merge(&k.latency)
	k.latency.Reset()
	return counts{received: k.received.Load()}
}

// halt ends run by closing the connection. Whatever was not acknowledged goes
// back to its queue.
func (k *consumer) halt() {
	k.halted.Store(true)
	k.conn.nc.Close()
}
