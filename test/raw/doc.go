// Package raw is a small AMQP 0-9-1 client that works on bytes and frames.
//
// The tests use it where an ordinary client is too well behaved: malformed
// input, the exact order of frames, the opening handshake step by step. It is
// written independently of the broker's own wire package, so that a mistake
// there is not repeated here.
//
// It never interprets what it reads beyond cutting it into frames, and it keeps
// no state of channels.
//
// Map of the files: conn.go has the connection and its handshake; codec.go
// writes and reads method arguments, tables and content headers; names.go has
// the numbers of the methods.
package raw
