// Package cluster is what nodes decide about each other: how they find together, who is there, where queues live, and who
// should lead.
//
// Everything in it is pure: it is given the time, the catalog's view and what others said, and returns what to do. It
// starts no goroutine and does no I/O, except for the driver of the forming, which calls and saves through functions it
// is given.
//
// Nodes are known by the number of their data folder (catalog.Node.ID); a wiped folder is another node.
//
// Map of the files:
//
//	placement.go      where the copies of a new queue live, who votes in the catalog's group
//	balance.go        which leaderships to move, so that every node has its share or a drained one has none
//	health.go         Detector: who is up, suspect or gone, and why
//	state.go          what a node has to remember of its cluster: the part of identity.json that is ours
//	forming.go        Former: how nodes that were given a list of addresses become one cluster
//	forming_round.go  and how they agree on it
//	forming_serve.go  the other side: answering
//	forming_wire.go   what they say to each other, as bytes
//	driver.go         Driver: runs a Former
//	caller.go         Caller: a single node is told which cluster to join
package cluster
