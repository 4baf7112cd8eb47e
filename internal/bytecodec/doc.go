// Package bytecodec writes and reads the small fields that our own formats are made of: bytes, uvarints, flags, and bytes
// and lists with their length before them. Commands of the catalog and of queues, records of raft groups, and what nodes
// say to each other are made of these.
//
// It never decides what a format is: no versions, no kinds, no order of fields. It knows nothing of AMQP, whose bytes are
// wire's.
//
// Map of the files: append.go writes; cursor.go reads.
package bytecodec
