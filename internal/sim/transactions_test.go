package sim

import (
	"math/rand/v2"
	"testing"
	"testing/cryptotest"
)

// Transactions happen whole or not at all, and once, whatever becomes of nodes, links and leaders. R530 R534
func TestTransactions(t *testing.T) {
	n, from, steps := *seeds, *first, *acts
	if n == 0 {
		n = 6
	}
	if steps == 0 {
		steps = fewActs
	}
	if from == 0 && *seeds > 0 {
		from = rand.Uint64N(1 << 40)
		t.Logf("seeds from %d on", from)
	}
	var all Stats
	for i := range uint64(n) {
		seed := from + i
		if from == 0 {
			seed = aFew(i)
		}
		cryptotest.SetGlobalRandom(t, seed)
		o := OptionsOf(seed, steps)
		o.Settings, o.RaiseAt, o.Transactions = false, 0, true
		o.Watch = *watch
		if *tell {
			o.Trace = t.Logf
		}
		w := New(o)
		if err := w.Run(); err != nil {
			t.Errorf("-run TestTransactions -first %d -seeds 1 -acts %d: %v", seed, steps, err)
		}
		all.add(w.check.stats)
	}
	t.Logf("%d transactions happened, %d did not", all.Committed, all.Uncommitted)
}
