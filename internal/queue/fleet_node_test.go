package queue

import "slices"

// fleetNode is a node that uses the queue. It forgets everything when it restarts.
type fleetNode struct {
	f                          *fleet
	id, incarnation            uint64
	up, down, lateUp, lateDown []parcel // on their way to and from the leader

	try, epoch, session uint64
	asked, resumed      bool

	flight []uint64 // publishes that are not answered, in order
	sent   int      // how many of them were sent in the epoch
	base   uint64   // how many were accepted in it before them

	consumers map[uint64]*fleetConsumer // by outer id
	outer     uint64
	asks      []parcel // requests that are not answered, in order
	request   uint64
}

type fleetConsumer struct {
	outer, received, limit uint64
	getter                 bool
	known                  bool   // attached in this session
	here                   bool   // attached since the node has resumed
	ending, cancelled      bool   // a cancel or a detach was asked for; a cancel was answered
	most                   uint64 // the largest limit it ever had
	asking                 bool   // a get is not answered
	held                   map[uint64]Number
}

func (n *fleetNode) start() {
	for _, id := range n.flight {
		n.f.unknown[id] = true // nobody is left to tell
	}
	incarnation := n.incarnation + 1
	*n = fleetNode{f: n.f, id: n.id, incarnation: incarnation, lateUp: n.lateUp, lateDown: n.lateDown,
		try: n.try + 1, epoch: 1, consumers: map[uint64]*fleetConsumer{}}
}

// broken is told that the link is broken.
func (n *fleetNode) broken() {
	n.try++
	if n.resumed {
		n.epoch++
	} else if n.asked {
		n.f.seen["epoch asked again"]++
	}
	n.asked, n.resumed = false, false
	for _, c := range n.consumers {
		c.here = false
	}
}

func (n *fleetNode) send(p parcel) {
	p.try = n.try
	n.up = append(n.up, p)
}

func (n *fleetNode) askToResume() {
	n.asked = true
	n.send(parcel{kind: resume, incarnation: n.incarnation, epoch: n.epoch})
}

// act does something of what the clients of a node do.
func (n *fleetNode) act() {
	if !n.resumed && !n.asked {
		n.askToResume()
		return
	}
	c := n.anyConsumer()
	switch p := n.f.IntN(100); {
	case p < n.f.busy:
		n.f.publishes++
		n.f.by[n.f.publishes] = n.id
		n.flight = append(n.flight, n.f.publishes)
		n.publish()
	case p < n.f.busy+8:
		if len(n.consumers) < 4 {
			n.outer++
			c := &fleetConsumer{outer: n.outer, limit: n.f.Uint64N(4), getter: n.f.rarely(3), held: map[uint64]Number{}}
			c.most = c.limit
			n.consumers[n.outer] = c
			if n.resumed {
				n.attach(c)
			}
		}
	case c == nil || !c.here:
		// Nothing is asked of a consumer before it is attached.
	case p < n.f.busy+30:
		n.settle(c)
	case p < n.f.busy+34:
		if !c.ending {
			c.ending = true
			n.ask(parcel{kind: cancelIt + parcelKind(n.f.IntN(2)), outer: c.outer})
		}
	case c.getter:
		if !c.asking && !c.ending {
			c.asking = true
			n.send(parcel{kind: getIt, outer: c.outer})
		}
	default:
		c.limit = c.received + n.f.Uint64N(6) // it may be less than before
		c.most = max(c.most, c.limit)
		n.send(parcel{kind: more, outer: c.outer, limit: c.limit})
	}
}

func (n *fleetNode) anyConsumer() *fleetConsumer {
	if len(n.consumers) == 0 {
		return nil
	}
	keys := sorted(n.consumers)
	return n.consumers[keys[n.f.IntN(len(keys))]]
}

func (n *fleetNode) publish() {
	for ; n.resumed && n.sent < len(n.flight); n.sent++ {
		id := n.flight[n.sent]
		n.send(parcel{kind: publishIt, seq: n.base + uint64(n.sent) + 1, publish: id, chunks: chunksOf(id), heard: n.base})
	}
}

func (n *fleetNode) attach(c *fleetConsumer) {
	n.send(parcel{kind: attachIt, outer: c.outer, getter: c.getter, known: c.known, received: c.received, limit: c.limit})
}

func (n *fleetNode) ask(p parcel) {
	n.request++
	p.request = n.request
	n.asks = append(n.asks, p)
	n.send(p)
}

// settle settles some of what a consumer has received.
func (n *fleetNode) settle(c *fleetConsumer) {
	if len(c.held) == 0 {
		return
	}
	ids := sorted(c.held)
	first := ids[n.f.IntN(len(ids))]
	last := first + n.f.Uint64N(c.received-first+1)
	for id := first; id <= last; id++ {
		delete(c.held, id)
	}
	n.ask(parcel{kind: settleIt, outer: c.outer, first: first, last: last, how: Settlement(n.f.IntN(3))})
}

// hear takes up to k parcels.
func (n *fleetNode) hear(k int) {
	if len(n.lateDown) > 0 {
		n.take(&n.lateDown[0])
		n.lateDown = n.lateDown[1:]
	}
	for ; k > 0 && len(n.down) > 0; k-- {
		in := n.down[0]
		n.down = n.down[1:]
		n.take(&in)
	}
}

func (n *fleetNode) take(in *parcel) {
	if in.try != n.try {
		n.f.seen["late and thrown away"]++
		return
	}
	c := n.consumers[in.outer]
	switch in.kind {
	case resumed:
		n.resume(in)
	case accepted:
		for n.base < in.seq {
			n.confirm(false)
		}
	case turnedAway:
		for n.base < in.seq-1 {
			n.confirm(false)
		}
		n.confirm(true)
	case attached:
		c.known, c.here = true, true
		if c.asking { // what a get was given before would have come by now
			n.send(parcel{kind: getIt, outer: c.outer})
		}
	case delivery:
		n.receive(c, in)
	case empty:
		n.f.seen["empty"]++
		if c != nil {
			c.asking = false
		}
	case answered:
		i := slices.IndexFunc(n.asks, func(p parcel) bool { return p.request == in.request })
		ask := n.asks[i]
		n.asks = slices.Delete(n.asks, i, i+1)
		n.answered(&ask)
	}
}

// confirm notes that the first publish in flight is in, or that it is refused.
func (n *fleetNode) confirm(refused bool) {
	if n.sent == 0 {
		n.f.fail("node %d: more publishes are accepted than were sent", n.id)
		n.base++
		return
	}
	id := n.flight[0]
	if _, ok := n.f.accepted[id]; ok == refused || n.f.refused[id] != refused || n.f.confirmed[id] {
		n.f.fail("publish %d of node %d is confirmed (refused: %v)", id, n.id, refused)
	}
	if refused {
		n.f.nacked[id] = true
	} else {
		n.f.confirmed[id] = true
	}
	n.flight = n.flight[1:]
	n.sent--
	n.base++
}

// resume goes on with a leader.
func (n *fleetNode) resume(in *parcel) {
	n.f.seen["resumed"]++
	n.resumed = true
	if n.session == in.session {
		for n.base < in.count {
			refused := slices.ContainsFunc(in.refused, func(r Range) bool { return r.First <= n.base+1 && n.base+1 <= r.Last })
			if refused {
				n.f.seen["refused before"]++
			} else {
				n.f.seen["accepted before"]++
			}
			n.confirm(refused)
		}
		n.f.seen["sent again"] += n.sent
	} else {
		n.anew(in.session)
	}
	n.base, n.sent = 0, 0
	for _, outer := range sorted(n.consumers) {
		n.attach(n.consumers[outer])
	}
	for _, p := range n.asks {
		if p.kind == settleIt {
			n.f.seen["settled again"]++
		}
		n.send(p)
	}
	n.publish()
}

// anew gives up what was under way in a session that is over.
func (n *fleetNode) anew(session uint64) {
	if n.session != 0 {
		n.f.seen["resumed in another session"]++
	}
	n.session = session
	for _, id := range n.flight[:n.sent] {
		n.f.seen["unknown"]++
		n.f.unknown[id] = true
	}
	n.flight = n.flight[n.sent:]
	n.asks = nil
	for _, outer := range sorted(n.consumers) {
		c := n.consumers[outer]
		if c.ending {
			delete(n.consumers, outer)
			continue
		}
		*c = fleetConsumer{outer: outer, getter: c.getter, limit: 3, most: 3, held: map[uint64]Number{}}
	}
}

func (n *fleetNode) receive(c *fleetConsumer, in *parcel) {
	switch {
	case c == nil:
		n.f.fail("node %d: delivery %d for a consumer that is not there", n.id, in.id)
		return
	case in.id != c.received+1:
		n.f.fail("node %d, consumer %+v: delivery %d", n.id, c, in.id)
	case c.getter && !c.asking:
		n.f.fail("node %d, getter %+v: delivery %d and it has not asked", n.id, c, in.id)
	}
	if c.getter {
		n.f.seen["got"]++
	} else if in.id > c.most {
		n.f.fail("node %d, consumer %+v: delivery %d without credit", n.id, c, in.id)
	}
	c.received, c.asking = in.id, false
	c.held[in.id] = in.number
}

// answered notes the answer to a request: a consumer may have ended by it.
func (n *fleetNode) answered(ask *parcel) {
	c := n.consumers[ask.outer]
	if c == nil {
		return
	}
	c.cancelled = c.cancelled || ask.kind == cancelIt
	settling := slices.ContainsFunc(n.asks, func(p parcel) bool { return p.outer == c.outer })
	if ask.kind == detachIt || c.cancelled && len(c.held) == 0 && !settling {
		delete(n.consumers, c.outer)
	}
}
