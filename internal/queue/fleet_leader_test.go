package queue

import "slices"

// fleetLeader is a leader as a queue's machine needs one: one entry is under way at a time, and what it decides rests on what
// is applied and what it has packed since.
type fleetLeader struct {
	f            *fleet
	links        map[uint64]*fleetLink // by node
	lastConsumer ConsumerID
	uploads      uint64 // it does not know those of the leader before
}

// fleetLink is a node that has resumed.
type fleetLink struct {
	n       *fleetNode
	try     uint64
	epoch   uint64
	session SessionID
	last    uint64                // the last publish that is in, counted with those packed
	known   map[uint64]ConsumerID // by outer id: those the node has attached by this link
	live    map[uint64]bool       // by outer id: its deliveries go out as they are made
}

// answers is what to do when the entry is applied, by command.
type answers map[int]func(e *Effect)

// leaderTurn lets the leader take what it has been sent, and carry it out. The last turn of a leader may come to nothing, or
// to nothing that anybody hears of.
func (f *fleet) leaderTurn(last bool) {
	if f.lead == nil {
		return
	}
	p, then := &packed{}, answers{}
	for range 1 + f.IntN(6) {
		n := f.nodes[f.IntN(len(f.nodes))]
		from := &n.up
		if len(n.lateUp) > 0 && f.rarely(2) {
			from = &n.lateUp
		}
		if len(*from) == 0 {
			continue
		}
		in := (*from)[0]
		*from = (*from)[1:]
		if in.kind == resume { // on it rests what the leader knows of the node: it ends the entry
			if from == &n.lateUp {
				f.seen["late resume"]++
			}
			f.lead.resume(n, &in, p, then)
			break
		}
		l := f.lead.links[n.id]
		if l == nil || l.try != in.try {
			f.seen["late and thrown away"]++
			continue
		}
		f.lead.take(l, &in, from, p, then)
	}
	switch {
	case !last:
		f.lead.carryOut(f.apply(p), then)
	case f.rarely(2):
		if len(p.Commands) > 0 {
			f.seen["entry lost"]++
		}
	default:
		if len(p.Commands) > 0 {
			f.seen["entry applied and not answered"]++
		}
		f.apply(p)
	}
}

func (l *fleetLeader) resume(n *fleetNode, in *parcel, p *packed, then answers) {
	if old := l.links[n.id]; old != nil && old.try >= in.try {
		return
	}
	delete(l.links, n.id)
	id := SessionID(l.f.index + 1)
	l.f.m.Sessions(func(s SessionInfo) {
		if s.Node == n.id && s.Incarnation == in.incarnation {
			id = s.ID
		}
	})
	p.Commands = append(p.Commands,
		Command{Kind: SessionOpen, Session: id, Node: n.id, Incarnation: in.incarnation},
		Command{Kind: EpochOpen, Session: id, Epoch: in.epoch})
	then[len(p.Commands)-1] = func(e *Effect) {
		if e.Reason != 0 {
			l.f.seen["late incarnation"]++
			return
		}
		link := &fleetLink{n: n, try: in.try, epoch: in.epoch, session: id, known: map[uint64]ConsumerID{}, live: map[uint64]bool{}}
		ok := false
		l.f.m.Sessions(func(s SessionInfo) {
			if s.ID == id && s.Epoch == in.epoch {
				ok, link.last = true, s.Last
			}
		})
		if !ok {
			l.f.seen["late epoch"]++
			return
		}
		l.links[n.id] = link
		p := parcel{kind: resumed, session: uint64(id), count: e.Count}
		l.f.m.Refused(id, func(r Range) { p.refused = append(p.refused, r) })
		link.send(p)
	}
}

func (link *fleetLink) send(p parcel) {
	p.try = link.try
	link.n.down = append(link.n.down, p)
}

// take packs what one parcel asks for. A parcel that needs another entry goes back to where it came from.
func (l *fleetLeader) take(link *fleetLink, in *parcel, from *[]parcel, p *packed, then answers) {
	put := func(c Command, answer func(*Effect)) {
		p.Commands = append(p.Commands, c)
		then[len(p.Commands)-1] = answer
	}
	con, there := link.known[in.outer]
	switch in.kind {
	case attachIt:
		l.attach(link, in, put)
	case publishIt:
		if in.chunks > 0 && in.upload == 0 {
			l.uploads++
			in.upload = l.uploads
			put(Command{Kind: Chunk, Count: in.chunks, Session: link.session, Upload: l.uploads}, nil)
			if l.f.rarely(2) { // the message does not go into this entry
				l.f.seen["message after its chunks"]++
				*from = slices.Insert(*from, 0, *in)
				return
			}
		}
		if in.seq != link.last+1 {
			l.f.fail("node %d sends publish %d after %d", link.n.id, in.seq, link.last)
		}
		link.last++
		p.publishes = append(p.publishes, in.publish)
		c := Command{Kind: Enqueue, Count: 1, Persistent: true, Session: link.session, Seq: in.seq, Terms: &Terms{Heard: in.heard}}
		if in.chunks > 0 {
			c.Chunks, c.Upload = in.chunks, in.upload
		}
		put(c, func(e *Effect) {
			if e != nil && e.Kind == Overflowed {
				link.send(parcel{kind: turnedAway, seq: in.seq})
				return
			}
			link.send(parcel{kind: accepted, seq: in.seq})
		})
	case settleIt:
		put(Command{Kind: Settle, Session: link.session, Consumer: con, First: in.first, Last: in.last, How: in.how}, func(*Effect) {
			link.send(parcel{kind: answered, request: in.request})
		})
	case more:
		put(Command{Kind: CreditTo, Consumer: con, Last: in.limit}, nil)
	case cancelIt, detachIt:
		kind := Cancel
		if in.kind == detachIt {
			kind = Detach
		}
		put(Command{Kind: kind, Consumer: con, Blameless: true}, func(*Effect) {
			link.send(parcel{kind: answered, request: in.request})
		})
	case getIt:
		if !there { // it has ended
			link.send(parcel{kind: empty, outer: in.outer})
			return
		}
		put(Command{Kind: Get, Consumer: con}, func(e *Effect) {
			if e.Kind == Empty {
				link.send(parcel{kind: empty, outer: in.outer})
			}
		})
	}
}

// attach attaches a consumer, or finds the one that is there, and says again what it may not have received.
func (l *fleetLeader) attach(link *fleetLink, in *parcel, put func(Command, func(*Effect))) {
	id := ConsumerID(0)
	l.f.m.ConsumersOf(link.session, func(c ConsumerRef) {
		if c.Outer == in.outer {
			id = c.ID
		}
	})
	if id == 0 && in.known {
		l.f.seen["gone when attached again"]++
		put(Command{Kind: CreditTo, Consumer: id}, func(*Effect) { link.send(parcel{kind: attached, outer: in.outer}) })
		return
	}
	c := Command{Kind: CreditTo, Consumer: id, Last: in.limit}
	if id == 0 {
		l.lastConsumer++
		id = l.lastConsumer
		c = Command{Kind: Attach, Session: link.session, Consumer: id, Outer: in.outer, Getter: in.getter, Credit: uint32(in.limit)}
	} else {
		l.f.seen["attached again"]++
	}
	link.known[in.outer] = id
	put(c, func(*Effect) {
		fx := &Effects{}
		l.f.m.Redeliver(id, in.received, fx)
		if in.known && len(fx.List) > 0 {
			l.f.seen["redelivered"]++
			if in.getter {
				l.f.seen["got by redelivery"]++
			}
		}
		link.deliver(fx.List, in.outer)
		link.live[in.outer] = true
		link.send(parcel{kind: attached, outer: in.outer})
	})
}

func (link *fleetLink) deliver(list []Effect, outer uint64) {
	for _, e := range list {
		for k := e.First; k <= e.Last; k++ {
			link.send(parcel{kind: delivery, outer: outer, id: e.Delivery + uint64(k-e.First), number: k})
		}
	}
}

// carryOut sends the deliveries of an entry, to those who have attached already, and answers its commands.
func (l *fleetLeader) carryOut(fx *Effects, then answers) {
	byCommand := map[int]*Effect{}
	last := 0
	for i := range fx.List {
		e := &fx.List[i]
		if byCommand[int(e.Command)] == nil {
			byCommand[int(e.Command)] = e
		}
		if e.Kind == Deliver {
			for _, link := range l.links {
				for outer, id := range link.known {
					if id == e.Consumer && link.live[outer] {
						link.deliver(fx.List[i:i+1], outer)
					}
				}
			}
		}
	}
	for i := range then {
		last = max(last, i)
	}
	for i := 0; i <= last; i++ {
		if answer := then[i]; answer != nil {
			answer(byCommand[i])
		}
	}
}
