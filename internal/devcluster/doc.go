// Package devcluster runs a cluster of three nodes on one machine, for trying: processes of their own, so that one can be
// killed, on loopback, with data folders beside each other.
//
// It knows processes, ports and folders, and nothing of what the nodes do: whatever they are told stands on their command
// line.
//
//	cluster.go  the cluster: starting, what happens to its nodes, stopping
//	node.go     one process and what it prints
//	plan.go     folders, ports, the secret; what is the same when the cluster is started again
//	sys_*.go    what the system does for children
package devcluster
