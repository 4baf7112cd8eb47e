package queue

import (
	"slices"

	"holdfast/internal/planted"
)

// deadWindow is how many dead ids are out at a time, counted from the oldest that is not buried.
const deadWindow = 256

// deadRun is a range of dead messages of one history that died of one reason in one second. Its dead
// ids are as dense as its numbers.
type deadRun struct {
	run
	id     uint64 // of the first
	time   uint32 // seconds since 1970
	reason Reason
}

func (d *deadRun) lastID() uint64 { return d.id + d.len() - 1 }

// continues reports whether d can be made part of the run before it.
func (d *deadRun) continues(before *deadRun) bool {
	return d.follows(before.run) && before.lastID()+1 == d.id && before.time == d.time && before.reason == d.reason
}

// cut returns the part of a run that has the dead ids first to last; it must have them.
func (d *deadRun) cut(first, last uint64) deadRun {
	part := *d
	part.first = d.first + Number(first-d.id)
	part.last = d.first + Number(last-d.id)
	part.id = first
	return part
}

// deadList is a sequence of runs in order of their ids, with a cheap front.
type deadList struct {
	runs []deadRun
	head int
}

func (l *deadList) live() []deadRun { return l.runs[l.head:] }

func (l *deadList) push(d deadRun) {
	if n := len(l.runs); n > l.head && d.continues(&l.runs[n-1]) {
		l.runs[n-1].last = d.last
		return
	}
	l.runs = append(l.runs, d)
}

// pop takes the ids up to last off the first run, which has one of them at least, and returns them.
func (l *deadList) pop(last uint64) deadRun {
	d := &l.runs[l.head]
	if last < d.lastID() {
		part := d.cut(d.id, last)
		*d = d.cut(last+1, d.lastID())
		return part
	}
	part := *d
	l.head++
	if rest := l.live(); l.head > len(l.runs)/2 {
		if into := l.runs[:0]; cap(into) < 4*len(rest) || cap(into) < 1024 {
			l.runs = append(into, rest...)
		} else {
			l.runs = slices.Clone(rest)
		}
		l.head = 0
	}
	return part
}

// graves are the dead messages: those that have left the queue but for a letter that tells of it, which is
// still to be delivered.
type graves struct {
	out   deadList // those the host has been told of, within the window
	rest  deadList // those after them
	given uint64   // dead ids given out
	count uint64
	bytes uint64 // as far as it is known
}

// all calls f for every run, in order; those that belong together are one.
func (g *graves) all(f func(deadRun)) {
	var d deadRun
	for _, list := range [...][]deadRun{g.out.live(), g.rest.live()} {
		for i := range list {
			switch {
			case d.id == 0:
				d = list[i]
			case list[i].continues(&d):
				d.last = list[i].last
			default:
				f(d)
				d = list[i]
			}
		}
	}
	if d.id > 0 {
		f(d)
	}
}

// end lets a run of messages that are neither ready nor held any more leave for a reason that letters tell of.
func (m *Machine) end(r run, reason Reason, fx *Effects) {
	x := m.extra
	if x == nil || x.set.DeadLetter == NoDeadLetter || planted.Is(planted.DeadReleased) && r.last%16 == 0 {
		m.release(r.first, r.len(), r.attr, reason, fx)
		return
	}
	x.deadlines.forget(r.first, r.last)
	x.keys.forget(r.first, r.last)
	x.dead.bytes += x.bytes(r.first, r.last)
	x.unweighed.change(r.first, r.last, isDead)
	x.dead.rest.push(deadRun{run: r, id: x.dead.given + 1, time: uint32(m.now / 1e9), reason: reason})
	x.dead.given += r.len()
	x.dead.count += r.len()
}

// deadFull reports whether so many dead messages wait that publishes are refused.
func (x *extra) deadFull() bool {
	return x.deadOver(1) && !x.forsakes()
}

// deadOver reports whether there would be too many dead messages with n more.
func (x *extra) deadOver(n uint64) bool {
	most, ok := x.set.HeldMost.Get()
	bytes, okBytes := x.set.HeldMostBytes.Get()
	return x.dead.count > 0 && (ok && x.dead.count+n > most || okBytes && x.dead.bytes+n > bytes)
}

// forsakes reports whether the oldest dead message leaves where they are too many.
func (x *extra) forsakes() bool {
	return x.set.Overflow == OverflowDropHead && (x.set.MaxLength > 0 || x.set.MaxBytes > 0)
}

// keepDead does what there is to do about the dead after each command: it releases the oldest if they are too
// many, and tells the host of those that are now in the window.
func (m *Machine) keepDead(fx *Effects) {
	x := m.extra
	g := &x.dead
	if x.set.DeadLetter == NoDeadLetter && g.count > 0 {
		for g.count > 0 {
			d := g.pop(g.count)
			m.raise(&d, d.reason, fx)
		}
	}
	for x.forsakes() && x.deadOver(0) {
		d := g.pop(x.deadExcess())
		m.raise(&d, DeadDropped, fx)
	}
	g.tell(m, fx)
}

// oldest returns the list that begins with the oldest dead message; there must be one.
func (g *graves) oldest() *deadList {
	if len(g.out.live()) > 0 {
		return &g.out
	}
	return &g.rest
}

// pop takes the oldest messages off, up to n of the first run.
func (g *graves) pop(n uint64) deadRun {
	list := g.oldest()
	return list.pop(list.live()[0].id + n - 1)
}

// deadExcess returns how many of the oldest dead messages are too many, as far as can be said of messages of one size.
func (x *extra) deadExcess() uint64 {
	g := &x.dead
	if most, ok := x.set.HeldMost.Get(); ok && g.count > most {
		return g.count - most
	}
	most, _ := x.set.HeldMostBytes.Get()
	first := g.oldest().live()[0]
	size, _, upTo := x.sizes.at(first.first, first.last)
	n := uint64(upTo-first.first) + 1
	if size > 0 {
		n = min(n, (g.bytes-most-1)/size+1)
	}
	return n
}

// raise releases dead messages that were taken out of their list.
func (m *Machine) raise(d *deadRun, reason Reason, fx *Effects) {
	g := &m.extra.dead
	g.count -= d.len()
	g.bytes -= m.extra.bytes(d.first, d.last)
	m.release(d.first, d.len(), d.attr, reason, fx)
}

// tell emits what has come into the window.
func (g *graves) tell(m *Machine, fx *Effects) {
	for len(g.rest.live()) > 0 {
		next := g.rest.live()[0].id
		base := next
		if out := g.out.live(); len(out) > 0 {
			base = out[0].id
		}
		if next >= base+deadWindow {
			return
		}
		d := g.rest.pop(base + deadWindow - 1)
		fx.dead(m, &d)
		g.out.push(d)
	}
}

// dead appends the Dead effects of a run.
func (fx *Effects) dead(m *Machine, d *deadRun) {
	step := d.len()
	if d.attr.is(flagBig) {
		step = 1
	}
	for id := d.id; id <= d.lastID(); id += step {
		part := d.cut(id, id+step-1)
		e := fx.add(Dead)
		e.First, e.Last, e.Delivery, e.Reason, e.Left = part.first, part.last, part.id, part.reason, uint64(part.time)
		e.attr = part.attr
		e.Redelivered, e.Transient = e.attr.is(flagRedelivered), e.attr.is(flagTransient)
		e.DeliveryCount, e.Acquired = e.attr.deliveryCount(), e.attr.acquired()
		if e.attr.is(flagBig) {
			e.Chunks = m.big[part.first]
		}
	}
}

// Redead appends to fx the Dead effects of all that is in the window, as they were at first. It is for who has not
// got them, or has forgotten them: the state does not change. Command is 0.
func (m *Machine) Redead(fx *Effects) {
	if m.extra == nil {
		return
	}
	own := len(fx.List)
	for _, d := range m.extra.dead.out.live() {
		fx.dead(m, &d)
	}
	for i := own; i < len(fx.List); i++ {
		fx.List[i].Command = 0
	}
}

// bury releases dead messages.
func (m *Machine) bury(c *Command, fx *Effects) {
	if m.extra == nil || c.First > c.Last || planted.Is(planted.BuriedStay) && c.First%16 == 0 {
		return
	}
	g := &m.extra.dead
	out := g.out.live()
	i := 0
	for i < len(out) && out[i].lastID() < c.First {
		i++
	}
	for i < len(out) && out[i].id <= c.Last {
		d := out[i]
		first, last := max(d.id, c.First), min(d.lastID(), c.Last)
		part := d.cut(first, last)
		m.raise(&part, part.reason, fx)
		left := make([]deadRun, 0, 2)
		if first > d.id {
			left = append(left, d.cut(d.id, first-1))
		}
		if last < d.lastID() {
			left = append(left, d.cut(last+1, d.lastID()))
		}
		out = slices.Replace(out, i, i+1, left...)
		if first > d.id {
			i++
		}
		if last < d.lastID() {
			break
		}
	}
	g.out = deadList{runs: out}
}

// recoverDead releases the dead messages that are transient and begins to tell of the others anew. It returns how many
// it released.
func (m *Machine) recoverDead(fx *Effects) uint64 {
	if m.extra == nil {
		return 0
	}
	g := &m.extra.dead
	lost := uint64(0)
	var kept deadList
	g.all(func(d deadRun) {
		if d.attr.is(flagTransient) {
			lost += d.len()
			m.raise(&d, Lost, fx)
			return
		}
		kept.push(d)
	})
	g.out, g.rest = deadList{}, kept
	return lost
}

// DeadCount returns how many dead messages there are.
func (m *Machine) DeadCount() uint64 {
	if m.extra == nil {
		return 0
	}
	return m.extra.dead.count
}
