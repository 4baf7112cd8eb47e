// Package seglog is the one log of a node: is it on disk, where, and when does the space come back.
//
// Groups (queues, the catalog) append records: entries, snapshots of their state, and with them items, which are message
// bodies under ids. Whatever all groups append while one sync runs goes out with the next: one frame, one pwrite, one
// fdatasync. A record is stable when its frame is on disk, and only then does anybody hear of it. Items are found by group
// and id until they are released; a group's newest snapshot and the entries above it are kept for recovery; everything else
// is garbage, and its space is given back: a segment nothing needs is recycled once a durable checkpoint no longer names it,
// and what still lives in a mostly dead segment is first copied to a cold one.
//
// The package never looks inside Meta or an item, knows nothing of queues, and never retries a failed write: the log is then
// dead, and says so.
//
//	api.go         the types callers use
//	log.go         the Log: options, start, close, release, quarantine
//	format.go      the bytes: frames, records, segment headers, with drawings
//	append.go      the inbox, and fairness between groups
//	commit.go      the committer: choosing, encoding, writing, reporting
//	prepare.go     free segments: made, sized, and what happens when the disk is full
//	segment.go     a segment file and its runs;  group.go  a group;  index.go  what a stable record changes in them
//	idset.go       sets of ids, for liveness
//	replicated.go  hard states, replaced entries, and those kept for other members
//	table.go       where items lie in a segment: entry tables, footers, their cache
//	read.go        PinRange and Reader;  readback.go  entries read back
//	shorten.go     the last pages of a full disk
//	keeper.go      behind the writing: footers, checkpoints, sizes, audits, recycling
//	checkpoint.go  the index as a file
//	rewrite.go     survivors into cold segments;  late.go  large snapshots, written there from the first
//	witness.go     the pages that name the newest segment and say how far it is durable
//	recover.go     Open: checkpoint, chain of segments, verdicts;  files.go  the files it finds;  scan.go  one segment, torn or
//	               corrupt;  replay.go  what it hands back
//	stats.go       counters and the watchdog;  times.go  how long things took
//	dump.go        looking at a log, and salvaging a group
//
// Locks: Log.mu guards the index and the segments and is never held over I/O; inbox.mu guards what waits. The committer alone
// writes the active hot segment, the keeper alone everything else that is written behind frames.
package seglog
