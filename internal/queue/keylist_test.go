package queue

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

func keyOf(n uint64) (k Key) {
	binary.LittleEndian.PutUint64(k[:], n*0x9e3779b97f4a7c15+1)
	binary.LittleEndian.PutUint64(k[8:], n)
	return k
}

func keysOf(l *keyList) (ks []seen) {
	l.all(func(s *seen) {
		ks = append(ks, *s)
		ks[len(ks)-1].step = 0
	})
	return ks
}

// A list of keys is as a slice, whichever are forgotten, and a view of it stays as it was. What it takes follows what it has. R551 R623
func TestKeyListAsASlice(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 1))
		l, mod, now, next := &keyList{}, []seen{}, int64(0), uint64(0)
		type taken struct {
			view keyList
			was  []seen
		}
		var views []taken
		most := 1 + r.IntN(8000)
		for range 60 {
			for range r.IntN(600) {
				now += r.Int64N(3)
				next++
				s := seen{key: keyOf(next), time: now, transient: r.IntN(9) == 0}
				switch r.IntN(3) {
				case 0:
					s.end = now + 1 + r.Int64N(100)
				case 1:
					s.end = now + 1 + r.Int64N(20_000)
				}
				l.add(s)
				mod = append(mod, s)
				for len(mod) > most {
					l.forgetOldest()
					mod = mod[1:]
				}
			}
			switch r.IntN(5) {
			case 0:
				for _, i := range r.Perm(len(mod))[:len(mod)/(1+r.IntN(8))] {
					l.forget(mod[i].key)
					mod[i].key = Key{}
				}
				mod = slices.DeleteFunc(mod, func(s seen) bool { return s.key == Key{} })
			case 1, 2:
				n := r.IntN(1000)
				got, want := l.expire(now, n), 0
				mod = slices.DeleteFunc(mod, func(s seen) bool {
					if s.end == 0 || s.end > now || want == n {
						return false
					}
					want++
					return true
				})
				if got != want {
					t.Fatalf("seed %d: %d have ended, want %d", seed, got, want)
				}
			case 3:
				if r.IntN(8) == 0 {
					l.recover()
					mod = slices.DeleteFunc(mod, func(s seen) bool { return s.transient })
				}
			}
			if !slices.Equal(keysOf(l), mod) {
				t.Fatalf("seed %d: %d keys, want %d", seed, len(keysOf(l)), len(mod))
			}
			w := checker{}
			if w.keyList(l, "list"); w.err != nil {
				t.Fatalf("seed %d: %v", seed, w.err)
			}
			if len(mod) > 0 {
				if o := l.oldest(); o.key != mod[0].key {
					t.Fatalf("seed %d: the oldest is %v", seed, o)
				}
				if s := mod[r.IntN(len(mod))]; l.find(s.key) == nil || l.find(s.key).time != s.time {
					t.Fatalf("seed %d: %v is not found", seed, s)
				}
			}
			if l.find(keyOf(next+1)) != nil {
				t.Fatalf("seed %d: a key is found that has not come", seed)
			}
			slots := 0
			for i := range l.blocks {
				slots += cap(l.blocks[i].items)
			}
			if slots > 8*len(mod)+3*keyItems {
				t.Fatalf("seed %d: room for %d keys, there are %d", seed, slots, len(mod))
			}
			if len(l.blocks) > len(mod)/(keyItems/8)+3 {
				t.Fatalf("seed %d: %d blocks for %d keys", seed, len(l.blocks), len(mod))
			}
			for i, s := range l.places {
				if s.most > max(4*len(s.at)+4, 64) {
					t.Fatalf("seed %d: map %d was made for %d keys and has %d", seed, i, s.most, len(s.at))
				}
			}
			views = append(views, taken{l.view(), slices.Clone(mod)})
		}
		for i, v := range views {
			if !slices.Equal(keysOf(&v.view), v.was) {
				t.Fatalf("seed %d: view %d has changed", seed, i)
			}
		}
	}
}

// screened lets a message in through an exchange and takes it away again, and reports whether it was a duplicate.
func (r *rig) screened(ms int64, s *Screen, persistent bool) (twice bool) {
	r.e.Time = max(r.e.Time, ms*millisecond-1000)
	fx := r.apply(Command{Kind: Enqueue, Count: 1, Persistent: persistent, Terms: &Terms{Screen: s}})
	twice = slices.ContainsFunc(fx, func(e Effect) bool { return e.Kind == Released && e.Reason == Duplicate })
	r.apply(Command{Kind: Purge})
	return twice
}

// screenedAll lets n messages in at the same time.
func (r *rig) screenedAll(ms int64, n int, s func(i int) *Screen) {
	r.e.Time = max(r.e.Time, ms*millisecond-1000)
	var cs []Command
	for i := range n {
		cs = append(cs, Command{Kind: Enqueue, Count: 1, Persistent: true, Terms: &Terms{Screen: s(i)}})
	}
	r.apply(append(cs, Command{Kind: Purge})...)
}

// R620: keys of all exchanges together have a bound in a queue: that through which nothing has come for longest loses its oldest.
func TestKeysOfAllExchangesAreBounded(t *testing.T) {
	defer func(most int) { mostScreened = most }(mostScreened)
	mostScreened = 1000
	r := newRig()
	for i := range uint64(5000) {
		r.screened(int64(i), &Screen{Exchange: 1 + i/600, Key: keyOf(i), Keys: 1_000_000}, true)
		if n, bytes := r.m.Keys(); n > 1000 || bytes > 1000*KeyCost {
			t.Fatalf("%d keys, %d bytes", n, bytes)
		}
	}
	// 4800 to 4999 have come by way of 9, 4200 to 4799 of 8, and what is left of 7 are the last ones.
	for i, want := range map[uint64]bool{4000: true, 3999: false, 4199: true, 4200: true, 4999: true} {
		if got := restored(t, r.m).isScreened(&Screen{Exchange: 1 + i/600, Key: keyOf(i)}, false); got != want {
			t.Errorf("key %d is known: %v", i, got)
		}
	}
}

// R620: an exchange may remember as many keys as may be asked for, and the budget is in the unit of Keys.
func TestOneExchangeHasRoom(t *testing.T) {
	if bytes := mostScreened * KeyCost; bytes > 144<<20 || mostScreened < 1_000_000 {
		t.Errorf("%d keys of %d bytes", mostScreened, bytes)
	}
}

// R621: nobody uses the queue any more: what has had its time is forgotten all the same, in not many entries.
func TestIdleQueueForgets(t *testing.T) {
	r := newRig()
	const hour = 3_600_000
	for i := range int64(4000) {
		r.screened(i*1000, &Screen{Exchange: 7, Key: keyOf(uint64(i)), Keys: 1_000_000, Window: Most(hour)}, true)
	}
	r.screened(4_000_000, &Screen{Exchange: 8, Key: Key{1}, Keys: 10}, true)
	dues, last := 0, r.e.Time
	for {
		at, ok := r.m.NextDeadline()
		if !ok {
			break
		}
		if at%(60_000*millisecond) != 0 || at <= last {
			t.Fatalf("due at %d, after %d", at, last)
		}
		dues, last = dues+1, at
		r.e.Time = at - 1000 // which apply adds
		r.apply(Command{Kind: Due})
		if got, want := r.m.AppendSnapshot(nil), restored(t, r.m).AppendSnapshot(nil); !slices.Equal(got, want) {
			t.Fatal("another state")
		}
	}
	if n, _ := r.m.Keys(); n != 0 || r.m.extra != nil {
		t.Errorf("%d keys are left", n)
	}
	if dues > 4000/60+3 {
		t.Errorf("%d entries", dues)
	}
	if week := int64(screenSilence+4_000_000) * millisecond; last < week || last > week+60_000*millisecond {
		t.Errorf("the last at %d", last)
	}
}

// R621: the same of a window, and of publishers.
func TestIdleQueueForgetsItsWindow(t *testing.T) {
	for _, source := range []KeySource{MessageIDKey, PublisherKey} {
		r := newRig(Command{Kind: Set, Terms: &Terms{Set: &Settings{Deduplicate: source, Window: Most(600_000), WindowBytes: 1 << 20}}})
		for i := range uint64(100) {
			r.e.Time = int64(i) * 1000 * millisecond
			r.apply(Command{Kind: Enqueue, Count: 1, Terms: &Terms{Key: keyOf(i), Sequence: Most(i)}}, Command{Kind: Purge})
		}
		dues := 0
		for at, ok := r.m.NextDeadline(); ok; at, ok = r.m.NextDeadline() {
			r.e.Time = at - 1000
			r.apply(Command{Kind: Due})
			dues++
		}
		if n, _ := r.m.Keys(); n != 0 || dues < 2 || dues > 4 {
			t.Errorf("%v: %d keys are left after %d entries", source, n, dues)
		}
	}
}

// R623: of very many keys that end at once each entry forgets some. The others do not count any more, and are no others' loss.
func TestManyEndAtOnce(t *testing.T) {
	const n = 2*mostForgotten + 100
	at := func(i int) *Screen {
		return &Screen{Exchange: 7, Key: keyOf(uint64(i)), Keys: n + 2, Window: Most(9000)} // from 1 on
	}
	for name, first := range map[string]func(r *rig){
		"untimed": func(r *rig) { r.screened(0, &Screen{Exchange: 7, Key: Key{9}, Keys: n + 2}, true) },
		"nothing": func(*rig) {},
	} {
		r := newRig()
		first(r)
		before, _ := r.m.Keys()
		r.screenedAll(1, n, at)
		due := func(ms int64) int {
			r.e.Time = ms*millisecond - 1000
			r.apply(Command{Kind: Due})
			keys, _ := r.m.Keys()
			return keys - before
		}
		if got := due(9000); got != n {
			t.Errorf("%s: %d keys before their time", name, got)
		}
		if got := due(10_000); got != n-mostForgotten {
			t.Errorf("%s: %d keys behind the first entry, want %d", name, got, n-mostForgotten)
		}
		if next, ok := r.m.NextDeadline(); !ok || next != 60_000*millisecond {
			t.Errorf("%s: due at %d", name, next)
		}
		twin := &rig{m: restored(t, r.m), e: Entry{Index: r.e.Index, Time: r.e.Time}}
		for _, x := range []*rig{r, twin} {
			if x.screened(10_000, at(n-1), true) {
				t.Errorf("%s: a key that has had its time makes a duplicate", name)
			}
			if !x.screened(10_000, at(n-1), true) {
				t.Errorf("%s: it came twice", name)
			}
			if x.screened(10_000, at(0), true) {
				t.Errorf("%s: a key that was forgotten makes a duplicate", name)
			}
		}
		if !slices.Equal(r.m.AppendSnapshot(nil), twin.m.AppendSnapshot(nil)) {
			t.Errorf("%s: another state after a restore", name)
		}
		if got := due(10_001); got != 2 {
			t.Errorf("%s: %d keys are left, want 2", name, got)
		}
		if before > 0 && !r.screened(10_002, &Screen{Exchange: 7, Key: Key{9}, Keys: n + 2}, true) {
			t.Errorf("%s: what has no time was forgotten", name)
		}
	}
	// The same in a window, and of publishers.
	for _, source := range []KeySource{MessageIDKey, PublisherKey} {
		r := newRig(Command{Kind: Set, Terms: &Terms{Set: &Settings{Deduplicate: source, Window: Most(1000), WindowBytes: 1 << 30}}})
		put := func(ms int64, from, to int) {
			r.e.Time = ms*millisecond - 1000
			var cs []Command
			for i := from; i < to; i++ {
				cs = append(cs, Command{Kind: Enqueue, Count: 1, Persistent: true, Terms: &Terms{Key: keyOf(uint64(i)), Sequence: Most(3)}})
			}
			r.apply(cs...)
		}
		put(1, 0, n)
		put(1000, n-1, n)
		if r.m.Ready() != n {
			t.Errorf("%v: %d messages: one came twice", source, r.m.Ready())
		}
		put(1001, n-1, n)
		if keys, _ := r.m.Keys(); r.m.Ready() != n+1 || keys != n-mostForgotten {
			t.Errorf("%v: %d messages and %d keys: one that was out of the window made a duplicate", source, r.m.Ready(), keys)
		}
		if err := r.m.Check(); err != nil {
			t.Error(err)
		}
	}
	// There is no room: what has had its time goes first, though others are older.
	r := newRig()
	r.screened(0, &Screen{Exchange: 7, Key: Key{9}, Keys: n + 1}, true)
	r.screenedAll(1, n, func(i int) *Screen {
		return &Screen{Exchange: 7, Key: keyOf(uint64(i)), Keys: n + 1, Window: Most(9000)}
	})
	r.e.Time = 10_000*millisecond - 1000
	keys := []Command{}
	for i := range mostForgotten + 10 {
		keys = append(keys, Command{Kind: Enqueue, Count: 1, Persistent: true, Terms: &Terms{Screen: &Screen{Exchange: 7, Key: keyOf(uint64(n + i)), Keys: n + 1}}})
	}
	r.apply(keys...)
	if !r.screened(10_000, &Screen{Exchange: 7, Key: Key{9}, Keys: n + 1}, true) {
		t.Error("the oldest was forgotten for others that have had their time")
	}
}
