package seglog

import (
	"testing"
	"strings"
)

func TestTmpCkptFlips(t *testing.T) {
	full, back := 0, 0
	for seed := range uint64(150) {
		w := newWorld(t, 5000+seed)
		w.start()
		for range 150 + w.rng.IntN(1500) {
			w.step()
		}
		w.settle()
		names := w.fs.Names("log/checkpoint")
		if len(names) == 0 { continue }
		fs := w.fs.Clone()
		for _, n := range names {
			if strings.HasSuffix(n, ".tmp") { continue }
			fs.Flip(n, 50, 1)
		}
		l, _ := look(t, fs.Clone(), w.o)
		for _, h := range l.Quarantined() {
			if g := w.groups[h.Group]; g != nil && !g.dropped {
				t.Errorf("seed %d: %v", seed, h)
			} else { back++ }
		}
		l.Close(false)
		full++
		reader := l.NewReader()
		_ = reader
		// live groups
		l2, state := look(t, fs, w.o)
		for id, h := range w.groups {
			if h.dropped { continue }
			if want := h.states[h.index]; state[id] != want { t.Errorf("seed %d group %d: %q want %q", seed, id, state[id], want) }
			for n := range h.live {
				ref, ok := l2.Pin(id, n)
				if !ok { t.Errorf("seed %d item %d/%d gone", seed, id, n); continue }
				ref.Unpin()
			}
		}
		l2.Close(false)
	}
	t.Log(full, back)
}
