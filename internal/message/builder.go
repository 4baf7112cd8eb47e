package message

// Builder makes messages from the frames of publishes, one after the other. It
// cuts small messages from a shared block, so that they cost less than an allocation each.
// A channel or a connection has one of its own. The zero value is ready.
type Builder struct {
	block []byte
}

// Begin starts a message with a body of bodySize bytes, which Write brings.
// Nothing of the arguments is kept. A message begun and not finished is forgotten.
func (b *Builder) Begin(exchange, key string, properties []byte, bodySize uint64, persistent bool) {}

// Write adds the next piece of the body; p is copied. More than Remaining is a bug of the caller's.
func (b *Builder) Write(p []byte) {}

// Remaining returns how many bytes of the body are still to come.
func (b *Builder) Remaining() uint64 { return 0 }

// Message ends the message, whose body must be complete, and returns it.
func (b *Builder) Message() Message { return Message{} }
