// Command crash kills a loaded broker again and again and checks that it keeps
// its promises.
//
//	crash rounds    -n 100     kill -9 at random moments under load, restart, check
//	crash space     -n 10000000  one message held while n pass: how much disk is in use
//	crash recovery  -n 1000000   n messages on the disk, kill -9: time to the first delivery
//	crash churn     -n 1000000   one message requeued n times, consumers coming and going: the disk in use
//	crash flood     -n 20        publishers without consumers for n seconds, in 512 MiB of memory: it lives
//	crash overflow  -n 20        the same with what is set by default, where all goes to the disk
//	crash torrent   -n 10        the same with a hundred publishers of messages of 16 MiB
//	crash hoard     -n 15        clients that begin messages and transactions, and never end them: it lives, and serves others
//
// The checks of rounds, per queue, after each restart: no confirmed persistent
// message is lost; none comes twice without the redelivered flag; none comes
// back that was settled two seconds before the kill, or purged, or deleted with
// its queue; no transient message survives; the order of each publisher holds;
// bodies are whole. What the broker carries elsewhere by itself, as it expires, is
// too much for its queue, or is delayed, comes out there. Everything the client was
// told is in a journal that the killed process has no part in.
//
// It never judges what the client was not told: an unconfirmed message may be
// there or not, an ack just sent may have arrived or not.
//
// Map of the files: main.go has the commands; journal.go what the client knows;
// load.go the publishers and consumers; carried.go what the broker carries by itself;
// rounds.go the rounds and their checks;
// stream.go is a fast publisher and consumer; space.go, recovery.go,
// churn.go, flood.go and hoard.go measure.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"holdfast/test/rig"
)

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	modes := map[string]struct {
		n   int
		run func(o options) error
	}{
		"rounds":   {100, runRounds},
		"space":    {10_000_000, runSpace},
		"recovery": {1_000_000, runRecovery},
		"churn":    {1_000_000, runChurn},
		"flood":    {20, runFlood},
		"overflow": {20, runOverflow},
		"torrent":  {10, runTorrent},
		"hoard":    {15, runHoard},
	}
	mode, known := modes[os.Args[1]]
	if !known {
		usage()
	}
	o := options{}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.IntVar(&o.n, "n", mode.n, "rounds or messages")
	flags.Uint64Var(&o.seed, "seed", rand.Uint64(), "seed of the random choices")
	flags.BoolVar(&o.verbose, "v", false, "a line for each round")
	flags.StringVar(&o.dir, "dir", "", "folder for the data; it is kept")
	_ = flags.Parse(os.Args[2:])
	if err := inFolder(o, mode.run); err != nil {
		fmt.Fprintf(os.Stderr, "crash %s: seed %d: %v\n", os.Args[1], o.seed, err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: crash rounds|space|recovery|churn|flood|overflow|torrent|hoard [-n N] [-seed S] [-v] [-dir DIR]")
	os.Exit(2)
}

// options are what a run was asked for.
type options struct {
	n       int
	seed    uint64
	verbose bool
	dir     string
	broker  *rig.Broker
}

// inFolder gives the run a broker with data in a folder. A folder of its own is
// removed unless something was wrong.
func inFolder(o options, run func(o options) error) (err error) {
	dir := o.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "holdfast-crash-"); err != nil {
			return err
		}
		defer func() {
			if err == nil {
				err = os.RemoveAll(dir)
			} else {
				fmt.Fprintln(os.Stderr, "data and log are kept in", dir)
			}
		}()
	}
	binary, err := rig.Binary(dir)
	if err != nil {
		return err
	}
	if o.broker, err = rig.New(binary, filepath.Join(dir, "broker")); err != nil {
		return err
	}
	defer func() {
		if stopped := o.broker.Kill(); err == nil {
			err = stopped
		}
	}()
	return run(o)
}
