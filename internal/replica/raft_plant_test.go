package replica

import (
	"flag"
	"fmt"
	"testing"

	"holdfast/internal/planted"
)

var findSeeds = flag.Int("raft.find", 0, "look among so many seeds for one that notices each planted mistake")

// mistakes are the planted mistakes, each with a seed of the simulation that must notice it.
var mistakes = []struct {
	m    planted.Bug
	name string
	seed uint64
}{
	{planted.VoteNotWritten, "vote not written", 1},
	{planted.VotesForgotten, "votes forgotten", 9},
	{planted.AnswerBeforeSync, "answer before sync", 1},
	{planted.StagedNotStable, "staged, not stable", 2},
	{planted.PayloadOfOther, "payload of another", 11},
	{planted.CommitAhead, "commit ahead", 2},
	{planted.ConfEarly, "change of members early", 13},
	{planted.InstallWithoutItem, "install without items", 2},
	{planted.ReleasedEarly, "released early", 606},
	{planted.ReleasedTooMuch, "released too much", 4},
	{planted.ServesEarly, "serves early", 2},
	{planted.ReadsUnasked, "reads unasked", 33},
}

// A simulation that notices nothing proves nothing. Each of these mistakes was made here on purpose.
// R183: an answer before the sync is among them.
func TestRaftSimulationNotices(t *testing.T) {
	for _, x := range mistakes {
		t.Run(x.name, func(t *testing.T) {
			if *findSeeds > 0 {
				found := 0
				for seed := uint64(1); seed <= uint64(*findSeeds); seed++ {
					if why := noticed(t, seed, x.m); why != "" {
						if found++; found <= 2 {
							t.Logf("seed %d: %s", seed, why)
						}
					}
				}
				t.Logf("%d of %d seeds notice", found, *findSeeds)
				return
			}
			// A change of what members say to each other gives every seed another history: then another has to notice.
			why := noticed(t, x.seed, x.m)
			for seed := uint64(1); why == "" && seed <= 3000; seed++ {
				if why = noticed(t, seed, x.m); why != "" {
					t.Logf("seed %d does not notice it any more, but %d does", x.seed, seed)
				}
			}
			if why == "" {
				t.Fatal("no seed notices it any more")
			}
		})
	}
}

// noticed runs the simulation with a mistake, and says what was noticed.
func noticed(t *testing.T, seed uint64, m planted.Bug) string {
	w := &witness{T: t}
	planted.Plant(m)
	defer planted.Plant(planted.None)
	func() {
		defer func() {
			if r := recover(); r != nil && w.why == "" {
				w.why = fmt.Sprint(r)
			}
			for i := len(w.cleanups) - 1; i >= 0; i-- {
				w.cleanups[i]()
			}
		}()
		simulate(w, seed, func(*cluster) disk { return newMemLog(w) })
	}()
	return w.why
}

// witness is a test that ends with its first complaint, and does not fail.
type witness struct {
	*testing.T
	why      string
	cleanups []func()
}

func (w *witness) complain(s string) {
	if w.why == "" {
		w.why = s
	}
	panic(w.why)
}

func (w *witness) Fatalf(format string, v ...any) { w.complain(fmt.Sprintf(format, v...)) }
func (w *witness) Errorf(format string, v ...any) { w.complain(fmt.Sprintf(format, v...)) }
func (w *witness) Fatal(v ...any)                 { w.complain(fmt.Sprint(v...)) }
func (w *witness) Error(v ...any)                 { w.complain(fmt.Sprint(v...)) }
func (w *witness) Failed() bool                   { return false }
func (w *witness) Helper()                        {}
func (w *witness) Log(...any)                     {}
func (w *witness) Cleanup(fn func())              { w.cleanups = append(w.cleanups, fn) }
