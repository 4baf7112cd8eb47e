package session

import (
	"sync"

	"holdfast/internal/amqperr"
	"holdfast/internal/broker"
	"holdfast/internal/wire"
)

// windowSize is how many deliveries are under way to one consumer at most before
// its client's socket has taken some of them.
const windowSize = 1024

// maxUnacked is how many deliveries without a limit of its own may be
// unacknowledged on a channel; then its consumers get no more until some are.
const maxUnacked = 1_000_000

// flow is what holds back the deliveries of a channel: the outstanding ones, the
// channel's prefetch limit over all its consumers, and the ceiling for channels
// without a limit. (A limit per consumer is kept by the queue.)
//
// A consumer under the channel's limit is attached without credit. When a
// message waits for it, its queue wakes it; if the limit and the consumer's
// window have room, it is granted some, with drain, so that what the queue
// cannot use comes back at once.
//
// mu is taken by the owner, the writer and shard workers, for short.
type flow struct {
	mu      sync.Mutex
	unacked unacked

	outstanding int // deliveries of all holders not settled

	global  bool      // the channel's consumers are under a common limit
	limit   uint32    // that limit; 0 = none but maxUnacked
	used    int64     // deliveries and grants counted against it
	waiting []*holder // woken consumers that found no room, oldest first
	capped  []*holder // consumers whose window is kept closed by maxUnacked
	full    bool      // maxUnacked was reached and logged
	emptied []*holder // cancelled holders whose last delivery was settled
}

// grant is credit to hand to a queue once the lock is free.
type grant struct {
	holder *holder
	n      uint32
	drain  bool
}

func (g grant) give() { g.holder.sub.Grant(g.n, g.drain) }

// delivered notes n deliveries on their way to a holder that acknowledges.
func (f *flow) delivered(h *holder, n int) {
	f.mu.Lock()
	h.outstanding += n
	f.outstanding += n
	if h.tag != nil {
		h.unwritten += n
	}
	if h.counted {
		// A grant becomes deliveries; what came without one counts on top.
		g := min(h.granted, int64(n))
		h.granted -= g
		f.used += int64(n) - g
	}
	f.mu.Unlock()
}

// settled notes that one delivery of a holder is settled.
func (f *flow) settled(h *holder) {
	f.mu.Lock()
	f.settledLocked(h)
	f.mu.Unlock()
}

func (f *flow) settledLocked(h *holder) {
	h.outstanding--
	f.outstanding--
	if h.counted && !h.ended {
		f.used--
	}
	if h.outstanding == 0 && h.leaving {
		f.emptied = append(f.emptied, h)
	}
}

// wake is called when a message waits for a consumer that has no credit.
func (f *flow) wake(h *holder) {
	f.mu.Lock()
	if !h.counted {
		h.woken = true
		f.mu.Unlock()
		return
	}
	f.waiting = append(f.waiting, h)
	grants := f.share(nil)
	f.mu.Unlock()
	for _, g := range grants {
		g.give()
	}
}

// drained takes back what a queue could not use of a grant.
func (f *flow) drained(h *holder, left uint32) {
	f.mu.Lock()
	if !h.counted || h.ended {
		f.mu.Unlock()
		return
	}
	back := min(h.granted, int64(left))
	h.granted -= back
	f.used -= back
	f.goOn(h)
	grants := f.share(nil)
	f.mu.Unlock()
	for _, g := range grants {
		g.give()
	}
}

// share gives what room the limit has to the consumers that wait. One whose
// client has yet to take what it was given waits for that first. f.mu is held.
func (f *flow) share(grants []grant) []grant {
	limit := int64(f.limit)
	if limit == 0 {
		limit = maxUnacked
	}
	for len(f.waiting) > 0 {
		room := limit - f.used
		if room <= 0 {
			return grants
		}
		n := (room + int64(len(f.waiting)) - 1) / int64(len(f.waiting))
		h := f.waiting[0]
		f.waiting[0] = nil
		f.waiting = f.waiting[1:]
		if h.ended || h.leaving {
			continue
		}
		if n = min(n, h.inWindow()); n <= 0 {
			h.slow = true
			continue
		}
		h.granted += n
		f.used += n
		grants = append(grants, grant{h, uint32(n), true})
	}
	return grants
}

// inWindow is how many more deliveries may be under way to the holder's client.
// The flow lock is held.
func (h *holder) inWindow() int64 { return windowSize - h.granted - int64(h.unwritten) }

// tooMany reports whether so much is not acknowledged that the channel gets nothing more.
func (f *flow) tooMany() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.outstanding >= maxUnacked
}

// serve lets deliveries go on after some were settled.
func (f *flow) serve() {
	f.mu.Lock()
	grants := f.share(nil)
	if len(f.capped) > 0 && f.outstanding < maxUnacked {
		for _, h := range f.capped {
			if !h.counted && !h.ended {
				grants = append(grants, grant{h, h.kept, false})
			}
			h.kept = 0
		}
		f.capped, f.full = nil, false
	}
	emptied := f.emptied
	f.emptied = nil
	f.mu.Unlock()
	for _, g := range grants {
		g.give()
	}
	for _, h := range emptied {
		h.sub.Detach(nil)
	}
}

// sent grants a consumer what its window has to say after deliveries left for
// the client, unless the channel holds too much. It runs on the writer.
func (f *flow) sent(h *holder, n uint32) {
	g := h.window.Sent(n)
	if h.noAck && g == 0 {
		return
	}
	f.mu.Lock()
	if !h.noAck {
		h.unwritten -= int(n)
	}
	if h.counted {
		f.goOn(h)
		grants := f.share(nil)
		f.mu.Unlock()
		for _, g := range grants {
			g.give()
		}
		return
	}
	if g == 0 || h.ended {
		f.mu.Unlock()
		return
	}
	h.woken = false
	if !h.noAck && f.outstanding >= maxUnacked {
		if h.kept == 0 {
			f.capped = append(f.capped, h)
		}
		h.kept += g
		first := !f.full
		f.full = true
		f.mu.Unlock()
		if first {
			h.ch.conn.log.Warn("deliveries pause: too many are not acknowledged", "channel", h.ch.number, "unacked", maxUnacked)
		}
		return
	}
	f.mu.Unlock()
	h.sub.Grant(g, false)
}

// goOn puts a holder that share found slow in line again, when its window has
// room. f.mu is held.
func (f *flow) goOn(h *holder) {
	if h.slow && h.inWindow() >= windowSize/2 {
		h.slow = false
		f.waiting = append(f.waiting, h)
	}
}

// end takes a holder that gets nothing more out of the count of grants.
func (f *flow) end(h *holder) {
	f.mu.Lock()
	if h.counted && !h.ended {
		f.used -= h.granted + int64(h.outstanding)
		h.granted = 0
	}
	h.ended = true
	grants := f.share(nil)
	f.mu.Unlock()
	for _, g := range grants {
		g.give()
	}
}

// qos sets the prefetch limit of consumers to come, or the channel's.
func (ch *channel) qos(m *wire.BasicQos) *amqperr.Error {
	if m.PrefetchSize != 0 {
		return amqperr.Unsupported("prefetch_size!=0")
	}
	if m.Global {
		ch.limitAll(uint32(m.PrefetchCount))
	} else {
		ch.mu.Lock()
		ch.prefetch = uint32(m.PrefetchCount)
		ch.mu.Unlock()
	}
	ch.conn.out.method(ch, &wire.BasicQosOk{})
	return nil
}

// limitAll sets the channel's limit over all its consumers, those it has
// included: their credit is taken back, and from then on they are woken.
func (ch *channel) limitAll(limit uint32) {
	ch.mu.Lock()
	consumers := make([]*holder, 0, len(ch.consumers))
	for _, h := range ch.consumers {
		consumers = append(consumers, h)
	}
	ch.mu.Unlock()

	f := &ch.flow
	f.mu.Lock()
	if !f.global && limit == 0 {
		f.mu.Unlock()
		return
	}
	f.global, f.limit = true, limit
	var grants []grant
	for _, h := range consumers {
		if h.noAck || h.counted || h.ended {
			continue
		}
		h.counted = true
		f.used += int64(h.outstanding)
		grants = append(grants, grant{h, 0, true})
		if h.woken {
			h.woken = false
			f.waiting = append(f.waiting, h)
		}
	}
	grants = f.share(grants)
	f.mu.Unlock()
	for _, g := range grants {
		g.give()
	}
}

// settling collects acknowledgements until the next flush, as ranges for each
// holder, so that a queue hears of them in one call.
type settling struct {
	parts []settlingPart
}

type settlingPart struct {
	holder *holder
	how    broker.Settlement
	ranges []broker.Range
}

func (s *settling) add(c checkout, how broker.Settlement) {
	for i := len(s.parts) - 1; i >= 0; i-- {
		p := &s.parts[i]
		if p.holder != c.holder || p.how != how {
			continue
		}
		if last := &p.ranges[len(p.ranges)-1]; last.Last+1 == c.id {
			last.Last = c.id
		} else {
			p.ranges = append(p.ranges, broker.Range{First: c.id, Last: c.id})
		}
		return
	}
	if len(s.parts) < cap(s.parts) { // keep the memory of an earlier part's ranges
		s.parts = s.parts[:len(s.parts)+1]
		p := &s.parts[len(s.parts)-1]
		p.holder, p.how = c.holder, how
		p.ranges = append(p.ranges[:0], broker.Range{First: c.id, Last: c.id})
		return
	}
	s.parts = append(s.parts, settlingPart{c.holder, how, []broker.Range{{First: c.id, Last: c.id}}})
}

// isOf reports whether something is of a queue that a message goes to.
func (s *settling) isOf(route *broker.Route) bool {
	for i := range s.parts {
		if route.LeadsTo(s.parts[i].holder.sub) {
			return true
		}
	}
	return false
}

func (s *settling) flush() {
	for i := range s.parts {
		p := &s.parts[i]
		p.holder.sub.Settle(p.ranges, p.how)
		p.holder = nil
	}
	s.parts = s.parts[:0]
}
