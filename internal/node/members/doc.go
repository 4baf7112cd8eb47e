// Package members says who has copies of quorum queues and who leads them, and changes it: what an operator orders on any
// node, and what follows by itself.
//
// The truth about a queue's members is in its group's log. The catalog follows: it is what nodes that have no member go by,
// and what tells a node to begin or to end one. Whoever changes the members, the queue's leader, tells the catalog
// afterwards; if it dies in between, the next leader finds the difference. A new member alone has come only when the catalog
// has it: one that nobody could be told of in time is taken out again. The other way round only a node that was taken
// out of the cluster counts: its members are removed from their groups.
//
// An order reaches the node that leads the queue as a question over the link between nodes, and is carried out there. Every
// order may be repeated: a member that is there is not added again, one that is gone not removed again.
//
// Map of the files:
//
//	manager.go  the Manager: what it needs, its start and end
//	ask.go      questions to other nodes, and their answers
//	lead.go     what is carried out where a queue is led
//	tend.go     what a leader does by itself
//	doubt.go    new members that nobody was told of
//	orders.go   what an operator orders for one queue
//	many.go     and for all of them: grow, shrink, rebalance, drain
//	status.go   what an operator is told
package members
