package message

import (
	"encoding/binary"
	"unsafe"

	"holdfast/internal/bytecodec"
	"holdfast/internal/invariant"
)

const (
	// blockSize is the size of the blocks that small messages are cut from. A block
	// lives as long as its last message.
	blockSize = 16 << 10
	// ownSize is the size above which a message gets an allocation of its own.
	ownSize = 4 << 10
	// trust is how many times larger than the bytes that have come a buffer may be:
	// a publisher that announces much and sends little must not make the broker
	// hold much.
	trust = 4
)

// Builder makes messages from the frames of publishes, one after the other. It
// cuts small messages from a shared block, so that they cost less than an
// allocation each. A channel or a connection has one of its own. The zero
// value is ready.
type Builder struct {
	block []byte // the current block, as far as it is used; its capacity is all of it

	// The message begun: its head so far, the full chunks, the chunk being filled.
	// head has capacity for all of it when the message is small; a larger one gets
	// room as its body comes.
	begun  bool
	head   []byte
	whole  int // bytes of the finished head
	chunks [][]byte
	chunk  []byte
	size   uint64 // of the body
	left   uint64 // of size, still to come
}

// Heading is everything of a message but its body.
type Heading struct {
	Exchange, Key []byte // short strings
	Properties    []byte
	Hidden        []byte // made by AppendHidden; nil: there are none
	Persistent    bool
	History       bool
	Rekeyed       bool
}

// AppendHidden appends a key to Heading.Hidden.
func AppendHidden[S string | []byte](dst []byte, key S) []byte {
	return bytecodec.AppendBytes(dst, key)
}

// Begin starts a message with a body of bodySize bytes, which Write brings.
// Nothing of the arguments is kept. Exchange and key are short strings. A
// message begun before and not finished is forgotten.
func (b *Builder) Begin(exchange, key string, properties []byte, bodySize uint64, persistent bool) {
	b.BeginWith(&Heading{Exchange: bytesOf(exchange), Key: bytesOf(key), Properties: properties, Persistent: persistent}, bodySize)
}

// bytesOf is the bytes of s, for a call that only reads them.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// BeginWith is Begin for a message with any heading, which is not kept either.
func (b *Builder) BeginWith(h *Heading, bodySize uint64) {
	if len(h.Exchange) > 255 || len(h.Key) > 255 {
		invariant.Failf("message: exchange of %d and routing key of %d bytes", len(h.Exchange), len(h.Key))
	}
	b.begun, b.chunks, b.chunk = true, nil, nil
	b.size, b.left = bodySize, bodySize

	fields := minHead + len(h.Exchange) + len(h.Key) + len(h.Properties)
	var flags byte
	if h.Persistent {
		flags |= flagPersistent
	}
	if h.History {
		flags |= flagHistory
	}
	if h.Rekeyed {
		flags |= flagRekeyed
	}
	if len(h.Hidden) > 0 {
		flags |= flagHidden
		fields += 4 + len(h.Hidden)
	}
	first := fields // bytes of the head to make room for at once
	if bodySize > ChunkSize {
		flags |= flagChunked
		b.whole = fields + chunkTrailer
		first = b.whole
	} else {
		b.whole = fields + int(bodySize)
		if b.whole <= ownSize {
			first = b.whole
		}
	}

	head := append(b.alloc(first), flags, byte(len(h.Exchange)))
	head = append(head, h.Exchange...)
	head = append(head, byte(len(h.Key)))
	head = append(head, h.Key...)
	head = binary.BigEndian.AppendUint32(head, uint32(len(h.Properties)))
	head = append(head, h.Properties...)
	if flags&flagHidden != 0 {
		head = binary.BigEndian.AppendUint32(head, uint32(len(h.Hidden)))
		head = append(head, h.Hidden...)
	}
	if flags&flagChunked != 0 {
		head = binary.BigEndian.AppendUint64(head, bodySize)
		head = binary.BigEndian.AppendUint32(head, uint32(chunksFor(bodySize)))
	}
	b.head = head
}

// Readdress returns a message with the body of another one, whose head is v and whose chunks, if it has any, are given. It keeps the chunks
// and nothing else of the arguments.
func (b *Builder) Readdress(h *Heading, v View, chunks [][]byte) Message {
	b.BeginWith(h, v.BodySize)
	if v.Chunks == 0 {
		b.Write(v.Body)
		return b.Message()
	}
	m := Message{Head: b.head, Chunks: chunks}
	b.begun, b.head = false, nil
	return m
}

// Held is how many bytes of memory the message takes that was begun and is not ended.
func (b *Builder) Held() int {
	if !b.begun {
		return 0
	}
	return cap(b.head) + len(b.chunks)*ChunkSize + cap(b.chunk)
}

// Forget forgets the message that was begun.
func (b *Builder) Forget() { *b = Builder{block: b.block} }

// Remaining returns how many bytes of the body are still to come.
func (b *Builder) Remaining() uint64 { return b.left }

// Write adds the next piece of the body; p is copied. More than Remaining is a
// bug of the caller's.
func (b *Builder) Write(p []byte) {
	if !b.begun || uint64(len(p)) > b.left {
		invariant.Failf("message: %d bytes of body where %d are missing", len(p), b.left)
	}
	if b.size <= ChunkSize {
		b.left -= uint64(len(p))
		b.head = append(b.room(b.head, len(p), b.whole), p...)
		return
	}
	for len(p) > 0 {
		whole := int(min(uint64(len(b.chunk))+b.left, ChunkSize))
		n := min(whole-len(b.chunk), len(p))
		b.chunk = append(b.room(b.chunk, n, whole), p[:n]...)
		b.left -= uint64(n)
		p = p[n:]
		if len(b.chunk) == whole {
			b.chunks = append(b.chunks, b.chunk)
			b.chunk = nil
		}
	}
}

// Message ends the message, whose body must be complete, and returns it.
func (b *Builder) Message() Message {
	invariant.Pass("message", "built")
	if !b.begun || b.left != 0 {
		invariant.Failf("message: ended with %d bytes of body missing", b.left)
	}
	m := Message{Head: b.head, Chunks: b.chunks}
	b.begun, b.head, b.chunks = false, nil, nil
	return m
}

// room returns buf with capacity for n more bytes on the way to whole bytes:
// for all of them at once, if what has come is a fair part.
func (b *Builder) room(buf []byte, n, whole int) []byte {
	if cap(buf)-len(buf) >= n {
		return buf
	}
	need := len(buf) + n
	size := whole
	if need < whole/trust {
		size = need * trust
	}
	return append(b.alloc(size), buf...)
}

// alloc returns an empty slice of capacity n, a piece of the block if n is small.
func (b *Builder) alloc(n int) []byte {
	if n > ownSize {
		return make([]byte, 0, n)
	}
	at := len(b.block)
	if cap(b.block)-at < n {
		b.block = make([]byte, 0, blockSize)
		at = 0
	}
	b.block = b.block[:at+n]
	return b.block[at : at : at+n]
}
