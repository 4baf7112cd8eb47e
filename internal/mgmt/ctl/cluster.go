package ctl

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

func clusterCommands() []*command { return []*command{clusterStatus()} }

// clusterView is what cluster_status shows; the node's answer has these fields.
type clusterView struct {
	Name         string                       `json:"cluster_name"`
	DiskNodes    []string                     `json:"disk_nodes"`
	RunningNodes []string                     `json:"running_nodes"`
	Versions     map[string]map[string]string `json:"versions"`
	Maintenance  map[string]string            `json:"maintenance_status"`
	Alarms       []clusterAlarm               `json:"alarms"`
	Partitions   map[string][]string          `json:"partitions"`
	Level        int                          `json:"format_level"`
	Nodes        []struct {
		Name, Address, State, Reason string
		Voter, Leader, Self          bool
		Levels                       struct{ Least, Most int } `json:"format_levels"`
	} `json:"nodes"`
	Listeners map[string][]struct {
		Interface string
		Port      int
		Protocol  string
		Purpose   string
	} `json:"listeners"`
}

func clusterStatus() *command {
	return &command{
		use: "cluster_status", short: "Displays the nodes of the cluster and how they stand, as this node sees it",
		run: func(r *run, _ []string) error {
			var raw json.RawMessage
			if err := r.client.do(r.ctx, "GET", path("cluster"), nil, &raw); err != nil {
				return err
			}
			if r.formatter == "json" {
				return writeJSON(r.Out, raw)
			}
			var c clusterView
			if err := json.Unmarshal(raw, &c); err != nil {
				return failf(ExitSoftware, "Error: %v", err)
			}
			for _, n := range c.Nodes {
				if n.Self {
					r.say("Cluster status of node %s ...", n.Name)
				}
			}
			_, err := fmt.Fprint(r.Out, c.String())
			return err
		},
	}
}

// String gives the status in sections, in the order and words of rabbitmqctl.
func (c *clusterView) String() string {
	var b strings.Builder
	section := func(title string) { fmt.Fprintf(&b, "%s%s\n\n", pick(b.Len() == 0, "", "\n"), title) }
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	plain := func(entries []string) {
		if len(entries) == 0 {
			line("(none)")
		}
		for _, entry := range entries {
			line("%s", entry)
		}
	}

	section("Basics")
	line("Cluster name: %s", c.Name)

	section("Disk Nodes")
	plain(c.DiskNodes)

	section("Running Nodes")
	plain(c.RunningNodes)

	section("Versions")
	for _, name := range slices.Sorted(maps.Keys(c.Versions)) {
		line("%s: Holdfast %s", name, c.Versions[name]["holdfast_version"])
	}

	section("Maintenance status")
	for _, name := range slices.Sorted(maps.Keys(c.Maintenance)) {
		line("Node: %s, status: %s", name, c.Maintenance[name])
	}

	section("Alarms")
	var alarms []string
	for _, a := range c.Alarms {
		alarms = append(alarms, a.String())
	}
	plain(alarms)

	section("Network Partitions")
	if len(c.Partitions) == 0 {
		line("(none)")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Partitions)) {
		line("Node %s has another catalog than %s, and has no part with them: choose which one goes on. On each node with the other: "+
			"ctl stop_app, ctl force_reset. On one that goes on: ctl forget_cluster_node for each of those. Then, on each: ctl start_app",
			name, strings.Join(c.Partitions[name], ", "))
	}

	section("Nodes")
	for _, n := range c.Nodes {
		role := pick(n.Leader, "leads the catalog", pick(n.Voter, "votes", "listens"))
		line("Node: %s, address: %s, state: %s%s, %s", n.Name, pick(n.Address == "", "none", n.Address), n.State, pick(n.Reason == "", "", " ("+n.Reason+")"), role)
	}

	section("Formats")
	line("Level of the cluster: %d", c.Level)
	for _, n := range c.Nodes {
		line("Node: %s, knows: %d to %d", n.Name, n.Levels.Least, n.Levels.Most)
	}

	section("Listeners")
	for _, name := range slices.Sorted(maps.Keys(c.Listeners)) {
		for _, l := range c.Listeners[name] {
			line("Node: %s, interface: %s, port: %d, protocol: %s, purpose: %s", name, l.Interface, l.Port, l.Protocol, l.Purpose)
		}
	}
	return b.String()
}
