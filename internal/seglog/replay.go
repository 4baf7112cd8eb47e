package seglog

import (
	"cmp"
	"fmt"
	"slices"
)

// loadPlaces reads the snapshots and entries that lie before the cut, in order of place.
func (rc *recovery) loadPlaces() error {
	l := rc.l
	type want struct {
		p    place
		g    *group
		kind Kind
	}
	var wants []want
	for _, g := range l.list {
		if g.hit != "" {
			continue
		}
		if g.snap.seg != nil && !rc.sc.got.has(g.snap) {
			wants = append(wants, want{g.snap, g, KindSnapshot})
		}
		if g.repl != nil && g.repl.hard.seg != nil && !rc.sc.got.has(g.repl.hard) {
			wants = append(wants, want{g.repl.hard, g, KindHardState})
		}
		for _, p := range g.tail {
			if !rc.sc.got.has(p) {
				wants = append(wants, want{p, g, KindEntry})
			}
		}
	}
	slices.SortFunc(wants, func(a, b want) int {
		if a.p.seg != b.p.seg {
			return int(a.p.seg.id) - int(b.p.seg.id)
		}
		return int(int64(a.p.off) - int64(b.p.off))
	})
	w := window{reuse: true}
	for _, x := range wants {
		_, rec, err := w.record(x.p.seg, x.p.off)
		if err == nil && (rec.group != x.g.id || rec.index != x.p.index || rec.kind != x.kind && !(x.kind == KindSnapshot && rec.snapshot())) {
			err = fmt.Errorf("another record where %v %d was", x.kind, x.p.index)
		}
		if err != nil {
			if l.setHit(x.g.id, fmt.Sprintf("%s: %v", segmentName(x.p.seg.id), err)) {
				l.log.Error("group quarantined", "group", uint64(x.g.id), "reason", x.g.hit)
			}
			continue
		}
		rc.sc.got.put(x.p, &rec)
	}
	l.recovered = rc.sc.got
	return nil
}

// byID returns the groups in order of their ids.
func (l *Log) byID() []*group {
	groups := slices.Clone(l.list)
	slices.SortFunc(groups, func(a, b *group) int { return cmp.Compare(a.id, b.id) })
	return groups
}

// Replay hands back, group by group in order of id, the newest snapshot, the newest hard state and then the entries after it.
// Quarantined groups are left out. It may be called once, before Start.
func (l *Log) Replay(fn func(Replayed) error) error {
	for _, g := range l.byID() {
		if g.hit != "" {
			continue
		}
		if g.snap.seg != nil {
			if err := fn(l.recovered.get(g.snap)); err != nil {
				return err
			}
		}
		if g.repl != nil && g.repl.hard.seg != nil {
			if err := fn(l.recovered.get(g.repl.hard)); err != nil {
				return err
			}
		}
		for _, p := range g.tail {
			if err := fn(l.recovered.get(p)); err != nil {
				return err
			}
		}
	}
	return nil
}

// hitList lists the quarantined groups in order; l.mu is held or not yet needed.
func (l *Log) hitList() []Hit {
	out := make([]Hit, 0, len(l.hits)+1)
	if l.unknown != "" {
		out = append(out, Hit{0, l.unknown})
	}
	for _, h := range l.hits {
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b Hit) int {
		if a.Group < b.Group {
			return -1
		}
		return 1
	})
	return out
}
