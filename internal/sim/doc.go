// Package sim runs the nodes of a cluster in one process, one seed, one step at a
// time: real logs on a disk in memory, real raft groups, the real catalog and real queues, and between
// them links, clocks, disks and power that fail as the seed says. Clients publish,
// consume and acknowledge all the while, queues are declared, purged and deleted, members come and go, and a
// checker compares what clients were told with what they got.
//
//   - disk.go: a node's log, stepped
//   - ledger.go: what the log has to hold, and what equal members have to say
//   - world.go: nodes, time
//   - link.go: links between them
//   - fault.go: what goes wrong
//   - catalog.go: a node's part in the catalog, and what must hold of it
//   - queues.go: queues and their members, as people want them
//   - grave.go: a node whose catalog is lost, and that comes back as another one
//   - settings.go: what queues are asked for besides, by arguments and policies, and what must hold then
//   - letters.go: dead letters, and what must hold of them
//   - carried.go: where letters and delayed messages are carried to, and what must hold there
//   - twice.go: messages that come twice
//   - client.go: what clients do
//   - check.go, complain.go: what must hold
//   - end.go: all is healed, all that is left is taken out, and compared
package sim
