package sim

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"

	"holdfast/internal/planted"
)

var (
	seeds = flag.Int("seeds", 0, "how many seeds are run, from -first on (0: a few of each kind, always the same, and those that were kept)")
	first = flag.Uint64("first", 0, "the first seed (0: any, with -seeds)")
	acts  = flag.Int("acts", 0, "client operations of a seed (0: 5,000 with -seeds, else 600)")
	tell  = flag.Bool("tell", false, "tell what happens")
	watch = flag.Uint64("watch", 0, "a message whose life is told, with -tell")
	plant = flag.Int("plant", 0, "a mistake to make (internal/planted): every seed that notices it is told")
)

const (
	fewSeeds = 48
	fewActs  = 600
	longActs = 5000

	kinds     = 12 // of histories: seeds of one kind are neighbours, kindSeeds of them
	kindSeeds = 4096
)

// aFew returns the i-th of a few seeds of each kind. They are the same in every run: who looks for what nobody has seen asks for it, and a
// change is not blamed for what was there before it.
func aFew(i uint64) uint64 { return i%kinds*kindSeeds + 3000 + i/kinds }

// TestSeeds proves requirements of quorum queues over random histories: a few, or those asked for. R590, R591, R592, R648
func TestSeeds(t *testing.T) {
	n, from, steps := *seeds, *first, *acts
	if n > 0 && steps == 0 {
		steps = longActs
	}
	if n == 0 {
		n = fewSeeds
	}
	if steps == 0 {
		steps = fewActs
	}
	seed := func(i uint64) uint64 { return from + i }
	if from == 0 && *seeds == 0 {
		seed = aFew
	} else if from == 0 {
		from = rand.Uint64N(1 << 40)
		t.Logf("seeds from %d on", from)
	}
	planted.Plant(planted.Bug(*plant))
	defer planted.Plant(planted.None)
	began, told := time.Now(), time.Now()
	var all Stats
	failed := 0
	for i := range uint64(n) {
		st, err := runSeed(t, seed(i), steps)
		all.add(st)
		switch {
		case err != nil && (*plant > 0 || *seeds > 1):
			failed++
			fmt.Printf("seed %d, -acts %d: %v\n", seed(i), steps, err)
		case err != nil:
			failed++
			t.Errorf("-first %d -seeds 1 -acts %d: %v", seed(i), steps, err)
		}
		if *seeds > 1 && time.Since(told) > 20*time.Second {
			told = time.Now()
			fmt.Printf("%d of %d seeds, %d failed, %v\n", i+1, n, failed, time.Since(began).Round(time.Second))
		}
	}
	if *seeds > 0 {
		fmt.Printf("%d seeds of %d operations in %v, %d failed: %+v\n", n, steps, time.Since(began).Round(time.Second), failed, all)
	}
	if failed > 0 && *plant == 0 {
		t.Fatalf("%d of %d seeds failed", failed, n)
	}
}

func (s *Stats) add(o Stats) {
	s.Published += o.Published
	s.Delivered += o.Delivered
	s.Redelivered += o.Redelivered
	s.Accepted += o.Accepted
	s.Unknown += o.Unknown
	s.Refused += o.Refused
	s.Full += o.Full
	s.Damages += o.Damages
	s.PutBack += o.PutBack
	s.Hits += o.Hits
	s.Repaired += o.Repaired
	s.Commands += o.Commands
	s.Restored += o.Restored
	s.Buried += o.Buried
	s.Policies += o.Policies
	s.Pauses += o.Pauses
	s.Transactions += o.Transactions
	s.Letters += o.Letters
	s.Deaths += o.Deaths
	s.Carried += o.Carried
	s.Screened += o.Screened
	s.Twice += o.Twice
	s.Committed += o.Committed
	s.Uncommitted += o.Uncommitted
	s.compared += o.compared
	s.counted += o.counted
	if s.Faults == nil {
		s.Faults = map[string]int{}
	}
	for kind, n := range o.Faults {
		s.Faults[kind] += n
	}
}

// TestKeptSeeds runs the seeds that have failed once.
func TestKeptSeeds(t *testing.T) {
	f, err := os.Open("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		line, _, _ := strings.Cut(in.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		seed, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		steps, err := strconv.Atoi(fields[1])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := runSeed(t, seed, steps); err != nil {
			t.Error(err)
		}
	}
}

// runSeed runs one seed and says what was wrong with it, or nil.
func runSeed(t *testing.T, seed uint64, steps int) (st Stats, err error) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed)
	o := OptionsOf(seed, steps)
	o.Watch = *watch
	if *tell {
		o.Trace = t.Logf
	}
	defer func() {
		if r := recover(); r != nil {
			if *plant == 0 && planted.Is(planted.None) {
				panic(fmt.Sprintf("seed %d, %d operations: %v", seed, steps, r))
			}
			err = fmt.Errorf("seed %d: panic: %v", seed, r)
		}
	}()
	w := New(o)
	err = w.Run()
	return w.check.stats, err
}
