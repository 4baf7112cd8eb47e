package sim

import (
	"flag"
	"testing"
	"testing/cryptotest"
)

var (
	seeds = flag.Int("seeds", 30, "how many seeds are run")
	first = flag.Uint64("first", 1, "the first seed")
	trace = flag.Bool("tell", false, "tell what happens")
	watch = flag.Uint64("watch", 0, "a message whose life is told")
	acts  = flag.Int("acts", 1500, "client operations of a seed")
)

// TestSeeds proves requirements of quorum queues over random histories.
func TestSeeds(t *testing.T) {
	for i := range uint64(*seeds) {
		run(t, *first+i)
	}
}

func run(t *testing.T, seed uint64) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed)
	o := Options{Seed: seed, Nodes: 3, Members: 3, Queues: 2, Steps: *acts, Faults: *acts / 100, Watch: *watch}
	switch seed % 4 {
	case 1:
		o.Nodes = 4
	case 2:
		o.KeepTail, o.KeepEntries = 1, 1
	case 3:
		o.Nodes, o.Members = 5, 5
	}
	if *trace {
		o.Trace = t.Logf
	}
	w := New(o)
	err := w.Run()
	t.Logf("seed %d: %d published, %+v", seed, len(w.check.records), w.check.stats)
	if err != nil {
		t.Fatal(err)
	}
}
