package perf

import (
	"sync/atomic"
	"time"
)

// tick is the shortest time between two wake-ups of a producer that keeps to a
// rate: what falls due meanwhile goes out together.
const tick = time.Millisecond

// producer sends on one connection. run belongs to one goroutine and the
// window's read to another.
type producer struct {
	conn   *conn
	ring   *ring
	window *window
	number int    // which of the run's producers this is
	limit  uint64 // messages to send, 0 = no limit
	rate   float64

	next   uint64 // number of the next message
	sent   atomic.Uint64
	late   atomic.Int64 // the most that a message went out after it was due
	halted atomic.Bool
	ended  chan struct{} // closed when the reader has ended
}

// halt makes run return soon.
func (p *producer) halt() {
	p.halted.Store(true)
	p.window.end(errStopped)
}

// run sends until halt, until the limit, or until the connection fails.
func (p *producer) run() error {
	err := p.paced()
	if p.halted.Load() {
		return nil
	}
	return err
}

// paced sends what is due, which without a rate is always everything.
//
// A message carries the time at which it is sent. Where that is more than two
// ticks after it was due, because the broker or the window held the producer
// back, it carries the time at which it was due: what users wait for counts,
// though it was not sent yet.
func (p *producer) paced() error {
	start := now()
	gap, pause := 0.0, int64(0)
	if p.rate > 0 {
		gap = 1e9 / p.rate
		pause = max(int64(tick), int64(gap))
	}
	for !p.halted.Load() {
		due := ^uint64(0)
		if gap > 0 {
			due = uint64(float64(now()-start)/gap) + 1
		}
		if p.limit > 0 {
			due = min(due, p.limit)
		}
		for p.next < due {
			n, at, err := p.window.take(int(min(uint64(p.ring.most()), due-p.next)))
			if err != nil {
				return err
			}
			for i := range n {
				stamp := at
				if gap > 0 {
					if planned := start + int64(float64(p.next)*gap); at-planned > 2*pause {
						stamp = planned
						p.late.Store(max(p.late.Load(), at-planned))
					}
				}
				p.ring.stamp(i, stamp, messageID(p.number, p.next))
				p.next++
			}
			if _, err := p.conn.nc.Write(p.ring.take(n)); err != nil {
				return err
			}
			p.sent.Add(uint64(n))
			if p.halted.Load() {
				return nil
			}
		}
		if p.limit > 0 && p.next >= p.limit {
			return nil
		}
		wake := max(start+int64(float64(p.next)*gap), start+((now()-start)/pause+1)*pause)
		time.Sleep(time.Duration(wake - now()))
	}
	return nil
}

// read runs the window's reader and remembers why it ended.
func (p *producer) read() {
	err := p.window.read(p.conn)
	if err == nil {
		err = errStopped
	}
	p.window.end(err)
	close(p.ended)
}

// close says goodbye and waits for the broker's answer, so that it has taken
// everything that was sent.
func (p *producer) close() {
	defer p.conn.nc.Close()
	_ = p.conn.nc.SetDeadline(time.Now().Add(callTimeout))
	if _, err := p.conn.nc.Write(goodbye); err != nil {
		return
	}
	<-p.ended
}
