package cluster

import (
	"errors"

	"holdfast/internal/bytecodec"
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

func (o *out) uint(v uint64)      { o.b = bytecodec.AppendUint(o.b, v) }
func (o *out) bool(v bool)        { o.b = bytecodec.AppendBool(o.b, v) }
func (o *out) text(s string)      { o.b = bytecodec.AppendBytes(o.b, s) }
func (o *out) list(list []string) { o.b = bytecodec.AppendTexts(o.b, list) }

func (o *out) node(n Node) {
	o.uint(n.ID)
	o.text(n.Name)
	o.text(n.Addr)
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

// in reads what out wrote.
type in struct{ bytecodec.Cursor }

// count reads the number of things of at least a byte each that follow, at most so many.
func (i *in) count(most int) int {
	n := i.Count(1)
	if n > most {
		i.Fail()
		return 0
	}
	return n
}

func (i *in) text() string { return string(i.Take(uint64(i.count(maxText)))) }

func (i *in) node() Node { return Node{ID: i.Uint(), Name: i.text(), Addr: i.text()} }

func (i *in) list() (list []string) {
	for range i.count(maxList) {
		list = append(list, i.text())
	}
	return list
}

func (i *in) ballot() Ballot { return Ballot{Round: i.Uint(), Node: i.Uint()} }

func (i *in) founding() *Founding {
	if !i.Bool() {
		return nil
	}
	f := new(Founding)
	copy(f.Cluster[:], i.Take(uint64(len(f.Cluster))))
	f.List = i.list()
	for range i.count(maxList) {
		f.Founders = append(f.Founders, Founder{i.node(), i.Bool()})
	}
	if f.Cluster == (ID{}) || len(f.Founders) == 0 {
		i.Fail()
	}
	return f
}

func decodeRequest(b []byte) (*request, error) {
	i := &in{bytecodec.Over(b)}
	version := i.Byte()
	r := &request{kind: requestKind(i.Byte()), from: i.node(), list: i.list(), ballot: i.ballot(), founding: i.founding()}
	switch {
	case version != formingVersion, i.End() != nil, r.from.ID == 0, r.kind < ask, r.kind > join,
		r.founding == nil && (r.kind == accept || r.kind == founded):
		return nil, errForming
	}
	return r, nil
}

func decodeAnswer(b []byte) (*answer, error) {
	i := &in{bytecodec.Over(b)}
	version := i.Byte()
	a := &answer{verdict: verdict(i.Byte()), from: i.node(), list: i.list(), promised: i.ballot()}
	if f := i.founding(); f != nil {
		a.granted = &Grant{Founding: f, Ballot: i.ballot()}
	}
	a.founding, a.text = i.founding(), i.text()
	if version != formingVersion || i.End() != nil || a.from.ID == 0 || a.verdict != fine && a.verdict != refused {
		return nil, errForming
	}
	return a, nil
}
