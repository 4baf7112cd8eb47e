// Package detour leads the messages of two nodes that have lost the link between them through a third that has both.
//
// It stands between the links of a node (peer) and the rooms that use them, and is a peer.Links for those and a
// peer.Handler for these: a node that can be reached by a detour is up like any other. Within the life of a detour nothing is
// lost, repeated or put into another order on one lane, as on a link; what could be ends it.
//
//	detour.go   nodes, links and detours: what is up, and who is told
//	route.go    one detour: opening, messages, the window, the end
//	forward.go  the third node's part
//	frame.go    the bytes
//
// Each heartbeat says whom its sender hears. A node that has not heard another for half a second, or has no link to it, and
// knows of a third that hears it, asks that one to pass on an open; the other side gives up its own link, if it still believes in it,
// and accepts; the first says that it is ready. From then on both count each other as up. As soon as there is a link again the
// detour ends: rooms see a link that went down and came up. So they do if what is sent is not taken for 1.5 s, and there is a third
// node by way of which that has not happened lately: the end that notices opens another detour, by way of that one.
//
// A detour has one step; nobody leads messages on that came by another. What is under way on a lane is bounded
// (window), so that the one in the middle never holds more.
package detour
