package bytecodec

import (
	"bytes"
	"encoding/binary"
	"math"
	"reflect"
	"testing"
)

// Everything that is written is read back as it was, and nothing is left.
func TestRoundTrip(t *testing.T) {
	uints := []uint64{0, 1, 127, 128, 16383, 16384, 1<<32 - 1, 1 << 32, math.MaxUint64}
	b := []byte{7}
	b = AppendUints(b, uints...)
	b = AppendUint(b, 1<<32-1)
	b = AppendFixed64(b, 1<<63+5)
	b = AppendBytes(b, []byte{1, 2, 3})
	b = AppendBytes(b, "text")
	b = AppendBytes(b, "")
	b = AppendTexts(b, []string{"a", "", "bc"})
	b = AppendTexts(b, nil)
	b = AppendBool(AppendBool(b, true), false)
	b = append(b, Flags(true, false, true))
	b = append(b, "tail"...)

	c := Over(b)
	if v := c.Byte(); v != 7 {
		t.Fatalf("byte %d", v)
	}
	for _, want := range uints {
		if got := c.Uint(); got != want {
			t.Fatalf("uvarint %d is read as %d", want, got)
		}
	}
	if v := c.Uint32(); v != 1<<32-1 {
		t.Fatalf("32 bits: %d", v)
	}
	if v := c.Fixed64(); v != 1<<63+5 {
		t.Fatalf("fixed %d", v)
	}
	if v := c.Bytes(); !bytes.Equal(v, []byte{1, 2, 3}) || cap(v) != 3 {
		t.Fatalf("bytes %v with room for %d", v, cap(v))
	}
	if a, b := c.Text(), c.Text(); a != "text" || b != "" {
		t.Fatalf("texts %q %q", a, b)
	}
	if a, b := c.Texts(), c.Texts(); !reflect.DeepEqual(a, []string{"a", "", "bc"}) || b != nil {
		t.Fatalf("lists %q %q", a, b)
	}
	if a, b := c.Bool(), c.Bool(); !a || b {
		t.Fatalf("booleans %t %t", a, b)
	}
	var x, y, z bool
	if c.Flags(&x, &y, &z); !x || y || !z {
		t.Fatalf("flags %t %t %t", x, y, z)
	}
	if err := c.End(); err != ErrLong || c.Bad() {
		t.Fatalf("with bytes left: %v, bad %t", err, c.Bad())
	}
	if v := c.Take(4); string(v) != "tail" || cap(v) != 4 || c.End() != nil {
		t.Fatalf("the end: %q, %v", v, c.End())
	}
}

// A uvarint has the bytes that encoding/binary gives it.
func TestUvarintsAreTheUsualOnes(t *testing.T) {
	for shift := range 64 {
		for _, v := range []uint64{1<<shift - 1, 1 << shift, 1<<shift + 1} {
			if got, want := AppendUint(nil, v), binary.AppendUvarint(nil, v); !bytes.Equal(got, want) {
				t.Fatalf("%d is written as %x, not %x", v, got, want)
			}
		}
	}
}

// reads are the ways to read one field.
var reads = map[string]func(*Cursor) any{
	"byte":   func(c *Cursor) any { return c.Byte() },
	"bool":   func(c *Cursor) any { return c.Bool() },
	"uint":   func(c *Cursor) any { return c.Uint() },
	"up to":  func(c *Cursor) any { return c.UpTo(100) },
	"uint32": func(c *Cursor) any { return c.Uint32() },
	"fixed":  func(c *Cursor) any { return c.Fixed64() },
	"count":  func(c *Cursor) any { return c.Count(3) },
	"take":   func(c *Cursor) any { return c.Take(1) },
	"bytes":  func(c *Cursor) any { return c.Bytes() },
	"text":   func(c *Cursor) any { return c.Text() },
	"texts":  func(c *Cursor) any { return c.Texts() },
	"flags":  func(c *Cursor) any { var on bool; c.Flags(&on); return on },
}

// What is not there, or out of range, is zero, and stays the error of the cursor whatever is read afterwards.
func TestBadFields(t *testing.T) {
	long := bytes.Repeat([]byte{0x80}, 11)
	for _, c := range []struct {
		read string
		b    []byte
	}{
		{"byte", nil}, {"bool", nil}, {"bool", []byte{2}}, {"uint", nil}, {"uint", []byte{0x80}}, {"uint", long},
		{"up to", []byte{101}}, {"uint32", AppendUint(nil, 1<<32)}, {"fixed", make([]byte, 7)}, {"count", []byte{2, 0, 0, 0, 0, 0}},
		{"count", AppendUint(nil, math.MaxUint64)}, {"take", nil}, {"bytes", []byte{2, 0}}, {"text", AppendUint(nil, math.MaxUint64)},
		{"texts", []byte{2, 0}[:1]}, {"texts", []byte{1, 5}}, {"flags", nil},
	} {
		cur := Over(c.b)
		v := reads[c.read](&cur)
		// A list that ends too early may have given what it has.
		if c.read != "texts" && !reflect.ValueOf(v).IsZero() || !cur.Bad() || cur.Err() != ErrShort || cur.End() != ErrShort {
			t.Errorf("%s of %x: %v, %v", c.read, c.b, v, cur.Err())
		}
		for name, read := range reads {
			if v := read(&cur); !reflect.ValueOf(v).IsZero() || cur.Err() != ErrShort || cur.Rest != nil {
				t.Errorf("%s after a bad %s: %v", name, c.read, v)
			}
		}
	}
}

// No number that stands in the bytes makes a reader allocate before as much is there.
func TestNumbersAllocateNothing(t *testing.T) {
	huge := AppendUint(nil, math.MaxUint64)
	some := append(AppendUint(nil, 1<<40), make([]byte, 100)...)
	for _, b := range [][]byte{huge, some} {
		for _, name := range []string{"count", "bytes", "text", "texts"} {
			if n := testing.AllocsPerRun(10, func() { c := Over(b); reads[name](&c) }); n > 1 { // the value as an interface
				t.Errorf("%s of %x...: %g allocations", name, b[:6], n)
			}
		}
	}
}

// FuzzCursor reads any bytes by any plan: nothing panics, what is read is what is there, and what was read without an
// error and written again reads the same.
func FuzzCursor(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7}, AppendTexts(AppendBytes(AppendUint([]byte{1, 1}, 300), "abc"), []string{"x", ""}))
	f.Add([]byte{6, 6, 6}, []byte{3, 0, 0, 0})
	f.Add([]byte{7}, AppendUint(nil, math.MaxUint64))
	f.Fuzz(func(t *testing.T, plan, b []byte) {
		c := Over(b)
		var again []byte
		same := true // what was read has one way only to be written
		for _, step := range plan {
			before := len(c.Rest)
			switch step % 8 {
			case 0:
				again = append(again, c.Byte())
			case 1:
				again = AppendBool(again, c.Bool())
			case 2:
				start := len(again)
				again = AppendUint(again, c.Uint())
				same = same && len(again)-start == before-len(c.Rest)
			case 3:
				again = AppendFixed64(again, c.Fixed64())
			case 4:
				v := c.Bytes()
				if len(v) > before || cap(v) > len(v) {
					t.Fatalf("%d of %d bytes, room for %d", len(v), before, cap(v))
				}
				again = AppendBytes(again, v)
				same = false
			case 5:
				list := c.Texts()
				if len(list) > before {
					t.Fatalf("%d texts in %d bytes", len(list), before)
				}
				again = AppendTexts(again, list)
				same = false
			case 6:
				size := 1 + int(step)%5
				n := c.Count(size)
				if n*size > before {
					t.Fatalf("%d things of %d bytes in %d", n, size, before)
				}
				again = AppendUint(again, uint64(n))
				same = false
			case 7:
				again = append(again, c.Take(uint64(step))...)
			}
			if len(c.Rest) > before || c.Bad() != (c.Err() != nil) {
				t.Fatalf("%d bytes are left of %d, %v", len(c.Rest), before, c.Err())
			}
			if c.Bad() {
				if c.Rest != nil || c.Byte() != 0 || c.Uint() != 0 {
					t.Fatal("something is read after an error")
				}
				return
			}
		}
		if same && !bytes.Equal(again, b[:len(b)-len(c.Rest)]) {
			t.Fatalf("%x is written again as %x", b, again)
		}
	})
}
