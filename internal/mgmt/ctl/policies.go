package ctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// policyCommands set and clear policies and operator policies.
func policyCommands() []*command {
	return []*command{
		setPolicy("set_policy", "policies", "Setting policy", "Sets or updates a policy",
			"A policy gives settings to all queues and exchanges whose names match the pattern, those that are there and those to come. Of those that\n"+
				"match, the one of the highest priority holds."),
		setPolicy("set_operator_policy", "operator-policies", "Setting operator policy override", "Sets or updates an operator policy",
			"An operator policy bounds what policies and declarations may ask for."),
		clearPolicy("clear_policy", "policies", "Clearing policy", "Removes a policy"),
		clearPolicy("clear_operator_policy", "operator-policies", "Clearing operator policy", "Removes an operator policy"),
	}
}

func setPolicy(name, kind, banner, short, long string) *command {
	var priority int64
	var applyTo string
	return &command{
		use: name + " name pattern definition", short: short, least: 3, most: 3,
		long: long + "\n\nname        by which it is replaced and cleared\npattern     a regular expression that is looked for in names\n" +
			"definition  the settings, as a JSON object: {\"max-length\":1000}",
		flags: func(c *cobra.Command) {
			c.Flags().Int64Var(&priority, "priority", 0, "which one holds where several match: the highest")
			c.Flags().StringVar(&applyTo, "apply-to", "all", "all, queues, classic_queues, quorum_queues, streams or exchanges")
		},
		run: func(r *run, args []string) error {
			r.say("%s %s for pattern %s to %s with priority \"%d\" for vhost %s ...", banner, bare(args[0]), bare(args[1]), bare(args[2]), priority, bare(r.vhost))
			if err := json.Unmarshal([]byte(args[2]), new(any)); err != nil {
				return failf(ExitUnavailable, "Error:\nCould not parse JSON document: %v", err)
			}
			return policyError(r.call("PUT", path(kind, r.vhost, args[0]), map[string]any{
				"pattern": args[1], "apply-to": applyTo, "priority": priority, "definition": json.RawMessage(args[2]),
			}), ExitData)
		},
	}
}

func clearPolicy(name, kind, banner, short string) *command {
	return &command{
		use: name + " name", short: short, least: 1, most: 1,
		run: func(r *run, args []string) error {
			r.say("%s %s on vhost %s ...", banner, bare(args[0]), bare(r.vhost))
			return policyError(r.call("DELETE", path(kind, r.vhost, args[0]), nil), ExitUnavailable)
		},
	}
}

// bare is a text in quotes as rabbitmqctl has it: quotes in it stay as they are.
func bare(text string) string { return `"` + clean(text) + `"` }

// policyError is exitCode for a policy: one that is refused has the code that rabbitmqctl ends with.
func policyError(err error, noneCode int) error {
	var r *refused
	if errors.As(err, &r) && r.refusal.Error == "invalid" {
		return failf(ExitUnavailable, "Error:\n%s", r.Reason)
	}
	return exitCode(err, noneCode)
}

// definition shows what a policy says as JSON.
func definition(row map[string]any) {
	var text strings.Builder
	if err := writeJSON(&text, row["definition"]); err != nil {
		row["definition"] = fmt.Sprint(row["definition"])
		return
	}
	row["definition"] = strings.TrimSuffix(text.String(), "\n")
}
