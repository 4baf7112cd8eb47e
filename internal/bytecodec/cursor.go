package bytecodec

import (
	"encoding/binary"
	"errors"
)

var (
	// ErrShort says that something is not there, or is not what it has to be.
	ErrShort = errors.New("bytes cannot be read: something is missing or out of range")
	// ErrLong says that bytes are left over.
	ErrLong = errors.New("bytes cannot be read: there are too many")
)

// Cursor reads fields off the front of bytes. After the first bad field nothing is left, every read gives a zero value,
// and Err says so: a reader may read a whole structure and ask once. No number makes it allocate, or makes its user
// allocate by Count, more than a multiple of the bytes that are there.
type Cursor struct {
	// Rest is what has not been read. It belongs to whoever made the cursor.
	Rest []byte
	bad  bool
}

// Over returns a cursor over b, which it borrows.
func Over(b []byte) Cursor { return Cursor{Rest: b} }

// Fail makes the cursor fail.
func (c *Cursor) Fail() { c.Rest, c.bad = nil, true }

// Bad reports whether something went wrong.
func (c *Cursor) Bad() bool { return c.bad }

// Err returns ErrShort if something went wrong.
func (c *Cursor) Err() error {
	if c.bad {
		return ErrShort
	}
	return nil
}

// End returns what went wrong, bytes that are left over included: ErrLong.
func (c *Cursor) End() error {
	if len(c.Rest) > 0 {
		return ErrLong
	}
	return c.Err()
}

// Byte reads a byte.
func (c *Cursor) Byte() byte {
	if len(c.Rest) == 0 {
		c.Fail()
		return 0
	}
	v := c.Rest[0]
	c.Rest = c.Rest[1:]
	return v
}

// Bool reads what AppendBool wrote; a byte above 1 is bad.
func (c *Cursor) Bool() bool {
	v := c.Byte()
	if v > 1 {
		c.Fail()
	}
	return v == 1
}

// Flags reads a byte into booleans, the first from the lowest bit. Bits beyond them are not looked at.
func (c *Cursor) Flags(list ...*bool) {
	v := c.Byte()
	for i, p := range list {
		*p = v&(1<<i) != 0
	}
}

// Uint reads a uvarint.
func (c *Cursor) Uint() uint64 {
	b := c.Rest
	if len(b) > 0 && b[0] < 0x80 {
		c.Rest = b[1:]
		return uint64(b[0])
	}
	if len(b) > 1 && b[1] < 0x80 {
		c.Rest = b[2:]
		return uint64(b[0]&0x7f) | uint64(b[1])<<7
	}
	v, n := binary.Uvarint(b)
	if n <= 0 {
		c.Fail()
		return 0
	}
	c.Rest = b[n:]
	return v
}

// UpTo reads a uvarint that must not be above limit.
func (c *Cursor) UpTo(limit uint64) uint64 {
	v := c.Uint()
	if v > limit {
		c.Fail()
		return 0
	}
	return v
}

// Uint32 reads a uvarint that must fit into 32 bits.
func (c *Cursor) Uint32() uint32 { return uint32(c.UpTo(1<<32 - 1)) }

// Fixed64 reads what AppendFixed64 wrote.
func (c *Cursor) Fixed64() uint64 {
	if len(c.Rest) < 8 {
		c.Fail()
		return 0
	}
	v := binary.LittleEndian.Uint64(c.Rest)
	c.Rest = c.Rest[8:]
	return v
}

// Count reads the number of items that follow, each at least size bytes long, size being at least 1. More than can be
// there are bad.
func (c *Cursor) Count(size int) int {
	n := c.Uint()
	if n > uint64(len(c.Rest)/size) {
		c.Fail()
		return 0
	}
	return int(n)
}

// Take reads n bytes. They are borrowed, with no room behind them.
func (c *Cursor) Take(n uint64) []byte {
	if n > uint64(len(c.Rest)) {
		c.Fail()
		return nil
	}
	v := c.Rest[:n:n]
	c.Rest = c.Rest[n:]
	return v
}

// Bytes reads what AppendBytes wrote. The bytes are borrowed, with no room behind them.
func (c *Cursor) Bytes() []byte { return c.Take(c.Uint()) }

// Text reads what AppendBytes wrote, as a text of its own.
func (c *Cursor) Text() string { return string(c.Bytes()) }

// Texts reads what AppendTexts wrote; none are nil.
func (c *Cursor) Texts() []string {
	n := c.Count(1)
	if n == 0 {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, c.Text())
	}
	return list
}
