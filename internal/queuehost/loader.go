package queuehost

import (
	"holdfast/internal/message"
	"holdfast/internal/seglog"
)

// Loader fetches one message from the log. It pins the message's segments
// until it is used or dropped. It belongs to whoever has the delivery and is
// used by one goroutine.
type Loader struct {
	head   part
	chunks []part
}

// part is one item: in memory, or pinned in the log.
type part struct {
	item   []byte
	ref    seglog.Ref
	pinned bool
}

func (p *part) read(r *seglog.Reader) ([]byte, error) {
	if !p.pinned {
		return p.item, nil
	}
	b, err := r.Read(p.ref)
	p.drop()
	return b, err
}

func (p *part) drop() {
	if p.pinned {
		p.pinned = false
		p.ref.Unpin()
	}
}

// Load reads the message, once. Its bytes are valid until the next read with
// r. A big message comes without its body (Message.Chunks is nil): Chunks says
// in how many pieces it is, Chunk reads them.
func (l *Loader) Load(r *seglog.Reader) (message.Message, error) {
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
func (l *Loader) Chunk(r *seglog.Reader, i int) ([]byte, error) {
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
