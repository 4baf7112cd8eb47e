// Package ctl is the command line side of the local API: the commands of `holdfast ctl`, named, with columns, formats
// and exit codes as in rabbitmqctl.
//
// It speaks HTTP and JSON to the socket in the data folder and knows nothing else of the node: what it prints is what
// the node answered.
//
// Map:
//
//	ctl.go     the command `ctl`, its common flags, how a command runs
//	client.go  one request to the node, and what its errors mean
//	exit.go    exit codes
//	list.go    the list_... commands: a table of listings and their columns
//	policies.go  policies
//	users.go   users, permissions and virtual hosts
//	terminal.go    a password that is typed is not shown (terminal_linux.go, terminal_darwin.go: the names of two calls)
//	queues.go  queues and messages: declare, purge, delete, publish, get, explain, discard
//	node.go    the node: status, ping, environment, closing connections
//	cluster.go cluster_status
//	app.go     the process of a node: stop_app, start_app, reset, join_cluster, forget_cluster_node
//	format.go  table, pretty_table, csv and json
//	value.go   a single value as text
package ctl
