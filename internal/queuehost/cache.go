package queuehost

// cache is the pages of a lane with items that may leave memory, oldest first,
// over all of its queues, bounded by what they cost. What is on disk is
// forgotten when its time comes; what is nowhere else is spilled. So a queue
// whose consumers keep up never has to do with the disk, and one that nobody
// consumes is on it.
type cache struct {
	oldest, newest *page
	cost, limit    int64
}

// add notes that further items of page p may leave; it joins the list if it is not in it.
func (c *cache) add(p *page, n int64) {
	c.cost += n
	if p.cached {
		return
	}
	p.cached = true
	p.prev = c.newest
	if c.newest != nil {
		c.newest.next = p
	} else {
		c.oldest = p
	}
	c.newest = p
}

// sub notes that some have left or may not leave any more; the page leaves the
// list with its last one.
func (c *cache) sub(p *page, n int64) {
	c.cost -= n
	if p.onDisk|p.alone != 0 || !p.cached {
		return
	}
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		c.oldest = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		c.newest = p.prev
	}
	p.prev, p.next, p.cached = nil, nil, false
}

// trim lets the oldest pages go until the cache keeps its bound, as far as the
// disk follows, and gives back the credit that waited for it.
func (l *lane) trim() {
	c := &l.cache
	for c.cost > c.limit && c.oldest != nil {
		p := c.oldest
		if p.onDisk != 0 {
			b := p.owner
			b.forget(l, p, p.onDisk)
			b.host.countBodies()
			continue
		}
		if l.spill.busy() {
			break
		}
		l.spillFrom(p)
	}
	for l.kept.len() > 0 && !l.stuck() {
		c := l.kept.front().credit
		l.kept.front().give()
		l.kept.pop()
		if c.inflow != nil {
			c.inflow.gave()
		}
	}
}

// giveInTime gives the credit of publishes back, when memory has room for what it buys.
func (l *lane) giveInTime(w *wait) {
	if w.credit != nil && l.stuck() {
		l.kept.push(*w)
		return
	}
	w.give()
}

// stuck reports whether the disk does not take what memory has no room for:
// publishers have to wait for it.
func (l *lane) stuck() bool { return l.spill.busy() && l.cache.cost > l.cache.limit+l.spill.most }
