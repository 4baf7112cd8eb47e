package ctl

import "github.com/spf13/cobra"

// appCommands are about the process of a node, which is there while the node in it is stopped.
func appCommands() []*command {
	return []*command{stopApp(), startApp(), reset(false), reset(true), joinCluster(), forgetClusterNode(), forceBoot("force_boot"), forceBoot("force_standalone_khepri_boot")}
}

// node is what the node calls itself.
func (r *run) node() (string, error) {
	var state struct{ Node string }
	err := r.client.do(r.ctx, "GET", path("app"), nil, &state)
	return state.Node, err
}

// done says that a command was carried out: to people nothing but what was said before, as rabbitmqctl does.
func (r *run) done(node string) error {
	if r.formatter == "json" {
		return writeJSON(r.Out, map[string]any{"node": node, "result": "ok"})
	}
	return nil
}

// appCommand is a command that makes one request about the process. format and args are what is said before; a nil among
// them stands for the node's name.
func (r *run) appCommand(method, path string, in, out any, format string, args ...any) error {
	node, err := r.node()
	if err != nil {
		return err
	}
	for i, a := range args {
		if a == nil {
			args[i] = node
		}
	}
	r.say(format, args...)
	if err := exitCode(r.client.do(r.ctx, method, path, in, out), ExitUnavailable); err != nil {
		return err
	}
	return r.done(node)
}

func stopApp() *command {
	return &command{
		use: "stop_app", short: "Stops the broker and leaves its process running",
		long: "Stops the broker in an orderly way: clients are told, leaderships handed over. The process stays and answers start_app,\nreset and join_cluster.",
		run: func(r *run, _ []string) error {
			return r.appCommand("POST", path("app", "stop"), nil, nil, "Stopping the application on node %s ...", nil)
		},
	}
}

func startApp() *command {
	return &command{
		use: "start_app", short: "Starts the broker in a process where it was stopped",
		run: func(r *run, _ []string) error {
			return r.appCommand("POST", path("app", "start"), nil, nil, "Starting node %s ...", nil)
		},
	}
}

func reset(force bool) *command {
	c := &command{
		use: "reset", short: "Takes the node, which must be stopped, out of its cluster and empties its data folder",
		long: "Takes the node out of its cluster and removes everything it keeps: messages, queues, users, its identity. It becomes a new\nnode. The broker must have been stopped with stop_app.",
	}
	request, say := path("app", "reset"), "Resetting node %s ..."
	if force {
		c.use, c.short = "force_reset", "Empties the data folder of the node, which must be stopped, without telling its cluster"
		c.long = "Does what reset does, but asks no other node. The cluster keeps its memory of the node until forget_cluster_node is used there."
		request, say = request+"?force=true", "Forcefully resetting node %s ..."
	}
	c.run = func(r *run, _ []string) error { return r.appCommand("POST", request, nil, nil, say, nil) }
	return c
}

func joinCluster() *command {
	var disc, ram bool
	return &command{
		use: "join_cluster address", short: "Makes this node, which must be empty, a member of the cluster of another one", least: 1, most: 1,
		long: "Makes this node a member of the cluster that the node at address (host:port, its cluster.address) is in. The node must be alone and\nempty; reset empties it. Its users and permissions are those of the cluster afterwards. A broker that runs is started anew.",
		flags: func(c *cobra.Command) {
			c.Flags().BoolVar(&disc, "disc", false, "all nodes keep their state on disk; accepted for rabbitmqctl's sake")
			c.Flags().BoolVar(&ram, "ram", false, "refused: there are no nodes without a disk")
		},
		run: func(r *run, args []string) error {
			if ram {
				return usagef("--ram: there are no nodes that keep their state in memory only")
			}
			node, err := r.node()
			if err != nil {
				return err
			}
			r.say("Clustering node %s with %s", node, args[0])
			var answer struct {
				Already bool `json:"already_member"`
			}
			in := map[string]string{"address": args[0]}
			if err := exitCode(r.client.do(r.ctx, "POST", path("cluster", "join"), in, &answer), ExitUnavailable); err != nil {
				return err
			}
			if answer.Already && r.formatter != "json" {
				return r.result(nil, "The node is already a member of this cluster")
			}
			return r.done(node)
		},
	}
}

func forceBoot(name string) *command {
	c := &command{
		use: name, short: "Has this node go on without the others, after the majority of those that vote was lost for good",
		long: "Has this node go on with the catalog alone: for a cluster that has lost the majority of the nodes that vote on it for good, and for nothing else.\n\n" +
			"What others had agreed on and has not reached this node is lost. They must never run again as they are: take each out with forget_cluster_node.\n" +
			"A node that runs, or waits for others, goes on at once; one that is stopped with its next start_app.",
		run: func(r *run, _ []string) error {
			node, err := r.node()
			if err != nil {
				return err
			}
			var answer struct {
				Next bool `json:"next_boot"`
			}
			if err := r.client.do(r.ctx, "POST", path("app", "force-boot"), nil, &answer); err != nil {
				return exitCode(unable(err), ExitUnavailable)
			}
			if answer.Next {
				r.say("Node %s will not wait for the others when it is started: use start_app", node)
			} else {
				r.say("Node %s goes on without the others. Take each of them out with forget_cluster_node", node)
			}
			return r.done(node)
		},
	}
	if name != "force_boot" {
		c.short = "The same as force_boot, by the name that RabbitMQ 4 has for it"
	}
	return c
}

func forgetClusterNode() *command {
	var offline bool
	return &command{
		flags: func(c *cobra.Command) {
			c.Flags().BoolVar(&offline, "offline", false, "this node goes on alone first (see force_boot), where the majority of those that vote was lost for good")
		},
		use: "forget_cluster_node name", short: "Takes another node, which must be stopped, out of the cluster for good", least: 1, most: 1,
		long: "Takes a node that is away out of the cluster: it loses its vote, and the queues that live there are gone with their messages.\nShould it come back it does not start; reset makes a new node of it.",
		run: func(r *run, args []string) error {
			at := path("cluster", "nodes", args[0])
			if offline {
				at += "?offline=true"
			}
			return r.appCommand("DELETE", at, nil, nil, "Removing node %s from the cluster", args[0])
		},
	}
}
