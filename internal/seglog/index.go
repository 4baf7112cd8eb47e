package seglog

// The index: which group has what where, and what of it is still needed. It is derived from the log alone. Everything here
// is called with Log.mu held and only with records that are stable.

// group returns the group, made if need be.
func (l *Log) group(id GroupID) *group {
	g := l.groups[id]
	if g == nil {
		g = &group{id: id, place: len(l.list), hit: l.hits[id].Reason}
		l.groups[id] = g
		l.list = append(l.list, g)
	}
	return g
}

// forgetGroup takes the group out of the books.
func (l *Log) forgetGroup(g *group) {
	last := l.list[len(l.list)-1]
	l.list[g.place], last.place = last, g.place
	l.list[len(l.list)-1] = nil
	l.list = l.list[:len(l.list)-1]
	delete(l.groups, g.id)
	g.dropped = true
}

// applyEntry notes a stable entry above the group's snapshot; what it replaces is gone already (makeWay).
func (l *Log) applyEntry(g *group, p place) {
	g.lastIndex = p.index
	g.tail = append(g.tail, p)
	g.tailBytes += int64(p.length)
	p.seg.tails++
	p.seg.liveBytes += int64(p.length)
}

func (l *Log) untail(g *group, p place) {
	g.tailBytes -= int64(p.length)
	p.seg.tails--
	p.seg.liveBytes -= int64(p.length)
}

// applySnapshot notes a stable snapshot; one older than what is known is dead on arrival.
func (l *Log) applySnapshot(g *group, p place) {
	if g.snap.seg != nil && p.index < g.snap.index {
		return
	}
	g.vain = g.snap.seg != nil && p.index == g.snap.index
	l.moveSnapshot(g, p)
	l.answered(g)
	n := 0
	for n < len(g.tail) && g.tail[n].index <= p.index {
		if g.repl != nil && g.repl.keep > 0 && g.tail[n].index > g.repl.keep {
			l.keepEntry(g, g.tail[n])
		} else {
			l.untail(g, g.tail[n])
		}
		n++
	}
	if n > 0 {
		g.tail = append(g.tail[:0], g.tail[n:]...)
		if len(g.tail) == 0 && cap(g.tail) > 64 {
			g.tail = nil
		}
	}
	if g.repl != nil {
		g.repl.uncarry(n)
		if k := g.repl.kept; len(k) > 0 && k[len(k)-1].index < p.index { // what followed it was never here
			l.unkeep(g, p.index)
		}
	}
	g.lastIndex = max(g.lastIndex, p.index)
}

// moveSnapshot makes p the place of the group's snapshot.
func (l *Log) moveSnapshot(g *group, p place) { l.movePlace(&g.snap, p) }

// movePlace makes p the place of a snapshot or hard state.
func (l *Log) movePlace(at *place, p place) {
	if old := *at; old.seg != nil {
		old.seg.snaps--
		old.seg.liveBytes -= int64(old.length)
	}
	*at = p
	if p.seg != nil {
		p.seg.snaps++
		p.seg.liveBytes += int64(p.length)
	}
}

// applyDrop ends a group.
func (l *Log) applyDrop(g *group) {
	l.moveSnapshot(g, place{})
	for _, p := range g.tail {
		l.untail(g, p)
	}
	g.tail = nil
	if g.repl != nil {
		l.movePlace(&g.repl.hard, place{})
		l.unkeep(g, ^uint64(0))
		g.repl = nil
	}
	for _, r := range g.runs {
		l.removeLive(r, 0, ^uint64(0))
	}
	g.runs, g.open, g.cold, g.waiting, g.ranges = nil, nil, nil, nil, nil
	l.answered(g)
	delete(l.hits, g.id)
	l.forgetGroup(g)
}

// addItems notes n items from first on in the record at off; bytes is the sum of their sizes. open is the group's list of
// runs in this segment.
func (l *Log) addItems(g *group, seg *segment, open *[]*run, first uint64, n int, off uint32, bytes int64, minItem, maxItem uint32) *run {
	last := first + uint64(n) - 1
	r := openRun(*open, seg, first)
	if r == nil {
		if len(*open) > 0 && (*open)[0].seg != seg {
			clear(*open)
			*open = (*open)[:0]
		}
		r = &run{g: g, seg: seg, first: first, last: last, minItem: minItem, maxItem: maxItem}
		seg.tableEst += tableHeadMax
		*open = append(*open, r)
		seg.runs = append(seg.runs, r)
		g.insert(r)
	} else {
		r.last = last
		if r.listed {
			g.extended(r)
		} else {
			g.insert(r)
		}
	}
	before := r.liveBytes()
	r.minItem, r.maxItem = min(r.minItem, minItem), max(r.maxItem, maxItem)
	r.items += uint64(n)
	r.bytes += bytes
	if r.auditN > 0 {
		r.exact, r.auditN = r.exact+bytes, r.auditN+uint64(n)
	}
	r.live.add(first, last)
	if k := len(r.entries); k > 0 && r.entries[k-1].off == off && r.entries[k-1].first+uint64(r.entries[k-1].count) == first {
		r.entries[k-1].count += uint32(n)
	} else {
		e := entry{first, uint32(n), off}
		seg.tableEst += tableEntrySize(r.entries, e)
		r.entries = append(r.entries, e)
	}
	seg.items += uint64(n)
	seg.liveBytes += r.liveBytes() - before
	l.liveItems += int64(n)
	return r
}

// openRun is the run of this segment that ids from first on continue.
func openRun(open []*run, seg *segment, first uint64) *run {
	for _, r := range open {
		if r.seg == seg && first > r.last && first-r.last < maxJump {
			return r
		}
	}
	return nil
}

// addRecordItems notes all items of a record read back or written from bytes.
func (l *Log) addRecordItems(g *group, seg *segment, open *[]*run, off uint32, rec *record) {
	k := 0
	for i := range rec.numBlocks() {
		first, n := rec.block(i)
		if n == 0 {
			continue
		}
		var bytes int64
		lo, hi := ^uint32(0), uint32(0)
		for j := range n {
			size := uint32(len(rec.item(k + j)))
			bytes += int64(size)
			lo, hi = min(lo, size), max(hi, size)
		}
		l.addItems(g, seg, open, first, n, off, bytes, lo, hi)
		k += n
	}
}

// removeLive takes ids out of a run; the caller takes dead runs out of the group.
func (l *Log) removeLive(r *run, first, last uint64) uint64 {
	before := r.liveBytes()
	n := r.live.remove(first, last)
	r.seg.items -= n
	r.seg.liveBytes += r.liveBytes() - before
	l.liveItems -= int64(n)
	return n
}

// releaseRange makes ids of the group dead wherever they are.
func (l *Log) releaseRange(g *group, want Range) {
	dead := false
	for i := g.lastAtOrBelow(want.Last); i >= 0 && g.runs[i].reach >= want.First; i-- {
		if r := g.runs[i]; r.last >= want.First {
			l.removeLive(r, want.First, want.Last)
			dead = dead || r.live.n == 0
		}
	}
	if dead {
		g.forget()
	}
}

// lastAtOrBelow is the index of the last run that starts at or below id.
func (g *group) lastAtOrBelow(id uint64) int {
	lo, hi := 0, len(g.runs)
	for lo < hi {
		if m := (lo + hi) / 2; g.runs[m].first > id {
			hi = m
		} else {
			lo = m + 1
		}
	}
	return lo - 1
}

// releaseDue carries out what waited for an entry that is stable now.
func (l *Log) releaseDue(g *group) {
	g.eachDue(func(r Range) { l.releaseRange(g, r) })
}
