package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
)

// Force names one order by which a node went on with the catalog alone: eight random bytes, drawn when it is carried out.
type Force [8]byte

// NewForce draws one.
func NewForce() (f Force) {
	rand.Read(f[:])
	return f
}

// String is the name in hexadecimal digits.
func (f Force) String() string { return hex.EncodeToString(f[:]) }

// MarshalText writes the hexadecimal digits.
func (f Force) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads them.
func (f *Force) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(f) {
		return fmt.Errorf("%q is no name of a force", text)
	}
	copy(f[:], b)
	return nil
}

// Line is where a cluster's catalog comes from: the forces that it has gone through since the founding, oldest first. A slice is never
// changed, so it can be shared. Nodes of one line have one catalog. Of two lines of a cluster one may descend from the other: it is
// that one after one more force, or several. Two of which neither does have come apart, and nothing brings them together again.
type Line []Force

// mostForces is how many forces a line remembers. Who is behind by more is taken for one that has come apart.
const mostForces = 64

// Forced is the line after one more force.
func (l Line) Forced(f Force) Line {
	l = append(slices.Clone(l), f)
	return l[max(len(l)-mostForces, 0):]
}

// From reports whether the line is another one, or descends from it.
func (l Line) From(other Line) bool {
	return len(other) == 0 || slices.Contains(l, other[len(other)-1])
}

// String is the latest force.
func (l Line) String() string {
	if len(l) == 0 {
		return "of the founding"
	}
	return l[len(l)-1].String()
}

// Bytes is the line as nodes tell it.
func (l Line) Bytes() (b []byte) {
	for _, f := range l {
		b = append(b, f[:]...)
	}
	return b
}

// ParseLine reads what Bytes wrote.
func ParseLine(b []byte) (l Line, err error) {
	const size = len(Force{})
	if len(b)%size != 0 || len(b) > mostForces*size {
		return nil, fmt.Errorf("cluster: a line of %d bytes", len(b))
	}
	for ; len(b) > 0; b = b[size:] {
		l = append(l, Force(b[:size]))
	}
	return l, nil
}
