package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// Serve answers what another node said while forming. It goes on answering when the node is in a cluster: that is how
// others find it.
func (f *Former) Serve(now int64, msg []byte) Output {
	return f.step(now, func() {
		r, err := decodeRequest(msg)
		if err != nil {
			f.reply(refused, err.Error())
			return
		}
		f.serve(r)
	})
}

// reply answers with everything that the other side may want to know.
func (f *Former) reply(v verdict, text string) {
	f.out.Answer = f.encode(v, text)
}

func (f *Former) encode(v verdict, text string) []byte {
	a := &answer{
		verdict: v, from: f.o.Self, list: f.list, promised: f.state.Promised,
		granted: f.state.Granted, founding: f.state.Founding, text: text,
	}
	a.text = text[:min(len(text), maxText)]
	return a.encode()
}

func (f *Former) serve(r *request) {
	f.highest = max(f.highest, r.ballot.Round)
	switch {
	case r.kind == ask:
		f.reply(fine, "")
	case r.kind == join:
		if f.Done() {
			from := r.from
			f.out.Admit = &from
			return
		}
		f.reply(refused, "this node is in no cluster itself")
	case f.Done():
		f.reply(refused, "this node is in a cluster")
	case r.kind == founded:
		if r.founding.Has(f.o.Self.ID) {
			f.enter(r.founding)
		}
		f.reply(fine, "")
	case !slices.Equal(r.list, f.list):
		f.reply(refused, fmt.Sprintf("this node was told %s, not %s", strings.Join(f.list, ","), strings.Join(r.list, ",")))
	case f.state.Granted != nil && !slices.Equal(f.state.List, f.list):
		f.reply(refused, "this node has consented to found a cluster with other addresses: "+strings.Join(f.state.List, ","))
	case r.kind == prepare && f.state.Promised.Less(r.ballot),
		r.kind == accept && !r.ballot.Less(f.state.Promised):
		f.heed(r)
		f.reply(fine, "")
	default:
		f.reply(refused, "this node has promised a later attempt")
	}
}

// heed gives a promise or a consent.
func (f *Former) heed(r *request) {
	f.state.Promised, f.state.List = r.ballot, f.list
	if r.kind == accept {
		f.state.Granted = &Grant{r.ballot, r.founding}
	}
	f.heeded = f.now
	f.save()
}

// Admitted returns the answer to a node that asked to join, once the catalog has said yes (nil) or no.
func (f *Former) Admitted(err error) []byte {
	if err != nil {
		return f.encode(refused, err.Error())
	}
	return f.encode(fine, "")
}
