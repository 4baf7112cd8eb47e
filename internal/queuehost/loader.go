package queuehost

import (
	"errors"
	"sync/atomic"

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
	head pin
	big  *bigLoad // of a message in chunks
}

// bigLoad is a message in chunks, of which some items may be in memory.
type bigLoad struct {
	head   []byte
	chunks []chunk
}

type chunk struct {
	item []byte // nil: pinned
	pin  pin
}

// pin keeps one item, in a block or in the log. Empty: it is used, or dropped.
type pin struct {
	block  *spill.Block
	log    *pinned
	number uint64
}

// pinned is neighbours in the log that are pinned together. It is let go of
// when nobody needs it: those who were given a pin, and who gives them out.
type pinned struct {
	ref         seglog.Ref
	first, last uint64 // it is good for these
	refs        atomic.Int32
}

func (p *pinned) let() {
	if p.refs.Add(-1) == 0 {
		p.ref.Unpin()
	}
}

// read reads the item, once.
func (p *pin) read(r *Reader) (b []byte, err error) {
	if p.block != nil {
		b, err = r.spill.Read(p.block, p.number)
	} else {
		b, err = r.log.Read(p.log.ref.At(p.number))
	}
	p.drop()
	return b, err
}

func (p *pin) drop() {
	if p.block != nil {
		p.block.Let()
	} else if p.log != nil {
		p.log.let()
	}
	p.block, p.log = nil, nil
}

// Lost reports whether a body could not be read that is nowhere else: not that of
// a message in the log, but of one that was spilled. Whoever has the delivery
// had better settle it: given back, it would only come again.
func Lost(err error) bool {
	var c *spill.CorruptError
	return errors.As(err, &c)
}

// Load reads the message, once. Its bytes are valid until the next read with
// r. A big message comes without its body (Message.Chunks is nil): Chunks says
// in how many pieces it is, Chunk reads them.
func (l *Loader) Load(r *Reader) (message.Message, error) {
	if l.big != nil && l.big.head != nil {
		return message.Message{Head: l.big.head}, nil
	}
	b, err := l.head.read(r)
	if err != nil {
		l.Drop()
		return message.Message{}, err
	}
	return message.Message{Head: b}, nil
}

// Chunks is the number of pieces of a big message's body; 0: the body is inline.
func (l *Loader) Chunks() int {
	if l.big == nil {
		return 0
	}
	return len(l.big.chunks)
}

// Chunk reads piece i, once; the bytes are valid until the next read with r.
func (l *Loader) Chunk(r *Reader, i int) ([]byte, error) {
	c := &l.big.chunks[i]
	if c.item != nil {
		return c.item, nil
	}
	b, err := c.pin.read(r)
	if err != nil {
		l.Drop()
	}
	return b, err
}

// Drop unpins what was not read. It may be called at any time, and more than once.
func (l *Loader) Drop() {
	l.head.drop()
	for i := range l.Chunks() {
		l.big.chunks[i].pin.drop()
	}
}
