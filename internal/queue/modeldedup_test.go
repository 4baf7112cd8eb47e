package queue

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// modelKeys is what the model keeps to find duplicates, besides the keys of its messages.
type modelKeys struct {
	window     []seen            // what came in the window, the oldest first
	publishers []*modelPublisher // the one that has been silent for longest first
}

type modelPublisher struct {
	key      Key
	time     int64
	below    uint64
	accepted map[uint64]bool
	passing  map[uint64]bool // of those below, too: of messages that do not outlive a restart
}

func (m *model) keyed(c *Command) bool {
	return m.set.Deduplicate != NoKey && c.terms().Key != Key{}
}

func (m *model) publisher(key Key) *modelPublisher {
	for _, p := range m.keys.publishers {
		if p.key == key {
			return p
		}
	}
	return nil
}

func (m *model) repeated(c *Command) bool {
	key := c.terms().Key
	switch {
	case m.set.Deduplicate == PublisherKey:
		seq, ok := c.terms().Sequence.Get()
		p := m.publisher(key)
		return ok && p != nil && (seq < p.below || p.accepted[seq]) && !(c.Persistent && p.passing[seq])
	case m.set.Window > 0:
		return slices.ContainsFunc(m.keys.window, func(s seen) bool { return s.key == key && !(c.Persistent && s.transient) })
	}
	return slices.ContainsFunc(m.messages, func(x *modelMessage) bool { return x.key == key && x.dead == 0 && !(m.due(x) && x.isReady()) })
}

func (m *model) keep(c *Command, x *modelMessage) {
	key, now := c.terms().Key, m.now/1e6
	switch {
	case m.set.Deduplicate == PublisherKey:
		seq, ok := c.terms().Sequence.Get()
		if !ok {
			break
		}
		p := m.publisher(key)
		if p == nil {
			p = &modelPublisher{key: key, accepted: map[uint64]bool{}, passing: map[uint64]bool{}}
		}
		m.keys.publishers = slices.DeleteFunc(m.keys.publishers, func(o *modelPublisher) bool { return o == p })
		m.keys.publishers = append(m.keys.publishers, p)
		p.time = now
		p.add(seq)
		if delete(p.passing, seq); x.transient {
			p.passing[seq] = true
		}
		for rs := rangesOf(p.passing); len(rs) > mostRanges; rs = rangesOf(p.passing) {
			for n := rs[0].First; n <= rs[0].Last; n++ {
				delete(p.passing, n)
			}
		}
	case m.set.Window > 0:
		m.keys.window = slices.DeleteFunc(m.keys.window, func(s seen) bool { return s.key == key })
		m.keys.window = append(m.keys.window, seen{key: key, time: now, transient: x.transient})
	default:
		for _, o := range m.messages { // one that is there has no time left
			if o.key == key && o.dead == 0 {
				o.key = Key{}
			}
		}
		x.key = key
	}
	m.keepWindow()
}

// rangesOf is a set of numbers as ranges.
func rangesOf(set map[uint64]bool) (rs []Range) {
	for _, n := range sorted(set) {
		if k := len(rs); k > 0 && rs[k-1].Last+1 == n {
			rs[k-1].Last = n
			continue
		}
		rs = append(rs, Range{n, n})
	}
	return rs
}

// recover forgets what was accepted with messages that do not outlive a restart.
func (p *modelPublisher) recover() {
	for n := range p.below {
		p.accepted[n] = true
	}
	for n := range p.passing {
		delete(p.accepted, n)
	}
	clear(p.passing)
	p.below = 0
	p.settle()
}

func (p *modelPublisher) add(seq uint64) {
	if seq < p.below {
		return
	}
	p.accepted[seq] = true
	p.settle()
}

func (p *modelPublisher) settle() {
	for n := uint64(0); p.accepted[p.below] || p.ranges() > mostRanges; n++ {
		for !p.accepted[p.below] {
			p.below++
		}
		delete(p.accepted, p.below)
		p.below++
	}
}

// size is how many ranges there are.
func (p *modelPublisher) size() int { return p.ranges() + len(rangesOf(p.passing)) }

func (p *modelPublisher) ranges() (n int) {
	for seq := range p.accepted {
		if !p.accepted[seq+1] {
			n++
		}
	}
	return n
}

func (m *model) keyBytes() (n int, bytes uint64) {
	for _, p := range m.keys.publishers {
		n++
		bytes += PublisherCost + uint64(p.size())*RangeCost
	}
	for range m.keys.window {
		n++
		bytes += KeyCost
	}
	some := map[Key]bool{}
	for _, x := range m.messages {
		if x.key != (Key{}) && x.dead == 0 {
			some[x.key] = true
		}
	}
	return n + len(some), bytes + uint64(len(some))*KeyCost
}

func (m *model) keepWindow() {
	ms, ok := m.set.Window.Get()
	gone := func(time int64) bool { return ok && time+int64(ms) <= m.now/1e6 }
	for w := m.keys.window; len(w) > 0 && (gone(w[0].time) || len(w) > 1 && uint64(len(w)*KeyCost) > m.set.WindowBytes); w = m.keys.window {
		m.keys.window = w[1:]
	}
	for {
		ps := m.keys.publishers
		bytes := uint64(0)
		for _, p := range ps {
			bytes += PublisherCost + uint64(p.size())*RangeCost
		}
		if len(ps) == 0 || !gone(ps[0].time) && (len(ps) == 1 || bytes <= m.set.WindowBytes) {
			return
		}
		m.keys.publishers = ps[1:]
	}
}

// nextForgotten is the whole minute at which something is to be forgotten, in milliseconds.
func (m *model) nextForgotten() (ms int64, ok bool) {
	window, ok := m.set.Window.Get()
	switch {
	case !ok || m.set.Deduplicate == NoKey:
		return 0, false
	case len(m.keys.window) > 0:
		ms = m.keys.window[0].time
	case len(m.keys.publishers) > 0:
		ms = m.keys.publishers[0].time
	default:
		return 0, false
	}
	return (ms + int64(window) - 1 + 59_999) / 60_000 * 60_000, true
}

func (m *model) rekey(old *Settings) {
	if m.set.Deduplicate != old.Deduplicate || m.set.forever() != old.forever() {
		m.keys = modelKeys{}
		for _, x := range m.messages {
			x.key = Key{}
		}
		for _, s := range m.sessions {
			for _, t := range s.under {
				for i := range t.enqueues {
					terms := *t.enqueues[i].terms()
					terms.Key, terms.Sequence = Key{}, 0
					t.enqueues[i].Terms = &terms
				}
			}
		}
	}
	m.keepWindow()
}

// rareKey gives some enqueues a key.
func (g *generator) rareKey(c *Command) {
	if c.Count > 4 || g.flip() {
		return
	}
	c.own()
	c.Count = 1
	c.Terms.Key = Key{byte(1 + g.IntN(5))}
	if g.IntN(5) > 0 {
		c.Terms.Sequence = Most(g.Uint64N(16))
	}
}

func (g *generator) rareKeys(set *Settings) {
	if g.flip() {
		return
	}
	set.Deduplicate = KeySource(g.IntN(4))
	if g.flip() {
		set.Window = Most(g.Uint64N(12))
	}
	set.WindowBytes = 96 * g.Uint64N(10)
}

// R442: which sequence numbers count as accepted: the ranges agree with a set, in any order of them, also when they are too many.
func TestSequences(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		p, mod := publisher{}, modelPublisher{accepted: map[uint64]bool{}}
		for range 1500 {
			seq := r.Uint64N(2000)
			has := seq < mod.below || mod.accepted[seq]
			if p.has(seq) != has {
				t.Fatalf("seed %d: %d accepted: %v, want %v", seed, seq, p.has(seq), has)
			}
			if !has {
				p.add(seq, false)
				mod.add(seq)
			}
			if p.below != mod.below || len(p.ranges) != mod.ranges() {
				t.Fatalf("seed %d: below %d, %d ranges, want %d, %d", seed, p.below, len(p.ranges), mod.below, mod.ranges())
			}
		}
		if seed == 0 && p.below == 0 {
			t.Error("there were never too many ranges")
		}
	}
	p := publisher{}
	last, _ := Most(^uint64(0)).Get()
	p.add(last, false)
	if !p.has(last) || p.has(last-1) || p.below != 0 {
		t.Errorf("the last number: %+v", p)
	}
	p.add(0, false)
	if !p.has(0) || p.has(1) || p.below != 1 {
		t.Errorf("the first number: %+v", p)
	}
}
