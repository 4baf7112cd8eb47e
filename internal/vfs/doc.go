// Package vfs is the disk as the rooms see it: about a dozen calls, so that a test can put a disk underneath that
// forgets, lies, fails or hangs.
//
// OS is the real thing. Mem keeps, per file, what is durable and what was only written, and can be cloned as a power cut
// would leave it. The package knows nothing of logs, segments or records, and it never retries: what the disk said is what
// the caller hears.
//
//	vfs.go        the interfaces
//	os.go         the operating system; os_linux.go and os_other.go hold what differs
//	mem.go        the disk in memory; mem_file.go its files; mem_fault.go its faults
package vfs
