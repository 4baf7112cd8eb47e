package queue

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// modelScreen is what is remembered of an exchange, as a list, the oldest first.
type modelScreen struct {
	exchange uint64
	time     int64
	keys     []seen
}

// modelScreens does what the machine does about screens, in the simplest way.
type modelScreens []*modelScreen

func (m *modelScreens) passTime(now int64) {
	for _, s := range *m {
		s.keys = slices.DeleteFunc(s.keys, func(p seen) bool { return p.ended(now - now%sweepEvery) })
	}
	*m = slices.DeleteFunc(*m, func(s *modelScreen) bool {
		untimed := !slices.ContainsFunc(s.keys, func(p seen) bool { return p.end != 0 })
		return len(s.keys) == 0 || untimed && now-s.time >= screenSilence
	})
}

func (m *modelScreens) accepts(c *Screen, transient bool, now int64) bool {
	at := slices.IndexFunc(*m, func(s *modelScreen) bool { return s.exchange == c.Exchange })
	if at >= 0 && slices.ContainsFunc((*m)[at].keys, func(p seen) bool { return p.key == c.Key && (transient || !p.transient) && !p.ended(now) }) {
		return false
	}
	if c.Window == Most(0) {
		return true
	}
	if at < 0 {
		at = len(*m)
		*m = append(*m, &modelScreen{exchange: c.Exchange})
	}
	s := (*m)[at]
	p := seen{key: c.Key, time: now, transient: transient}
	if ms, ok := c.Window.Get(); ok {
		p.end = now + int64(ms)
	}
	s.keys = slices.DeleteFunc(s.keys, func(p seen) bool { return p.key == c.Key })
	for len(s.keys) >= int(c.Keys) {
		i := max(0, slices.IndexFunc(s.keys, func(p seen) bool { return p.ended(now) }))
		s.keys = slices.Delete(s.keys, i, i+1)
	}
	s.time, s.keys = now, append(s.keys, p)
	for len(*m) > mostScreens || m.count() > mostScreened {
		silent := slices.MinFunc(*m, func(a, b *modelScreen) int {
			return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.exchange, b.exchange))
		})
		if len(*m) <= mostScreens {
			silent.keys = silent.keys[1:]
		} else {
			silent.keys = nil
		}
		*m = slices.DeleteFunc(*m, func(s *modelScreen) bool { return len(s.keys) == 0 })
	}
	return true
}

func (m *modelScreens) count() (n int) {
	for _, s := range *m {
		n += len(s.keys)
	}
	return n
}

// next is when something is to be forgotten.
func (m *modelScreens) next() (ms int64) {
	ms = noEnd
	for _, s := range *m {
		end := int64(noEnd)
		for _, p := range s.keys {
			if p.end != 0 {
				end = min(end, p.end)
			}
		}
		if end == noEnd {
			end = s.time + screenSilence
		}
		ms = min(ms, (end+59_999)/60_000*60_000)
	}
	return ms
}

func (m *modelScreens) recover() {
	for _, s := range *m {
		s.keys = slices.DeleteFunc(s.keys, func(p seen) bool { return p.transient })
	}
	*m = slices.DeleteFunc(*m, func(s *modelScreen) bool { return len(s.keys) == 0 })
}

func (m modelScreens) String() (text string) {
	list := slices.SortedFunc(slices.Values(m), func(a, b *modelScreen) int { return cmp.Compare(a.exchange, b.exchange) })
	for _, s := range list {
		text += fmt.Sprint(s.exchange, s.time, s.keys)
	}
	return text
}

func screensOf(m *Machine) (text string) {
	if m.extra == nil {
		return ""
	}
	for _, s := range m.extra.screens {
		var keys []seen
		s.keys.all(func(p *seen) {
			keys = append(keys, *p)
			keys[len(keys)-1].step = 0
		})
		text += fmt.Sprint(s.exchange, s.time, keys)
	}
	return text
}

// R551 R552 R554 R620 R621 R622: what is let in, and what is remembered of it, are as in a model, also of many exchanges, with times of all lengths, over
// restarts, and in a machine that was restored now and then.
func TestScreensAsInAModel(t *testing.T) {
	duplicates, over := 0, 0
	defer func(most int) { mostScreened = most }(mostScreened)
	for seed := range uint64(36) {
		r := rand.New(rand.NewPCG(seed, 7))
		m, mod, now := New(), modelScreens{}, int64(1000)
		var frozen Frozen
		var before []byte
		exchanges, keys := 1+r.Uint64N(3), 1+r.IntN(40)
		if seed%4 == 0 {
			exchanges = mostScreens + 8
		}
		if mostScreened = 1 << 20; seed%3 == 0 {
			mostScreened = 1 + r.IntN(40)
		}
		for i := range 600 {
			if now += r.Int64N(4); seed%4 > 0 && r.IntN(200) == 0 {
				now += screenSilence - 2 + r.Int64N(4)
			}
			mod.passTime(now)
			c := Command{Kind: Enqueue, Count: 1, Persistent: r.IntN(4) > 0, Terms: &Terms{Screen: &Screen{
				Exchange: 1 + r.Uint64N(exchanges), Key: Key{byte(1 + r.IntN(keys))}, Keys: 1 + r.Uint64N(1+seed%20),
			}}}
			if seed%4 > 0 && r.IntN(3) > 0 {
				c.Terms.Screen.Window = Most(r.Uint64N(60))
			}
			restart := r.IntN(100) == 0
			if restart {
				c = Command{Kind: Recover}
			}
			fx := &Effects{}
			if i%5 == 0 {
				frozen, before = m.Freeze(), m.AppendSnapshot(nil)
			}
			m.Apply(&Entry{Index: m.Applied() + 1, Time: now * millisecond, Commands: []Command{c}}, fx)
			if i%5 == 4 && !bytes.Equal(frozen.Append(nil), before) { // R623
				t.Fatalf("seed %d: what was frozen has changed", seed)
			}
			if restart {
				mod.recover()
			} else {
				want := mod.accepts(c.Terms.Screen, !c.Persistent, now)
				got := !slices.ContainsFunc(fx.List, func(e Effect) bool { return e.Kind == Released && e.Reason == Duplicate })
				if got != want {
					t.Fatalf("seed %d: %+v accepted: %v, want %v", seed, *c.Terms.Screen, got, want)
				}
				if !want {
					duplicates++
				}
				if mod.count() == mostScreened {
					over++
				}
			}
			if next, ok := m.NextDeadline(); ok != (len(mod) > 0) || ok && (next > mod.next()*millisecond || next <= now*millisecond) {
				t.Fatalf("seed %d: at %d the next deadline is %d %v, want %d", seed, now, next, ok, mod.next())
			}
			if i%8 > 0 {
				continue
			}
			if got, want := screensOf(m), mod.String(); got != want {
				t.Fatalf("seed %d: remembered\n%s\nwant\n%s", seed, got, want)
			}
			if err := m.Check(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if r.IntN(3) == 0 {
				m = restored(t, m)
				if next, ok := m.NextDeadline(); ok && next != mod.next()*millisecond {
					t.Fatalf("seed %d: restored, the next deadline is %d, want %d", seed, next, mod.next())
				}
			}
		}
	}
	if duplicates < 500 || over < 500 {
		t.Errorf("only %d duplicates, and %d times as many keys as may be", duplicates, over)
	}
}

// R554: what is kept beside the keys that are remembered does not grow without bound, whichever of them are forgotten first.
func TestForgottenPlacesAreLetGo(t *testing.T) {
	for _, windows := range [][2]Limit{{0, Most(1)}, {Most(1 << 40), Most(1)}, {Most(1 << 40), Most(1 << 41)}} {
		m := New()
		for i := range uint64(5000) {
			c := &Screen{Exchange: 1, Key: Key{byte(i), byte(i >> 8), 1}, Window: windows[min(i, 1)], Keys: 3}
			m.Apply(&Entry{Index: i + 1, Time: int64(i) * 2 * millisecond, Commands: []Command{
				{Kind: Enqueue, Count: 1, Terms: &Terms{Screen: c}}, {Kind: Purge},
			}}, &Effects{})
		}
		if l := &m.extra.screens[0].keys; l.count > 3 || len(l.blocks) > 3 {
			t.Errorf("%d keys, %d blocks", l.count, len(l.blocks))
		}
	}
}

// R554: a snapshot that makes no sense is refused.
func TestScreensThatMakeNoSense(t *testing.T) {
	m := New()
	m.Apply(&Entry{Index: 1, Time: 9 * millisecond, Commands: []Command{
		{Kind: Enqueue, Count: 1, Terms: &Terms{Screen: &Screen{Exchange: 5, Key: Key{1}, Keys: 1}}},
	}}, &Effects{})
	good := m.AppendSnapshot(nil)
	at := len(good) - 21 // exchange, time, 1, time, no end, key
	for name, change := range map[string]func(b []byte){
		"exchange 0":       func(b []byte) { b[at] = 0 },
		"no keys":          func(b []byte) { b[at+2] = 0 },
		"later than now":   func(b []byte) { b[at+1] = 10 },
		"later than last":  func(b []byte) { b[at+3] = 10<<1 | 1 },
		"more than it has": func(b []byte) { b[at+2] = 2 },
		"no key":           func(b []byte) { b[at+5] = 0 },
	} {
		b := slices.Clone(good)
		change(b)
		if New().Restore(b) == nil {
			t.Errorf("%s: restored", name)
		}
	}
	if err := New().Restore(good); err != nil {
		t.Error(err)
	}
}

// A message of a transaction that is left out makes no other one a duplicate: the same comes in as would come in one by one. R553
func TestMessageThatIsLeftOutHidesNoOther(t *testing.T) {
	key := func(n byte) (k Key) { k[0] = n; return k }
	ready := func(tx uint32) uint64 {
		m := New()
		apply := func(ms int64, cmds ...Command) {
			m.Apply(&Entry{Index: m.Applied() + 1, Time: ms * millisecond, Commands: cmds}, &Effects{})
		}
		message := func(id byte, tx uint32) Command {
			return Command{Kind: Enqueue, Session: 5, Count: 1, Persistent: true, Terms: &Terms{
				Tx: tx, Key: key(id), Screen: &Screen{Exchange: 7, Key: key(99), Window: Most(1000), Keys: 10}}}
		}
		apply(1, Command{Kind: Set, Terms: &Terms{Set: &Settings{Deduplicate: MessageIDKey, Window: Most(3_600_000), WindowBytes: 1 << 20}}},
			Command{Kind: SessionOpen, Session: 5})
		apply(10, message(1, 0))
		apply(10_000, message(1, tx), message(2, tx)) // the exchange has forgotten, the queue has not
		if tx != 0 {
			apply(10_000, Command{Kind: Commit, Session: 5, Terms: &Terms{Tx: tx, Parts: 2, Strict: true}})
		}
		return m.Ready()
	}
	if one, all := ready(0), ready(3); one != 2 || all != one {
		t.Errorf("%d messages are ready where they came one by one, and %d of a transaction: want 2", one, all)
	}
}
