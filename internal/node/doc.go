// Package node puts the rooms together into one running broker: it locks the
// data folder, opens the log, brings catalog and queues back, serves clients,
// and stops in an order that loses nothing. It is the only place that knows
// every room, and it decides nothing that a room could decide.
//
// It never looks inside a message, a record or a frame.
//
// Map of the files:
//
//	node.go      Options, Start: the order of coming up
//	before.go    what would end a start, looked for before anything is written
//	stop.go      Stop and fail-stop: the order of going down
//	life.go      a process whose node is stopped, reset and started again
//	reset.go     a data folder that is emptied
//	join.go      a node that is told to join a cluster, or to leave it
//	forget.go    another node that is taken out
//	mesh.go      the node's part in its cluster: links, and who hears what comes over them
//	resolve.go   host names that stand for several nodes
//	watchmesh.go how the other nodes stand, and what the catalog's leader does for them
//	belong.go    who is in the cluster, for a node that was away
//	calls.go     what nodes ask each other outside their links
//	levels.go   which formats it knows, and the cluster uses
//	meshfacts.go what cluster_status shows
//	identity.go  the data folder: its lock, who it belongs to, incarnations
//	reconcile.go what the catalog says against what the log holds
//	listen.go    listeners, TLS, certificates that change
//	memory.go    how much memory there is
//	watch.go     memory and disk marks
//	manage.go    the management side: what status shows
//	numbers.go   the numbers of a scrape, gathered from the rooms
//	salvage.go   what the log of a stopped node holds, and messages out of a damaged one
//	report.go    what is said at the start
//	catgroup     what it does for the catalog's group, without time and goroutines
//	members      who has copies of quorum queues
package node
