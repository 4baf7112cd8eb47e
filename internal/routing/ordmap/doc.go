// Package ordmap is an ordered map that never changes: every edit gives a new map that shares what it can with the old one.
//
// It is what lets readers of the catalog go without locks. An edit copies the nodes on one path, O(log n). Many edits made
// under one [Edit] copy each node once only. Besides lookup and ordered iteration the map knows ranks, so that page 40 of
// a listing costs as little as the first.
//
// It never calls out, never locks, and knows nothing about what it holds.
//
//	map.go    the map: reading and editing
//	node.go   the tree below it: a B+ tree with sizes
package ordmap
