package catalog

import (
	"encoding/binary"
	"errors"
	"slices"

	"holdfast/internal/wire"
)

// errCorrupt is the one error of the decoder: commands and snapshots come from this package through a log with
// checksums, so it takes a bug or another version to see it.
var errCorrupt = errors.New("catalog: bytes cannot be read")

// encoder appends the fields of commands and snapshots: numbers as uvarints, strings and bytes with their length.
type encoder struct{ b []byte }

func (e *encoder) byte(v byte)   { e.b = append(e.b, v) }
func (e *encoder) uint(v uint64) { e.b = binary.AppendUvarint(e.b, v) }

func (e *encoder) string(s string) {
	e.uint(uint64(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) bytes(s []byte) {
	e.uint(uint64(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) strings(list []string) {
	e.uint(uint64(len(list)))
	for _, s := range list {
		e.string(s)
	}
}

// flags packs up to eight booleans, the first in the lowest bit.
func (e *encoder) flags(list ...bool) {
	var v byte
	for i, on := range list {
		if on {
			v |= 1 << i
		}
	}
	e.byte(v)
}

func (e *encoder) user(u *User) {
	e.string(u.Name)
	e.string(u.Hash)
	e.string(u.Algorithm)
	e.strings(u.Tags)
}

func (e *encoder) permission(p *Permission) {
	e.string(p.User)
	e.string(p.VHost)
	e.string(p.Configure)
	e.string(p.Write)
	e.string(p.Read)
}

func (e *encoder) binding(b *Binding) {
	e.string(b.VHost)
	e.string(b.Source)
	e.byte(byte(b.Kind))
	e.string(b.Destination)
	e.string(b.Key)
	e.bytes(b.Args)
}

func (e *encoder) member(m Member) {
	e.uint(m.ID)
	e.uint(m.Node)
}

func (e *encoder) members(list []Member) {
	e.uint(uint64(len(list)))
	for _, m := range list {
		e.member(m)
	}
}

// decoder reads what encoder wrote. After the first bad field every read gives a zero value and err is set. Nothing it
// returns borrows from its input.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail() {
	d.b, d.err = nil, errCorrupt
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads the number of items that follow, each at least size bytes long: no input makes it allocate more than a
// multiple of its own length.
func (d *decoder) count(size int) int {
	n := d.uint()
	if n > uint64(len(d.b)/size) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) string() string {
	n := d.count(1)
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) table() wire.Table {
	n := d.count(1)
	if n == 0 {
		return nil
	}
	t, err := wire.ParseTable(slices.Clone(d.b[:n]))
	if err != nil {
		d.fail()
		return nil
	}
	d.b = d.b[n:]
	return t
}

func (d *decoder) strings() []string {
	n := d.count(1)
	if n == 0 {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, d.string())
	}
	return list
}

func (d *decoder) flags(list ...*bool) {
	v := d.byte()
	for i, p := range list {
		*p = v&(1<<i) != 0
	}
}

func (d *decoder) user() User {
	return User{Name: d.string(), Hash: d.string(), Algorithm: d.string(), Tags: d.strings()}
}

func (d *decoder) permission() Permission {
	return Permission{User: d.string(), VHost: d.string(), Configure: d.string(), Write: d.string(), Read: d.string()}
}

func (d *decoder) binding() Binding {
	b := Binding{VHost: d.string(), Source: d.string(), Kind: Kind(d.byte()), Destination: d.string(), Key: d.string(), Args: d.table()}
	if b.Kind > KindExchange {
		d.fail()
	}
	return b
}

func (d *decoder) member() Member { return Member{ID: d.uint(), Node: d.uint()} }

func (d *decoder) members() []Member {
	n := d.count(2)
	if n == 0 {
		return nil
	}
	list := make([]Member, 0, n)
	for range n {
		list = append(list, d.member())
	}
	return list
}

// done reports what went wrong, left-over bytes included.
func (d *decoder) done() error {
	if d.err == nil && len(d.b) > 0 {
		d.err = errCorrupt
	}
	return d.err
}
