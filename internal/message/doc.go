// Package message is the message as it travels through the broker: where it was
// published, its properties as the client wrote them, and its body.
//
// A Message is built once, from the frames of a publish, and never changed
// after; any number of queues and connections share it. Its Head is exactly the
// bytes that lie in the log, so that a message read back from there is the same
// as one that never left memory. The bytes are owned by the garbage collector:
// nobody counts references.
//
// It never looks into properties or body, except for a field of the properties
// somebody asks for.
//
// Map of the files:
//
//	message.go   Message, and the layout of its head
//	view.go      Parse: the fields of a head; what decides how a queue keeps a message
//	builder.go   Builder: from frames to a Message
package message
