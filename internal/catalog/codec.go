package catalog

import (
	"errors"
	"slices"

	"holdfast/internal/bytecodec"
	"holdfast/internal/wire"
)

// errCorrupt is the one error of the decoder: commands and snapshots come from this package through a log with
// checksums, so it takes a bug or another version to see it.
var errCorrupt = errors.New("catalog: bytes cannot be read")

// encoder appends the fields of commands and snapshots: numbers as uvarints, strings and bytes with their length.
type encoder struct{ b []byte }

func (e *encoder) byte(v byte)   { e.b = append(e.b, v) }
func (e *encoder) uint(v uint64) { e.b = bytecodec.AppendUint(e.b, v) }

func (e *encoder) string(s string)       { e.b = bytecodec.AppendBytes(e.b, s) }
func (e *encoder) bytes(s []byte)        { e.b = bytecodec.AppendBytes(e.b, s) }
func (e *encoder) strings(list []string) { e.b = bytecodec.AppendTexts(e.b, list) }
func (e *encoder) flags(list ...bool)    { e.byte(bytecodec.Flags(list...)) }

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

// decoder reads what encoder wrote. After the first bad field every read gives a zero value. Nothing that it returns of a
// command or snapshot borrows from its input.
type decoder struct{ bytecodec.Cursor }

func (d *decoder) table() wire.Table {
	b := d.Bytes()
	if len(b) == 0 {
		return nil
	}
	t, err := wire.ParseTable(slices.Clone(b))
	if err != nil {
		d.Fail()
		return nil
	}
	return t
}

func (d *decoder) user() User {
	return User{Name: d.Text(), Hash: d.Text(), Algorithm: d.Text(), Tags: d.Texts()}
}

func (d *decoder) permission() Permission {
	return Permission{User: d.Text(), VHost: d.Text(), Configure: d.Text(), Write: d.Text(), Read: d.Text()}
}

func (d *decoder) binding() Binding {
	b := Binding{VHost: d.Text(), Source: d.Text(), Kind: Kind(d.Byte()), Destination: d.Text(), Key: d.Text(), Args: d.table()}
	if b.Kind > KindExchange {
		d.Fail()
	}
	return b
}

func (d *decoder) member() Member { return Member{ID: d.Uint(), Node: d.Uint()} }

func (d *decoder) members() []Member {
	n := d.Count(2)
	if n == 0 {
		return nil
	}
	list := make([]Member, 0, n)
	for range n {
		list = append(list, d.member())
	}
	return list
}

// done reports whether all could be read, and nothing is left.
func (d *decoder) done() error {
	if d.End() != nil {
		return errCorrupt
	}
	return nil
}
