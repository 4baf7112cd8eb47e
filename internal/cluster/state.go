package cluster

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// ID names a cluster: 16 random bytes, drawn when it is founded. The zero ID is none.
type ID [16]byte

// String is the id in hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText writes the hexadecimal digits.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads them.
func (id *ID) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(id) {
		return fmt.Errorf("%q is no id of a cluster", text)
	}
	copy(id[:], b)
	return nil
}

// Node is a node as it presents itself.
type Node struct {
	ID   uint64 `json:"id,string"`
	Name string `json:"name"`
	Addr string `json:"addr"` // where the others reach it
}

// Founder is a node that a cluster was founded with.
type Founder struct {
	Node
	Voter bool `json:"voter"` // it votes in the catalog's group from the start
}

// Founding is how a cluster began. All its nodes have the same, for ever; who is in the cluster by now, the catalog knows.
type Founding struct {
	Cluster  ID        `json:"cluster"`
	List     []string  `json:"list,omitempty"` // the addresses that agreed on it; none for a node that was alone
	Founders []Founder `json:"founders"`       // by id. They begin the catalog's group; everybody else joins it
}

// Has reports whether a node is one of the founders.
func (f *Founding) Has(node uint64) bool {
	return f != nil && slices.ContainsFunc(f.Founders, func(m Founder) bool { return m.ID == node })
}

// newFounding returns a founding by these nodes.
func newFounding(id ID, list []string, nodes []Node) *Founding {
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Addr, b.Addr)) })
	nodes = slices.CompactFunc(nodes, func(a, b Node) bool { return a.ID == b.ID })
	f := &Founding{Cluster: id, List: list}
	for i, n := range nodes {
		f.Founders = append(f.Founders, Founder{n, i < voterCount(len(nodes))})
	}
	return f
}

// Alone returns what a node remembers that was told of no others and so is a cluster of its own. Others may join it.
func Alone(self Node, id ID) State { return State{Founding: newFounding(id, nil, []Node{self})} }

// Ballot orders the attempts to found a cluster. The zero Ballot is none.
type Ballot struct {
	Round uint64 `json:"round"`
	Node  uint64 `json:"node,string"` // who attempts
}

// Less orders ballots.
func (b Ballot) Less(c Ballot) bool {
	return b.Round < c.Round || b.Round == c.Round && b.Node < c.Node
}

// Grant is a node's consent to a founding.
type Grant struct {
	Ballot   Ballot    `json:"ballot"`
	Founding *Founding `json:"founding"`
}

// State is what a node has to remember of its cluster. It is part of identity.json; whoever runs a Former writes it before
// anything is said that follows from it.
type State struct {
	// Founding is the cluster that the node is in; nil as long as it is in none.
	Founding *Founding `json:"founding,omitempty"`
	// List is what the node's promise and grant are about: the addresses it was told, sorted, its own among them.
	List []string `json:"list,omitempty"`
	// Promised: attempts before this one are refused.
	Promised Ballot `json:"promised,omitzero"`
	// Granted is the last attempt that the node consented to.
	Granted *Grant `json:"granted,omitempty"`
}

// Cluster returns the id of the node's cluster, zero if it is in none.
func (s State) Cluster() ID {
	if s.Founding == nil {
		return ID{}
	}
	return s.Founding.Cluster
}

// Clean returns a list of addresses as nodes compare it: in small letters, without blanks, each once, sorted.
func Clean(list []string) []string {
	var clean []string
	for _, addr := range list {
		if addr = strings.ToLower(strings.TrimSpace(addr)); addr != "" {
			clean = append(clean, addr)
		}
	}
	slices.Sort(clean)
	return slices.Compact(clean)
}
