// Package socket is the local door of a node: a unix socket in the data folder that only the folder's owner can open.
// The node listens on it, ctl connects to it, and nothing else about either is known here.
//
// It never decides who may do what: whoever can open the socket may do everything.
package socket
