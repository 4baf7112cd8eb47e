package sim

import (
	"flag"
	"testing"

	"holdfast/internal/planted"
)

var find = flag.Int("find", 0, "look among so many seeds, from -first on, for one that notices the mistake -plant, at several lengths")

// noticed are mistakes made on purpose, each with a seed and its length that must notice it.
var noticed = []struct {
	bug   planted.Bug
	seed  uint64
	steps int
}{
	{planted.SyncSkipped, 3, 300},
	{planted.TailCutTooFar, 3, 300},
	{planted.DamageUnseen, 236, 300},
	{planted.CommitAhead, 1, 300},
	{planted.ServesEarly, 6, 300},
	{planted.CountLost, 1, 300},
	{planted.FlagLost, 1, 300},
	{planted.DoubleCheckout, 1, 300},
	{planted.DeadKeeps, 1, 300},
	{planted.SettlesAnother, 1, 300},
	{planted.EpochForgotten, 2, 1000},
	{planted.PurgeTakesHeld, 1, 300},
	{planted.ConfirmEarly, 12, 300},
	{planted.EpochNotRaised, 26, 300},
	{planted.SentTwice, 26, 300},
	{planted.SettlesNotResent, 6, 300},
	{planted.ResumedTooFar, 2, 300},
	{planted.CreditDoubled, 4, 300},
	{planted.GetterKeeps, 20, 300},
	{planted.StaleTry, 20, 300},
	{planted.SettledEarly, 8, 300},
	{planted.IDsForgotten, 4, 300},
	{planted.FollowerSkips, 1, 300},
	{planted.OrderLost, 1, 300},
	{planted.ConsumersNotAgain, 2, 300},
	{planted.WindowLeaks, 130, 1000},
	{planted.BarrierAtOnce, 16, 300},
	{planted.CommandSkipped, 1, 300},
	{planted.CommandTwice, 6, 300},
	{planted.StateUnheard, 108, 1500},
	{planted.AnsweredHere, 1, 300},
	{planted.SyncForgets, 662, 300},
	{planted.ChunksKept, 153, 2500},
	{planted.WallClock, 4134, 300},
	{planted.DeadlineLost, 4097, 300},
	{planted.LimitEarly, 4160, 300},
	{planted.TwoActive, 4101, 300},
	{planted.RefusalsForgotten, 4098, 300},
	{planted.OneTooMany, 4122, 300},
	{planted.DeadReleased, 4100, 300},
	{planted.BuriedStay, 4098, 300},
	{planted.RefusedAccepted, 4098, 300},
	{planted.HeardTooFar, 4098, 300},
	{planted.SettingsForgotten, 4097, 1000},
	{planted.LettersUntold, 4098, 300},
	{planted.DueUndone, 4098, 300},
	{planted.PolicyUnheard, 4106, 300},
	{planted.TxHalf, 4097, 300},
	{planted.TxSettlesLost, 4097, 300},
	{planted.KeyUnkept, 4097, 1000},
	{planted.PauseLeaks, 4113, 300},
	{planted.DelayHalved, 4098, 300},
	{planted.DelayUnread, 4098, 300},
	{planted.LevelUnheard, 12292, 300},
	{planted.BuriedEarly, 20482, 300},
	{planted.RefusedArrive, 20482, 300},
	{planted.HeldStay, 20482, 300},
	{planted.SentToAll, 20487, 300},
	{planted.CarriedAsNew, 20495, 300},
	{planted.KeyStays, 20482, 300},
	{planted.KeyFreed, 20502, 300},
	{planted.NumbersSkipped, 20497, 300},
	{planted.ScreensMixed, 20481, 300},
	{planted.ScreenUnsent, 20483, 300},
}

// A simulation that notices nothing proves nothing. Without the mistake the same seed has nothing to complain about.
func TestPlantedMistakesAreNoticed(t *testing.T) {
	type run struct {
		seed  uint64
		steps int
	}
	clean := map[run]bool{}
	for _, x := range noticed {
		t.Run(x.bug.String(), func(t *testing.T) {
			if r := (run{x.seed, x.steps}); !clean[r] {
				if _, err := runSeed(t, x.seed, x.steps); err != nil {
					t.Fatalf("without any mistake: %v", err)
				}
				clean[r] = true
			}
			_, err := runPlanted(t, x.bug, x.seed, x.steps)
			// A change of what nodes say to each other gives every seed another history: then another seed has to notice.
			for seed := x.seed&^4095 + 1; err == nil && seed <= x.seed&^4095+400; seed++ {
				if _, err = runPlanted(t, x.bug, seed, x.steps); err != nil {
					t.Logf("seed %d does not notice it any more, but %d does", x.seed, seed)
				}
			}
			if err == nil {
				t.Fatal("no seed notices it any more; -run FindPlanted looks at longer ones")
			}
			t.Log(err)
		})
	}
}

func runPlanted(t *testing.T, bug planted.Bug, seed uint64, steps int) (Stats, error) {
	planted.Plant(bug)
	defer planted.Plant(planted.None)
	return runSeed(t, seed, steps)
}

// TestFindPlanted looks for seeds that notice a mistake.
func TestFindPlanted(t *testing.T) {
	if *find == 0 {
		t.Skip("-find")
	}
	bug := planted.Bug(*plant)
	for _, steps := range []int{300, 1000, 3000} {
		for seed := max(*first, 1); seed < max(*first, 1)+uint64(max(*find*300/steps, 5)); seed++ {
			_, err := runPlanted(t, bug, seed, steps)
			if err == nil {
				continue
			}
			if _, other := runSeed(t, seed, steps); other != nil {
				t.Logf("seed %d, %d operations, without any mistake: %v", seed, steps, other)
				continue
			}
			t.Logf("%d %v: {%d, %d}: %v", bug, bug, seed, steps, err)
			return
		}
	}
	t.Logf("%d %v: nothing", bug, bug)
}
