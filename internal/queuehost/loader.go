package queuehost

import (
	"holdfast/internal/message"
	"holdfast/internal/seglog"
	"holdfast/internal/spill"
)

// Reader is what one goroutine loads deliveries with. It keeps what it read
// last, and what it read ahead.
type Reader struct {
	log   *seglog.Reader
	spill spill.Reader
}

// NewReader returns a Reader that reads the log with log.
func NewReader(log *seglog.Reader) *Reader { return &Reader{log: log} }

// Loader fetches one message from the disk. It pins what the message lies in
// until it is used or dropped. It belongs to whoever has the delivery and is
// used by one goroutine.
type Loader struct {
	head   part
	chunks []part
}

// part is one item: in memory, or pinned in the log or in a block.
type part struct {
	item   []byte
	ref    seglog.Ref
	block  *spill.Block // nil: in the log
	number uint64
	pinned bool
}

func (p *part) read(r *Reader) ([]byte, error) {
	if !p.pinned {
		return p.item, nil
	}
	var b []byte
	var err error
	if p.block != nil {
		b, err = r.spill.Read(p.block, p.number)
	} else {
		b, err = r.log.Read(p.ref)
	}
	p.drop()
	return b, err
}

func (p *part) drop() {
	switch {
	case !p.pinned:
	case p.block != nil:
		p.block.Let()
	default:
		p.ref.Unpin()
	}
	p.pinned = false
}

// Load reads the message, once. Its bytes are valid until the next read with
// r. A big message comes without its body (Message.Chunks is nil): Chunks says
// in how many pieces it is, Chunk reads them.
func (l *Loader) Load(r *Reader) (message.Message, error) {
	b, err := l.head.read(r)
	if err != nil {
		l.Drop()
		return message.Message{}, err
	}
	return message.Message{Head: b}, nil
}

// Chunks is the number of pieces of a big message's body; 0: the body is inline.
func (l *Loader) Chunks() int { return len(l.chunks) }

// Chunk reads piece i, once; the bytes are valid until the next read with r.
func (l *Loader) Chunk(r *Reader, i int) ([]byte, error) {
	b, err := l.chunks[i].read(r)
	if err != nil {
		l.Drop()
	}
	return b, err
}

// Drop unpins what was not read. It may be called at any time, and more than once.
func (l *Loader) Drop() {
	l.head.drop()
	for i := range l.chunks {
		l.chunks[i].drop()
	}
}
