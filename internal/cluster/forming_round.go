package cluster

import (
	"maps"
	"slices"
)

// attempt is one attempt to found a cluster.
type attempt struct {
	ballot   Ballot
	accept   bool                // the second phase has begun
	waiting  map[uint64]struct{} // calls
	yes      map[string]Node     // who said yes in this phase, by address
	best     Ballot              // of the grant that was found
	founding *Founding           // that grant's; then what is to be consented to
	lost     bool                // somebody has promised a later one, or is in a cluster
}

// begin asks for promises.
func (f *Former) begin(addrs []string) {
	f.highest = max(f.highest, f.state.Promised.Round) + 1
	a := &attempt{ballot: Ballot{f.highest, f.o.Self.ID}, waiting: map[uint64]struct{}{}, yes: map[string]Node{f.own: f.o.Self}}
	f.attempt = a
	f.state.Promised, f.state.List = a.ballot, f.list
	f.save()
	a.consider(f.state.Granted)
	for _, addr := range addrs {
		if addr != f.own {
			a.waiting[f.call(addr, a, request{kind: prepare, ballot: a.ballot})] = struct{}{}
		}
	}
	if len(a.waiting) == 0 {
		f.promised()
	}
}

// consider takes note of what a node has consented to: it may have been decided.
func (a *attempt) consider(g *Grant) {
	if g != nil && (a.founding == nil || a.best.Less(g.Ballot)) {
		a.best, a.founding = g.Ballot, g.Founding
	}
}

// voted takes a vote; ans is nil if none came.
func (f *Former) voted(tag uint64, p *pending, ans *answer) {
	a := p.attempt
	delete(a.waiting, tag)
	if a.accept != (p.kind == accept) {
		return
	}
	switch {
	case ans == nil:
	case ans.verdict == fine && ans.founding == nil:
		a.yes[p.addr] = ans.from
		if !a.accept {
			a.consider(ans.granted)
		}
	case ans.founding != nil || a.ballot.Less(ans.promised):
		a.lost = true
	}
	switch {
	case a.accept && f.majority():
		f.decided(a.founding)
	case len(a.waiting) > 0: // who promises is a founder: wait for all
	case a.accept || a.lost || !f.majority():
		f.giveUp()
	default:
		f.promised()
	}
}

// decided tells the founders that the cluster is founded. If this node is none of them, since it has finished somebody
// else's attempt, it joins through one that has heard.
func (f *Former) decided(c *Founding) {
	f.giveUp()
	if c.Has(f.o.Self.ID) {
		f.enter(c)
	}
	for _, addr := range f.list {
		if a := f.fresh(addr); a != nil && c.Has(a.from.ID) {
			f.call(addr, nil, request{kind: founded, founding: c})
		}
	}
}

// majority reports whether as many distinct nodes as it takes have said yes.
func (f *Former) majority() bool {
	ids := map[uint64]bool{}
	for _, n := range f.attempt.yes {
		ids[n.ID] = true
	}
	return 2*len(ids) > len(f.list)
}

// promised asks for consent, the promises being there.
func (f *Former) promised() {
	a := f.attempt
	if a.founding == nil {
		a.founding = newFounding(f.o.NewID(), f.list, slices.Collect(maps.Values(a.yes)))
	}
	if f.state.Promised != a.ballot { // we have promised another a later one meanwhile
		f.giveUp()
		return
	}
	addrs := slices.Sorted(maps.Keys(a.yes))
	a.accept, a.yes = true, map[string]Node{f.own: f.o.Self}
	f.state.Granted = &Grant{a.ballot, a.founding}
	f.save()
	for _, addr := range addrs {
		if addr != f.own {
			a.waiting[f.call(addr, a, request{kind: accept, ballot: a.ballot, founding: a.founding})] = struct{}{}
		}
	}
	if f.majority() { // alone in the list
		f.decided(a.founding)
	}
}

// giveUp ends an attempt; the next one comes after a pause drawn by lot.
func (f *Former) giveUp() {
	f.attempt = nil
	f.notBefore = f.now + int64(f.o.Rand(int(rest)))
}
