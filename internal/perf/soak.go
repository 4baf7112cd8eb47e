package perf

import (
	"context"
	"fmt"
	"time"
)

func presetSoak(o *options) {
	o.size, o.flags, o.confirm, o.prefetch, o.ackEvery = 1024, []string{"persistent"}, 200, 200, 50
	o.share, o.probe, o.warmup, o.time = 0.5, 10*time.Second, 10*time.Second, 20*time.Minute
}

// soakFlags are of a long run at a part of what the broker can do.
func (o *options) soakFlags(s *flagSet) {
	o.loadFlags(s)
	s.number("share", "PART", "without a rate: the part of the highest rate to run at (0.5)", &o.share)
	s.seconds("probe", "SECONDS", "how long the highest rate is looked for (10)", &o.probe)
	s.text("data", "FOLDER", "the broker's data folder, to follow what it takes on the disk", &o.folder)
}

// runSoak finds how fast the broker is, runs at a part of that for long, and
// reports each quarter of the time, so that what creeps up shows.
func (e *env) runSoak(ctx context.Context) (*Report, error) {
	o := e.o
	if o.time == 0 || o.producers == 0 || o.consumers == 0 {
		return nil, usagef("a soak needs a time, producers and consumers")
	}
	most := 0.0
	if o.rate == 0 {
		probe := *o
		probe.scenario, probe.id, probe.time, probe.warmup = "throughput", o.id+"-probe", o.probe, min(o.warmup, 2*time.Second)
		probe.disk, probe.metrics = "", ""
		r, err := (&env{o: &probe, out: e.out, broker: e.broker}).runLoad(ctx)
		if err != nil {
			return nil, err
		}
		if len(r.Errors) > 0 {
			return r, fmt.Errorf("looking for the highest rate: %s", r.Errors[0])
		}
		most = r.Received.Rate
		o.rate = max(o.share*most/float64(o.producers), 1)
		e.say("%.0f messages a second are the most; the soak runs at %.0f", most, o.rate*float64(o.producers))
	}
	r, err := e.runLoad(ctx)
	if err == nil && most > 0 {
		r.figure("highest_rate", most, "messages a second without a limit, before the soak")
	}
	return r, err
}
