package spill

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"sync/atomic"

	"holdfast/internal/vfs"
)

// A block on disk, little endian; the checksum is over all that follows it:
//
//	magic    4
//	checksum 4  CRC32C
//	items    4
//	size     4  of the block
//	first    8  the number of its first item
//	then for each item
//	  number 4  less first
//	  end    4  of its bytes, counted from the end of the table
//	then the bytes of the items
//
// A block begins at a multiple of vfs.PunchAlign, and zeros fill it up to the next.
const (
	magic     = 0x4c4c5053 // SPLL
	headSize  = 24
	entrySize = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Block is items on disk. It is there until everybody has let go of it: whoever
// was given it, once, and whoever called Hold.
type Block struct {
	s     *Store
	file  *file
	off   int64
	size  int32
	count int32
	refs  atomic.Int32
	first uint64
}

// Size is the number of bytes that the block takes on disk.
func (b *Block) Size() int64 { return aligned(int64(b.size)) }

// Hold keeps the block n times more.
func (b *Block) Hold(n int) { b.refs.Add(int32(n)) }

// Let undoes one Hold, or gives the block up. Any goroutine may call it.
func (b *Block) Let() {
	if b.refs.Add(-1) == 0 {
		b.s.bury(b)
	}
}

// encode appends a job as a block to buf, which is empty, and returns it filled
// up, with its own size.
func encode(buf []byte, j *Job) (padded []byte, size int) {
	le := binary.LittleEndian
	first := j.Numbers[0]
	buf = le.AppendUint32(buf, magic)
	buf = le.AppendUint32(buf, 0)
	buf = le.AppendUint32(buf, uint32(len(j.Items)))
	buf = le.AppendUint32(buf, 0)
	buf = le.AppendUint64(buf, first)
	end := uint32(0)
	for i, item := range j.Items {
		end += uint32(len(item))
		buf = le.AppendUint32(buf, uint32(j.Numbers[i]-first))
		buf = le.AppendUint32(buf, end)
	}
	for _, item := range j.Items {
		buf = append(buf, item...)
	}
	le.PutUint32(buf[12:], uint32(len(buf)))
	le.PutUint32(buf[4:], crc32.Checksum(buf[8:], castagnoli))
	size = len(buf)
	return append(buf, zeros[:aligned(int64(size))-int64(size)]...), size
}

var zeros [vfs.PunchAlign]byte

// Reader is one goroutine's way to read items. It keeps the block it read last,
// so that neighbours cost one read of the disk.
type Reader struct {
	block *Block
	buf   []byte
	next  int // where the item after the last one read stands in the table
}

// CorruptError says that a block cannot be read, or does not hold what was written.
// There is no other copy: the item is lost.
type CorruptError struct {
	File   string
	Offset int64
	Err    error
}

// Error says where and what.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s at %d: %v", e.File, e.Offset, e.Err)
}

// Unwrap returns what was found.
func (e *CorruptError) Unwrap() error { return e.Err }

// Read returns an item of a block that the caller holds. The bytes are valid
// until the next Read. After the store was closed the error is fs.ErrClosed, else
// it is a *CorruptError.
func (r *Reader) Read(b *Block, number uint64) ([]byte, error) {
	if r.block != b {
		if err := r.load(b); err != nil {
			r.block = nil
			if errors.Is(err, fs.ErrClosed) {
				return nil, err // nobody will ask for it any more
			}
			return nil, b.lost(err)
		}
		r.block, r.next = b, 0
	}
	i, ok := r.find(uint32(number - b.first))
	if !ok {
		return nil, b.lost(fmt.Errorf("item %d is not in its block", number))
	}
	r.next = i + 1
	from, to := r.bounds(i)
	items := r.buf[headSize+int(b.count)*entrySize:]
	return items[from:to:to], nil
}

// lost counts an item that cannot be read.
func (b *Block) lost(err error) error {
	b.s.stats.lost.Add(1)
	return &CorruptError{b.file.name, b.off, err}
}

// load reads a block whole and checks it. An error of the disk may pass: it is read
// once more.
func (r *Reader) load(b *Block) error {
	n := int(b.size)
	if cap(r.buf) < n || cap(r.buf) > 4*n && cap(r.buf) > BlockSize*2 {
		r.buf = make([]byte, max(n, BlockSize+BlockSize/4))
	}
	r.buf = r.buf[:n]
	for again := false; ; again = true {
		got, err := b.file.f.ReadAt(r.buf, b.off)
		b.s.stats.reads.Add(1)
		b.s.stats.readBytes.Add(uint64(got))
		if got == n {
			return b.check(r.buf)
		}
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if again || errors.Is(err, fs.ErrClosed) {
			return err
		}
	}
}

// check tells whether buf is the block, with a table that can be trusted.
func (b *Block) check(buf []byte) error {
	le := binary.LittleEndian
	switch {
	case le.Uint32(buf) != magic:
		return errors.New("not a block")
	case crc32.Checksum(buf[8:], castagnoli) != le.Uint32(buf[4:]):
		return errors.New("the checksum is wrong")
	case le.Uint32(buf[8:]) != uint32(b.count) || le.Uint32(buf[12:]) != uint32(b.size) || le.Uint64(buf[16:]) != b.first:
		return errors.New("another block")
	}
	return nil
}

// bounds is where item i begins and ends behind the table.
func (r *Reader) bounds(i int) (from, to uint32) {
	e := r.buf[headSize+i*entrySize:]
	to = binary.LittleEndian.Uint32(e[4:])
	if i > 0 {
		from = binary.LittleEndian.Uint32(r.buf[headSize+i*entrySize-4:])
	}
	return from, to
}

// find is the place of an item in the table: mostly the next one.
func (r *Reader) find(number uint32) (int, bool) {
	at := func(i int) uint32 { return binary.LittleEndian.Uint32(r.buf[headSize+i*entrySize:]) }
	n := int(r.block.count)
	if r.next < n && at(r.next) == number {
		return r.next, true
	}
	lo, hi := 0, n
	for lo < hi {
		if m := (lo + hi) / 2; at(m) < number {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo, lo < n && at(lo) == number
}
