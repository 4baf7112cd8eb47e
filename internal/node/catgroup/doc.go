// Package catgroup is what a node of a cluster does for the catalog's group and by what the catalog says, as far as it needs
// neither time of its own nor goroutines: the node carries it out, and so does the simulation.
//
//   - forward.go: commands of the catalog on their way to its leader, and their answers
//   - machine.go: the catalog's machine as the group sees it
//   - members.go: how the members of the catalog's group have to change, and those of quorum queues
//   - start.go: which queues run from the start on, and what of the log belongs to none
package catgroup
