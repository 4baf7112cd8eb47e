package message

// ChunkSize is the largest body that travels inside the head. A larger one is
// cut into chunks of this size, the last one shorter.
const ChunkSize = 256 << 10

// Message is an immutable message. Head is laid out as follows, numbers
// big-endian:
//
//	flags        u8      bit 0: persistent; bit 1: chunked; bit 2: history; bit 3: hidden keys; bit 4: rekeyed; the others are zero
//	exchange     u8 length, bytes
//	routing key  u8 length, bytes
//	properties   u32 length; flag words and values as in a content header
//	hidden keys  only with bit 3: u32 length, not 0; keys one after the other, each behind its length as a uvarint
//	then, if not chunked:
//	body         to the end
//	or, if chunked:
//	size         u64, bytes in all chunks
//	chunks       u32, number of chunks
//
// History: x-death and its relatives in the headers are this server's own, not a client's. Rekeyed: the message has no routing keys but
// the one, whatever its CC header says. Both come with a message's first death, hidden keys with a BCC header; all three belong to level 2
// of the formats. A message without them has the same bytes in every level.
type Message struct {
	Head []byte
	// Chunks is the body of a big message in pieces, each an item of its own in the
	// log. A message read back from there may have its head only; View.Chunks
	// says how many pieces belong to it.
	Chunks [][]byte
}

const (
	flagPersistent = 1 << 0
	flagChunked    = 1 << 1
	flagHistory    = 1 << 2
	flagHidden     = 1 << 3
	flagRekeyed    = 1 << 4
	flagsKnown     = flagPersistent | flagChunked | flagHistory | flagHidden | flagRekeyed

	minHead      = 1 + 1 + 1 + 4 // flags, two empty strings, no properties
	chunkTrailer = 8 + 4
)

// Persistent reports whether the message was published to survive a restart.
func (m Message) Persistent() bool { return len(m.Head) > 0 && m.Head[0]&flagPersistent != 0 }

// Size returns how many bytes the message takes, chunks included.
func (m Message) Size() int {
	n := len(m.Head)
	for _, c := range m.Chunks {
		n += len(c)
	}
	return n
}
