// Package peer is the links between the nodes of a cluster: bytes from one to another, in order, and word of when that is no
// longer so.
//
// A link has three lanes, so that an election never waits behind bodies. Each is an ordered stream in both directions: what
// was sent arrives in order or the link breaks, and nothing sent on a link that broke is known to have arrived. Nodes prove
// to each other that they know the cluster's secret, or show certificates. A heartbeat every 200 ms says that a node is there;
// one that misses four is suspect, judged by our own monotonic time, of which a stall of our own process does not count.
//
// The package knows no raft and no queue, never blocks a sender, never retries a message, and believes nothing that comes out
// of a socket.
//
//	api.go      Links and Handler, with the rules of both;  options.go  how links are set up
//	hello.go    the bytes of a greeting, with drawings;  greet.go  the two sides of one;  tls.go  certificates
//	frame.go    the bytes of a message, and the reader that hands out pieces of its blocks
//	lane.go     what waits to be sent on one lane, and its writer
//	link.go     six connections that make one link: standing, up, broken
//	target.go   one node we want a link to: dialling, backoff, the life of its links
//	tcp.go      the TCP links as a whole: targets, accepting, sending, the pulse
//	call.go     asking who is at an address, and single requests
//	pulse.go    heartbeats and suspicion, without a clock
//	stats.go    what went over the links, counted
//	complain.go log lines that would repeat themselves
//	network.go  the network in memory, stepped by hand;  network_fault.go  what can go wrong in it;  network_node.go  a node of it
//
// docs/internals/peer.md tells how the parts work together.
package peer
