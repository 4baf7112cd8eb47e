// Package spill keeps bodies on this node's disk that memory has no room for
// and that nothing but this process will ever ask for: those of transient
// messages. Nothing of it is synced, nothing outlives the process, and there is
// no recovery: Open removes what an earlier process has left.
//
// Items are written as blocks, each with neighbouring items of one queue and a
// table that says where they are, to the end of a file. A block is kept as long
// as somebody holds it; then its space goes back to the disk, by a hole in the
// file, or with the file when all of its blocks are gone.
//
// It knows no queue, never decides what is written, and never syncs. Only the
// store's own goroutine writes; Put, Block.Hold and Block.Let never wait for
// the disk.
//
//   - store.go: the store: jobs, its goroutine, failed writes
//   - file.go: files, and their space
//   - block.go: what a block looks like, and reading one
package spill
