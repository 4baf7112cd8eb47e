// Package sim runs the nodes of a cluster in one process, one seed, one step at a
// time: real logs on a disk in memory, real raft groups and real queues, and between
// them links, clocks and power that fail as the seed says. Clients publish,
// consume and acknowledge all the while, and a checker compares what they were told
// with what they got.
//
//   - disk.go: a node's log, stepped
//   - world.go: nodes, links, time, faults
//   - client.go: what clients do
//   - check.go: what must hold
package sim
