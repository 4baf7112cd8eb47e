package cluster

import (
	"encoding/binary"
	"errors"
)

// What nodes say to each other while they form a cluster: one request and one answer, each a call of its own.
//
//	request: version, kind, who asks, its list, ballot, founding
//	answer:  version, verdict, who answers, its list, promised, grant, founding, text
//
// A node is its id, name and address; a list is a count and its addresses; a ballot is round and node; a founding is a
// byte that says whether there is one, the cluster's id, list, and founders with a byte for the vote; a grant is a
// founding and its ballot. Numbers are uvarints, texts have their length before them.
const formingVersion = 1

type requestKind uint8

const (
	// ask: who are you, and how far are you?
	ask requestKind = 1 + iota
	// prepare: promise to refuse attempts before this one, and say what you consented to.
	prepare
	// accept: consent to this founding.
	accept
	// founded: this is the cluster.
	founded
	// join: let me into your cluster.
	join
)

type verdict uint8

const (
	// fine: yes; to an ask: here I am.
	fine verdict = 1 + iota
	// refused: no. The text says why, if the rest of the answer does not.
	refused
)

type request struct {
	kind     requestKind
	from     Node
	list     []string
	ballot   Ballot    // prepare, accept
	founding *Founding // accept, founded
}

type answer struct {
	verdict  verdict
	from     Node
	list     []string
	promised Ballot
	granted  *Grant
	founding *Founding // the cluster that the node is in
	text     string
}

// limits of what is taken from others.
const (
	maxList = 64
	maxText = 1 << 10
)

var errForming = errors.New("this is not what nodes say while they form a cluster")

type out struct{ b []byte }

func (o *out) uint(v uint64) { o.b = binary.AppendUvarint(o.b, v) }
func (o *out) bool(v bool) {
	if v {
		o.b = append(o.b, 1)
		return
	}
	o.b = append(o.b, 0)
}

func (o *out) text(s string) {
	o.uint(uint64(len(s)))
	o.b = append(o.b, s...)
}

func (o *out) node(n Node) {
	o.uint(n.ID)
	o.text(n.Name)
	o.text(n.Addr)
}

func (o *out) list(list []string) {
	o.uint(uint64(len(list)))
	for _, s := range list {
		o.text(s)
	}
}

func (o *out) ballot(b Ballot) {
	o.uint(b.Round)
	o.uint(b.Node)
}

func (o *out) founding(f *Founding) {
	if o.bool(f != nil); f == nil {
		return
	}
	o.b = append(o.b, f.Cluster[:]...)
	o.list(f.List)
	o.uint(uint64(len(f.Founders)))
	for _, m := range f.Founders {
		o.node(m.Node)
		o.bool(m.Voter)
	}
}

func (r *request) encode() []byte {
	o := &out{b: []byte{formingVersion, byte(r.kind)}}
	o.node(r.from)
	o.list(r.list)
	o.ballot(r.ballot)
	o.founding(r.founding)
	return o.b
}

func (a *answer) encode() []byte {
	o := &out{b: []byte{formingVersion, byte(a.verdict)}}
	o.node(a.from)
	o.list(a.list)
	o.ballot(a.promised)
	if a.granted == nil {
		o.founding(nil)
	} else {
		o.founding(a.granted.Founding)
		o.ballot(a.granted.Ballot)
	}
	o.founding(a.founding)
	o.text(a.text)
	return o.b
}

// in reads what out wrote; after the first bad field everything is zero and err is set.
type in struct {
	b   []byte
	err error
}

func (i *in) fail() { i.b, i.err = nil, errForming }

func (i *in) byte() byte {
	if len(i.b) == 0 {
		i.fail()
		return 0
	}
	v := i.b[0]
	i.b = i.b[1:]
	return v
}

func (i *in) uint() uint64 {
	v, n := binary.Uvarint(i.b)
	if n <= 0 {
		i.fail()
		return 0
	}
	i.b = i.b[n:]
	return v
}

func (i *in) bool() bool {
	v := i.byte()
	if v > 1 {
		i.fail()
	}
	return v == 1
}

func (i *in) count(most int) int {
	n := i.uint()
	if n > uint64(min(most, len(i.b))) {
		i.fail()
		return 0
	}
	return int(n)
}

func (i *in) text() string {
	n := i.count(maxText)
	s := string(i.b[:n])
	i.b = i.b[n:]
	return s
}

func (i *in) node() Node { return Node{ID: i.uint(), Name: i.text(), Addr: i.text()} }

func (i *in) list() (list []string) {
	for range i.count(maxList) {
		list = append(list, i.text())
	}
	return list
}

func (i *in) ballot() Ballot { return Ballot{Round: i.uint(), Node: i.uint()} }

func (i *in) founding() *Founding {
	if !i.bool() {
		return nil
	}
	f := new(Founding)
	if len(i.b) < len(f.Cluster) {
		i.fail()
		return nil
	}
	copy(f.Cluster[:], i.b)
	i.b = i.b[len(f.Cluster):]
	f.List = i.list()
	for range i.count(maxList) {
		f.Founders = append(f.Founders, Founder{i.node(), i.bool()})
	}
	if f.Cluster == (ID{}) || len(f.Founders) == 0 {
		i.fail()
	}
	return f
}

func (i *in) done() error {
	if i.err == nil && len(i.b) > 0 {
		i.err = errForming
	}
	return i.err
}

func decodeRequest(b []byte) (*request, error) {
	i := &in{b: b}
	version := i.byte()
	r := &request{kind: requestKind(i.byte()), from: i.node(), list: i.list(), ballot: i.ballot(), founding: i.founding()}
	switch {
	case version != formingVersion, i.done() != nil, r.from.ID == 0, r.kind < ask, r.kind > join,
		r.founding == nil && (r.kind == accept || r.kind == founded):
		return nil, errForming
	}
	return r, nil
}

func decodeAnswer(b []byte) (*answer, error) {
	i := &in{b: b}
	version := i.byte()
	a := &answer{verdict: verdict(i.byte()), from: i.node(), list: i.list(), promised: i.ballot()}
	if f := i.founding(); f != nil {
		a.granted = &Grant{Founding: f, Ballot: i.ballot()}
	}
	a.founding, a.text = i.founding(), i.text()
	if version != formingVersion || i.done() != nil || a.from.ID == 0 || a.verdict != fine && a.verdict != refused {
		return nil, errForming
	}
	return a, nil
}
