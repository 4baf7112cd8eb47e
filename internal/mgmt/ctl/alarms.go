package ctl

import (
	"fmt"
	"strconv"
	"strings"

	"holdfast/internal/config"
)

// Commands about alarms and their marks, with the names and words of rabbitmqctl and rabbitmq-diagnostics.
func alarmCommands() []*command {
	return []*command{
		alarms(), checkAlarms("check_alarms", "Fails if this node knows of an alarm, its own or of another node", "no alarms, local or clusterwide", false),
		checkAlarms("check_local_alarms", "Fails if this node has an alarm", "no local alarms", true), setMemoryMark(), setDiskMark(),
	}
}

// clusterAlarm is one alarm of a node.
type clusterAlarm struct {
	Type     string `json:"type"`
	Resource string `json:"resource"`
	Node     string `json:"node"`
}

// String is the alarm as people read it.
func (a clusterAlarm) String() string {
	switch a.Resource {
	case "memory":
		return "Memory alarm on node " + a.Node
	case "disk":
		return "Free disk space alarm on node " + a.Node
	}
	return a.Resource + " alarm on node " + a.Node
}

// known fetches the alarms that the node knows: its own, and those of others. what stands in the line that is said before.
func (r *run) known(what string) (self string, local, global []string, err error) {
	var c clusterView
	if err := r.client.do(r.ctx, "GET", path("cluster"), nil, &c); err != nil {
		return "", nil, nil, err
	}
	for _, n := range c.Nodes {
		if n.Self {
			self = n.Name
		}
	}
	r.say("Asking node %s to report any %s resource alarms ...", self, what)
	local, global = []string{}, []string{}
	for _, a := range c.Alarms {
		if a.Node == self {
			local = append(local, a.String())
		} else {
			global = append(global, a.String())
		}
	}
	return self, local, global, nil
}

func alarms() *command {
	return &command{
		use: "alarms", short: "Lists the alarms that this node knows of, its own and those of other nodes",
		run: func(r *run, _ []string) error {
			self, local, global, err := r.known("known")
			if err != nil {
				return err
			}
			all := append(local, global...)
			if len(all) == 0 {
				return r.result(map[string]any{"result": "ok", "node": self, "alarms": []string{}}, "Node %s reported no alarms, local or clusterwide", self)
			}
			if r.formatter == "json" {
				return writeJSON(r.Out, map[string]any{"result": "ok", "local": local, "global": global, "message": fmt.Sprintf("Node %s reported alarms", self)})
			}
			_, err = fmt.Fprintln(r.Out, strings.Join(all, "\n"))
			return err
		},
	}
}

// checkAlarms is a check that fails where there are alarms.
func checkAlarms(use, short, none string, localOnly bool) *command {
	return &command{
		use: use, short: short,
		run: func(r *run, _ []string) error {
			self, local, global, err := r.known("local")
			if err != nil {
				return err
			}
			found := local
			if !localOnly {
				found = append(found, global...)
			}
			switch {
			case len(found) == 0:
				return r.result(map[string]any{"result": "ok"}, "Node %s reported %s", self, none)
			case r.formatter == "json":
				values := map[string]any{"result": "error", "local": local, "message": fmt.Sprintf("Node %s reported alarms", self)}
				if !localOnly {
					values["global"] = global
				}
				if err := writeJSON(r.Out, values); err != nil {
					return err
				}
			}
			return failf(ExitUnavailable, "Error:\n%s", strings.Join(found, "\n"))
		},
	}
}

// fraction reads a number from 0 to most.
func fraction(text string, most float64) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 0 && f <= most) {
		return 0, usagef("%q is not a number from 0 to %g", text, most)
	}
	return f, nil
}

// bytesOf reads a size.
func bytesOf(text string) (uint64, error) {
	b, err := config.ParseBytes(text)
	if err != nil {
		return 0, usagef("the limit %v", err)
	}
	return uint64(b), nil
}

func setMemoryMark() *command {
	return &command{
		use: "set_vm_memory_high_watermark fraction | absolute value", short: "Sets the memory in use above which publishers are blocked, until the node ends",
		least: 1, most: 2,
		run: func(r *run, args []string) error {
			if args[0] == "absolute" {
				if len(args) < 2 {
					return usagef("not enough arguments: absolute needs a size, such as 512MB")
				}
				size, err := bytesOf(args[1])
				if err != nil {
					return err
				}
				return r.order("PUT", path("marks", "memory"), map[string]any{"absolute": size}, "Setting memory threshold on %s to %s bytes ...", nil, args[1])
			}
			if len(args) > 1 {
				return usagef("too many arguments: one fraction, or absolute and a size")
			}
			share, err := fraction(args[0], 1)
			if err != nil {
				return err
			}
			return r.order("PUT", path("marks", "memory"), map[string]any{"relative": share}, "Setting memory threshold on %s to %s ...", nil, args[0])
		},
	}
}

func setDiskMark() *command {
	return &command{
		use: "set_disk_free_limit disk_limit | mem_relative fraction", short: "Sets the free disk space below which publishers are blocked, until the node ends",
		least: 1, most: 2,
		run: func(r *run, args []string) error {
			if args[0] == "mem_relative" {
				if len(args) < 2 {
					return usagef("not enough arguments: mem_relative needs a multiple of the memory there is")
				}
				multiple, err := fraction(args[1], 100)
				if err != nil {
					return err
				}
				return r.order("PUT", path("marks", "disk"), map[string]any{"relative": multiple}, "Setting disk free limit on %s to %s times the total RAM ...", nil, args[1])
			}
			if len(args) > 1 {
				return usagef("too many arguments: one size, or mem_relative and a multiple")
			}
			size, err := bytesOf(args[0])
			if err != nil {
				return err
			}
			return r.order("PUT", path("marks", "disk"), map[string]any{"absolute": size}, "Setting disk free limit on %s to %s bytes ...", nil, args[0])
		},
	}
}
