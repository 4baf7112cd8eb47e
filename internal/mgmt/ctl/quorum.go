package ctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Commands about the members of quorum queues, with the names and words of rabbitmq-queues and rabbitmq-upgrade.
func quorumCommands() []*command {
	return []*command{
		quorumStatus(), addMember(), deleteMember(), transferLeadership(), grow(), shrink(), rebalance(),
		quorumCritical(), leaderless(), forceShrink(), forceDelete(), drain(), revive(),
	}
}

// unable gives the exit code for an order that was not carried out: what the node refused is as unavailable as what it
// cannot do now, as with rabbitmq-queues.
func unable(err error) error {
	var no *refused
	if errors.As(err, &no) && no.refusal.Error == "refused" {
		return failf(ExitUnavailable, "Error:\n%s", no.Reason)
	}
	return err
}

// order makes a request whose answer does not matter, and says so to a program. format and args are said before; a nil
// among them stands for the node's name.
func (r *run) order(method, path string, in any, format string, args ...any) error {
	node, err := r.announce(format, args...)
	if err != nil {
		return err
	}
	if err := r.call(method, path, in); err != nil {
		return unable(err)
	}
	return r.done(node)
}

// announce says what is about to be done; a nil among args stands for the node's name, which it returns.
func (r *run) announce(format string, args ...any) (node string, err error) {
	if node, err = r.node(); err != nil {
		return "", err
	}
	for i, a := range args {
		if a == nil {
			args[i] = node
		}
	}
	r.say(format, args...)
	return node, nil
}

func quorumPath(r *run, queue string, rest ...string) string {
	return path(append([]string{"queues", "quorum", r.vhost, queue}, rest...)...)
}

// rows fetches rows and prints these columns of them.
func (r *run) rows(method, at string, in any, columns []string) error {
	var rows []map[string]any
	if err := r.client.do(r.ctx, method, at, in, &rows); err != nil {
		return unable(err)
	}
	return r.tabulate(rows, columns)
}

func (r *run) tabulate(rows []map[string]any, columns []string) error {
	t := table{columns: columns}
	for _, row := range rows {
		cells := make([]any, len(columns))
		for i, column := range columns {
			cells[i] = row[column]
		}
		t.rows = append(t.rows, cells)
	}
	return r.print(t)
}

var statusColumns = strings.Split("Node Name,Raft State,Membership,Last Log Index,Last Written,Last Applied,Commit Index,Snapshot Index,Term,Machine Version,Lag,Nacked Publishes", ",")

func quorumStatus() *command {
	return &command{
		use: "quorum_status queue", short: "Displays how the members of a quorum queue stand", least: 1, most: 1, pretty: true,
		run: func(r *run, args []string) error {
			if _, err := r.announce("Status of quorum queue %s on node %s ...", args[0], nil); err != nil {
				return err
			}
			return r.rows("GET", quorumPath(r, args[0], "status"), nil, statusColumns)
		},
	}
}

func addMember() *command {
	var membership string
	return &command{
		use: "add_member queue node [flags]", short: "Adds a member of a quorum queue on the given node", least: 2, most: 2,
		long: "Adds a member of a quorum queue on the given node. It gets the contents of the queue, and a vote when it has caught up.",
		flags: func(c *cobra.Command) {
			c.Flags().StringVar(&membership, "membership", "promotable", "promotable; voter means the same, as soon as the member has caught up")
		},
		run: func(r *run, args []string) error {
			if err := checkMembership(membership); err != nil {
				return err
			}
			return r.order("POST", quorumPath(r, args[0], "replicas", "add"), map[string]any{"node": args[1]},
				"Adding a member for queue %s on node %s...", args[0], args[1])
		},
	}
}

func checkMembership(m string) error {
	switch m {
	case "promotable", "voter":
		return nil
	case "non_voter":
		return usagef("members that never get a vote are not there")
	}
	return usagef("voter status '%s' is not recognised.", m)
}

func deleteMember() *command {
	return &command{
		use: "delete_member queue node", short: "Removes the member of a quorum queue on the given node", least: 2, most: 2,
		run: func(r *run, args []string) error {
			return r.order("DELETE", quorumPath(r, args[0], "replicas", "delete"), map[string]any{"node": args[1]},
				"Removing a replica of queue %s on node %s...", args[0], args[1])
		},
	}
}

func transferLeadership() *command {
	return &command{
		use: "transfer_leadership queue node", short: "Has the member of a quorum queue on the given node lead it", least: 2, most: 2,
		run: func(r *run, args []string) error {
			r.say("Transferring leadership of quorum queue %s to node %s...", args[0], args[1])
			if err := r.call("POST", quorumPath(r, args[0], "leader"), map[string]any{"node": args[1]}); err != nil {
				return unable(err)
			}
			return r.result(map[string]any{"leader": args[1]}, "%s", args[1])
		},
	}
}

// patterns are the flags of a command for many queues.
type patterns struct{ vhost, queue string }

func (p *patterns) flags(c *cobra.Command) {
	c.Flags().StringVar(&p.vhost, "vhost-pattern", ".*", "regular expression that the names of virtual hosts have to match")
	c.Flags().StringVar(&p.queue, "queue-pattern", ".*", "regular expression that the names of queues have to match")
}

var resultColumns = words("vhost name size result")

// results prints what became of an order for many queues.
func (r *run) results(method, at string, in any, errorsOnly bool) error {
	var rows []map[string]any
	if err := r.client.do(r.ctx, method, at, in, &rows); err != nil {
		return unable(err)
	}
	kept := []map[string]any{}
	for _, row := range rows {
		if !errorsOnly || row["result"] != "ok" {
			kept = append(kept, row)
		}
	}
	return r.tabulate(kept, resultColumns)
}

func grow() *command {
	var only patterns
	var membership string
	var errorsOnly bool
	return &command{
		use: "grow node all|even [flags]", short: "Adds a member on the given node to all quorum queues, or to those with an even number of members", least: 2, most: 2,
		flags: func(c *cobra.Command) {
			only.flags(c)
			c.Flags().StringVar(&membership, "membership", "promotable", "as of add_member")
			c.Flags().BoolVar(&errorsOnly, "errors-only", false, "list only queues that reported an error")
		},
		run: func(r *run, args []string) error {
			if args[1] != "all" && args[1] != "even" {
				return usagef("strategy '%s' is not recognised.", args[1])
			}
			if err := checkMembership(membership); err != nil {
				return err
			}
			r.say("Growing %s quorum queues on %s...", args[1], args[0])
			return r.results("POST", path("queues", "quorum", "replicas", "on", args[0], "grow"),
				map[string]any{"strategy": args[1], "vhost_pattern": only.vhost, "queue_pattern": only.queue}, errorsOnly)
		},
	}
}

func shrink() *command {
	var errorsOnly bool
	return &command{
		use: "shrink node [flags]", short: "Removes the members of all quorum queues on the given node", least: 1, most: 1,
		flags: func(c *cobra.Command) {
			c.Flags().BoolVar(&errorsOnly, "errors-only", false, "list only queues that reported an error")
		},
		run: func(r *run, args []string) error {
			r.say("Shrinking quorum queues on %s...", args[0])
			return r.results("DELETE", path("queues", "quorum", "replicas", "on", args[0], "shrink"), nil, errorsOnly)
		},
	}
}

func rebalance() *command {
	var only patterns
	return &command{
		use: "rebalance all|classic|quorum [flags]", short: "Spreads the leaders of quorum queues evenly over the nodes", least: 1, most: 1, pretty: true,
		long:  "Spreads the leaders of quorum queues evenly over the nodes that are up. A classic queue has one copy and stays where it is.",
		flags: only.flags,
		run: func(r *run, args []string) error {
			columns := []string{"Node name", "Number of quorum queues"}
			switch args[0] {
			case "all":
				r.say("Re-balancing leaders of all replicated queues...")
			case "quorum":
				r.say("Re-balancing leaders of quorum queues...")
			case "classic":
				r.say("Re-balancing leaders of replicated (mirrored, non-exclusive) classic queues...")
				return r.tabulate(nil, columns)
			default:
				return usagef("type %s is not supported. Try one of all, classic, quorum.", args[0])
			}
			return r.rows("POST", path("rebalance", "queues"), map[string]any{"vhost_pattern": only.vhost, "queue_pattern": only.queue}, columns)
		},
	}
}

func quorumCritical() *command {
	return &command{
		use: "check_if_node_is_quorum_critical", short: "Fails if there are quorum queues that would lose their majority if the node were stopped",
		run: func(r *run, _ []string) error {
			var answer struct {
				Node        string
				Alone       bool              `json:"single_node_cluster"`
				Maintenance bool              `json:"under_maintenance"`
				Queues      []json.RawMessage `json:"queues"`
			}
			if _, err := r.announce("Checking if node %s is critical for quorum of any quorum queues ...", nil); err != nil {
				return err
			}
			if err := r.client.do(r.ctx, "GET", path("health", "checks", "node-is-quorum-critical"), nil, &answer); err != nil {
				return unable(err)
			}
			passed := func(message string) error {
				if r.formatter == "json" {
					values := map[string]string{"result": "ok"}
					if answer.Alone || answer.Maintenance {
						values["message"] = strings.Replace(message, "Node "+answer.Node, "Target node", 1)
					}
					return writeJSON(r.Out, values)
				}
				return r.result(nil, "%s", message)
			}
			switch {
			case answer.Alone:
				return passed("Node " + answer.Node + " seems to be the only one in a single node cluster, the check does not apply")
			case answer.Maintenance:
				return passed("Node " + answer.Node + " seems to be in maintenance mode, the check does not apply")
			case len(answer.Queues) == 0:
				return passed("Node " + answer.Node + " reported no quorum queues with minimum quorum")
			}
			return r.checkFailed("Node "+answer.Node+" reported local queues with minimum online quorum", answer.Queues,
				" would lose quorum if node "+answer.Node+" is stopped")
		},
	}
}

// checkFailed says which queues a check has found: to a program the list, to people a line for each that ends with what.
func (r *run) checkFailed(message string, queues []json.RawMessage, what string) error {
	if r.formatter == "json" {
		if err := writeJSON(r.Out, map[string]any{"result": "error", "message": message, "queues": queues}); err != nil {
			return err
		}
		return failf(ExitUnavailable, "Error:\n%s", message)
	}
	var lines []string
	for _, q := range queues {
		var named struct {
			Name string `json:"readable_name"`
		}
		if err := json.Unmarshal(q, &named); err != nil {
			return failf(ExitSoftware, "Error: %v", err)
		}
		lines = append(lines, clean(named.Name)+what)
	}
	return failf(ExitUnavailable, "Error:\n%s", strings.Join(lines, "\n"))
}

func leaderless() *command {
	var everywhere bool
	return &command{
		use: "check_for_quorum_queues_without_an_elected_leader [pattern] [flags]", short: "Fails if there are quorum queues without a leader, or whose leader gives no answer", most: 1,
		long: "Fails if there are quorum queues in the virtual host whose names match the regular expression (all, where none is given) and that no node leads.",
		flags: func(c *cobra.Command) {
			c.Flags().BoolVar(&everywhere, "across-all-vhosts", false, "in all virtual hosts")
		},
		run: func(r *run, args []string) error {
			node, err := r.node()
			if err != nil {
				return err
			}
			pattern := ".*"
			if len(args) > 0 {
				pattern = args[0]
			}
			where := []string{"health", "checks", "quorum-queues-without-elected-leaders"}
			if everywhere {
				r.say("Checking leader replicas of quorum queues matching '%s' in all vhosts ...", pattern)
				where = append(where, "all-vhosts")
			} else {
				r.say("Checking leader replicas of quorum queues matching '%s' in vhost %s ...", pattern, r.vhost)
				where = append(where, "vhost", r.vhost)
			}
			err = r.client.do(r.ctx, "GET", path(append(where, "pattern", pattern)...), nil, nil)
			var found *refused
			if errors.As(err, &found) && len(found.queues) > 0 {
				return r.checkFailed("Node "+node+" reported quorum queues with a missing (not elected) or unresponsive leader replica", found.queues,
					" does not have an elected leader replica or the replica was unresponsive")
			}
			if err != nil {
				return unable(err)
			}
			message := "Node " + node + " reported all quorum queues as having responsive leader replicas"
			return r.result(map[string]any{"result": "ok", "message": message}, "%s", message)
		},
	}
}

func forceShrink() *command {
	return &command{
		use: "force_shrink_member_to_current_member queue", short: "Makes the member on this node the only one of a quorum queue, after the others were lost for good", least: 1, most: 1,
		long: "Makes the member on this node the only one of a quorum queue.\n\n" +
			"For a queue that has lost the majority of its members for good, and for nothing else: what this member has not got is lost, and the other members must never run again.",
		run: func(r *run, args []string) error {
			return r.order("POST", quorumPath(r, args[0], "replicas", "force-shrink"), nil,
				"Shrinking quorum queue %s to the member on node %s...", args[0], nil)
		},
	}
}

func forceDelete() *command {
	return &command{
		use: "force_delete queue", short: "Deletes a queue even if it cannot be reached: one that has lost the majority of its members for good", least: 1, most: 1,
		run: func(r *run, args []string) error {
			return r.order("DELETE", path("queues", r.vhost, args[0], "force"), nil,
				"Deleting queue '%s' on vhost '%s', whatever it holds ...", args[0], r.vhost)
		},
	}
}

func drain() *command {
	return &command{
		use: "drain", short: "Puts the node into maintenance mode: others take over what it leads, and it gets no new queues where others can have them",
		run: func(r *run, _ []string) error {
			if _, err := r.announce("Will put node %s into maintenance mode. It will lead no quorum queues, and get no new ones.", nil); err != nil {
				return err
			}
			var answer struct {
				Moved, Left json.Number
				To          map[string]json.Number
			}
			if err := r.client.do(r.ctx, "POST", path("maintenance", "drain"), nil, &answer); err != nil {
				return unable(err)
			}
			var to []string
			for _, node := range slices.Sorted(maps.Keys(answer.To)) {
				to = append(to, fmt.Sprintf("%s to node %s", answer.To[node], clean(node)))
			}
			where := ""
			if len(to) > 0 {
				where = ": " + strings.Join(to, ", ")
			}
			return r.result(map[string]any{"moved": answer.Moved, "to": answer.To, "left": answer.Left},
				"Handed over the leadership of %s quorum queue(s)%s; %s have no other member that could lead", answer.Moved, where, answer.Left)
		},
	}
}

func revive() *command {
	return &command{
		use: "revive", short: "Puts the node back into regular operating mode",
		run: func(r *run, _ []string) error {
			return r.order("POST", path("maintenance", "revive"), nil,
				"Will put node %s back into regular operating mode. The node will again lead quorum queues and get new ones.", nil)
		},
	}
}
