package ctl

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// redriven is how far a redrive is.
type redriven struct {
	Sent   uint64            `json:"sent"`
	Passed uint64            `json:"passed"`
	Left   map[string]uint64 `json:"left"`
	To     map[string]uint64 `json:"to"`
}

// whyLeft says of a message that it is left where it is.
var whyLeft = map[string]string{
	"no_history":  "do not say where they died",
	"no_queue":    "died in a queue that is gone",
	"no_exchange": "are for an exchange that is gone",
	"no_route":    "have no queue bound for them",
	"same_queue":  "would come back to this queue",
	"unavailable": "are for a queue that takes none now",
	"refused":     "were refused by a queue",
	"unknown":     "may have arrived, nobody has said in time",
	"unreadable":  "cannot be read",
}

// String is the state in one line.
func (p *redriven) String() string {
	left := uint64(0)
	for _, n := range p.Left {
		left += n
	}
	return fmt.Sprintf("%d sent back, %d passed over, %d left", p.Sent, p.Passed, left)
}

func redrive() *command {
	var to, exchange, key, reason, from string
	var olderThan time.Duration
	var limit uint64
	var rate float64
	var dryRun bool
	var flags *cobra.Command
	return &command{
		use: "redrive queue [flags]", short: "Sends the messages of a queue of dead letters back to where they died", least: 1, most: 1,
		long: "Sends the messages that are ready in a queue of dead letters back to the queues in which they died last, as they were there. Each is looked at once. " +
			"A message leaves only when the other queue has it, so that a crash may leave it in both. What cannot go stays in its place, and what is passed over, too. " +
			"It runs in the node; to interrupt this command ends it. --timeout does not count.",
		flags: func(c *cobra.Command) {
			flags = c
			f := c.Flags()
			f.StringVar(&to, "to", "last", "where they go: last or first, the queue in which they died last or first")
			f.StringVar(&exchange, "exchange", "", "publish them to this exchange instead")
			f.StringVar(&key, "routing-key", "", "publish them with this routing key instead; without --exchange it is the name of a queue")
			f.StringVar(&reason, "reason", "", "only those that died of this: rejected, expired, maxlen or delivery_limit")
			f.StringVar(&from, "queue", "", "only those that died in this queue")
			f.DurationVar(&olderThan, "older-than", 0, "only those that died so long ago or longer, as in 90m or 24h")
			f.Uint64Var(&limit, "limit", 0, "so many at most; 0: no limit")
			f.Float64Var(&rate, "rate", 0, "so many a second at most; 0: no limit")
			f.BoolVar(&dryRun, "dry-run", false, "only say what would be sent")
		},
		run: func(r *run, args []string) error {
			in := map[string]any{
				"first": to == "first", "reason": reason, "from": from, "older_than": int64(olderThan / time.Second),
				"limit": limit, "rate": rate, "dry_run": dryRun,
			}
			if to != "first" && to != "last" {
				return usagef("--to is last or first, not %q", to)
			}
			if flags.Flags().Changed("exchange") {
				in["exchange"] = exchange
			}
			if flags.Flags().Changed("routing-key") {
				in["routing_key"] = key
			}
			what := "Sending messages of queue '%s' in vhost '%s' back ..."
			if dryRun {
				what = "Looking which messages of queue '%s' in vhost '%s' could be sent back ..."
			}
			r.say(what, args[0], r.vhost)
			var line struct {
				Progress redriven `json:"progress"`
				Done     bool     `json:"done"`
				Error    string   `json:"error"`
			}
			err := r.client.lines(r.whole, "POST", path("queues", r.vhost, args[0], "redrive"), in, func(text []byte) error {
				line.Progress = redriven{}
				if err := json.Unmarshal(text, &line); err != nil {
					return failf(ExitSoftware, "Error: %v", err)
				}
				if !line.Done {
					r.say("%v", &line.Progress)
				}
				return nil
			})
			switch {
			case err != nil:
				return unable(err)
			case !line.Done:
				return failf(ExitUnavailable, "Error: the node has gone. So far: %v", &line.Progress)
			}
			if err := r.redriven(&line.Progress, dryRun); err != nil || line.Error == "" {
				return err
			}
			return failf(ExitUnavailable, "Error: it has ended early: %s", line.Error)
		},
	}
}

// redriven prints the end of a redrive.
func (r *run) redriven(p *redriven, dryRun bool) error {
	if r.formatter == "json" {
		return writeJSON(r.Out, p)
	}
	if r.quiet || r.silent {
		return nil
	}
	done := "sent back"
	if dryRun {
		done = "would be sent back"
	}
	fmt.Fprintf(r.Out, "%d %s%s\n", p.Sent, done, named(p.To))
	if p.Passed > 0 {
		fmt.Fprintf(r.Out, "%d passed over\n", p.Passed)
	}
	for _, why := range slices.Sorted(maps.Keys(p.Left)) {
		text := whyLeft[why]
		if text == "" {
			text = why
		}
		fmt.Fprintf(r.Out, "%d left: they %s\n", p.Left[why], text)
	}
	return nil
}

// named lists numbers of queues.
func named(of map[string]uint64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s %d", clean(name), of[name]))
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}
