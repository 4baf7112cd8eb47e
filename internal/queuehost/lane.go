package queuehost

import (
	"holdfast/internal/queue"
	"holdfast/internal/seglog"
)

// lane is what the queues of one shard share: memory that goes round, and the
// budgets. It belongs to the shard's worker.
type lane struct {
	reg   *Registry
	cache cache
	spill spiller
	kept  fifo[wait] // credit of publishes that memory has no room for

	fx       queue.Effects
	again    queue.Effects // of consumers that are attached again
	entry    queue.Entry
	replayed []queue.Command
	released []seglog.Range
	numbers  []queue.Numbers
	touched  []*consumer // consumers with deliveries to hand over
	packs    []*pack
	wait     wait // being joined
	pages    []*page
	maps     []map[uint64]*page // empty
	letters  []DeadLetter
	drops    drops
	lists    [][]Delivery
	listed   int // capacity of all lists
	loaders  []Loader
	pinned   *pinned   // given out while an effect is carried out
	out      *outgoing // to other nodes
}

// What a lane keeps for reuse.
const (
	keepPages      = 1024
	keepPacks      = 256
	keepMaps       = 64
	mapPages       = 64       // of a map worth keeping
	keepDeliveries = 32 << 10 // in all lists together
	loaderBlock    = 32
)

func (l *lane) newPage() *page {
	if n := len(l.pages); n > 0 {
		p := l.pages[n-1]
		l.pages = l.pages[:n-1]
		return p
	}
	return &page{}
}

func (l *lane) freePage(p *page) {
	p.owner = nil
	if len(l.pages) < keepPages {
		l.pages = append(l.pages, p)
	}
}

func (l *lane) newMap() map[uint64]*page {
	if n := len(l.maps); n > 0 {
		m := l.maps[n-1]
		l.maps = l.maps[:n-1]
		return m
	}
	return map[uint64]*page{}
}

// freeMap takes back an empty map that has never had more than most pages.
func (l *lane) freeMap(m map[uint64]*page, most int) {
	if most <= mapPages && len(l.maps) < keepMaps {
		l.maps = append(l.maps, m)
	}
}

func (l *lane) newPack() *pack {
	if n := len(l.packs); n > 0 {
		p := l.packs[n-1]
		l.packs = l.packs[:n-1]
		return p
	}
	return &pack{}
}

func (l *lane) freePack(p *pack) {
	p.reset()
	if len(l.packs) < keepPacks {
		l.packs = append(l.packs, p)
	}
}

func (l *lane) newList() []Delivery {
	if n := len(l.lists); n > 0 {
		ds := l.lists[n-1]
		l.lists = l.lists[:n-1]
		l.listed -= cap(ds)
		return ds
	}
	return nil
}

func (l *lane) freeList(ds []Delivery) {
	clear(ds)
	if cap(ds) > 0 && l.listed+cap(ds) <= keepDeliveries {
		l.listed += cap(ds)
		l.lists = append(l.lists, ds[:0])
	}
}

// newLoader returns a loader; they are allocated in blocks.
func (l *lane) newLoader() *Loader {
	if len(l.loaders) == 0 {
		l.loaders = make([]Loader, loaderBlock)
	}
	d := &l.loaders[0]
	l.loaders = l.loaders[1:]
	return d
}
