// Package wire is AMQP 0-9-1 as bytes: frames, methods, field tables and
// message properties.
//
// Encoders append to a slice of the caller. Decoders borrow from the slice they
// are given, allocate nothing beyond the size that slice declares, and never
// panic, whatever the bytes are. The package does no input or output and keeps
// no state.
//
//   - frame.go: frame header and end, protocol headers
//   - method.go: method ids, decoding by id; reading and writing arguments
//   - methods.spec, methods_gen.go: every method; gen.go writes the second from the first
//   - table.go, build.go, value.go: field tables, borrowed and raw
//   - properties.go: the content header and the properties of a message
package wire

//go:generate go run gen.go
