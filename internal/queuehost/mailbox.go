package queuehost

import (
	"holdfast/internal/bytecodec"
	"holdfast/internal/seglog"
)

// A mailbox is how replies get to the consumers of direct reply-to that another node has: their queues are in no catalog, so one far
// stands for all of that node's. A session of it is like any other, but that each of its publishes says whom it is for (Addressee), and that
// the home looks up the queue for each (Options.Reply). Whoever replies is told the same whether the consumer is there or has left:
// every outcome is Accepted. The link breaking is no exception: nobody could tell whether the consumer is still there.

// Ids of mailboxes. The catalog counts its ids up from 1 and never gets there; those of the queues of direct reply-to come behind them. They
// are given out as nodes are replied to, by the node of the entry: another one means others by them.
const (
	firstMailbox seglog.GroupID = 1 << 61
	lastMailbox  seglog.GroupID = 1<<62 - 1
)

func isMailbox(id seglog.GroupID) bool { return firstMailbox <= id && id <= lastMailbox }

// Mailbox returns what takes replies for the consumers of another node, made if it is not there; nil if there are no links to other nodes.
// What is published to it has an Addressee. It stays for good, so node must be one of the cluster's.
func (r *Registry) Mailbox(node uint64) *Handle {
	r.near.mu.RLock()
	h := r.near.mailboxes[node]
	r.near.mu.RUnlock()
	if h != nil || r.o.Link == nil || node == r.self() {
		return h
	}
	home := r.home(node)
	r.near.mu.Lock()
	defer r.near.mu.Unlock()
	if h = r.near.mailboxes[node]; h == nil {
		id := firstMailbox + seglog.GroupID(len(r.near.mailboxes))
		h = r.addFar(QueueDef{ID: id, Name: "replies to consumers of node " + r.o.Name(node), Exclusive: true}, home)
		r.near.mailboxes[node] = h
	}
	return h
}

// Addressee is whom a reply is for. It goes before the message's head, and only into the link's buffer: replies to many, who may be
// made up, share the message.
type Addressee struct{ head []byte }

// NewAddressee is the consumer that has this name in a virtual host.
func NewAddressee(vhost, name string) *Addressee {
	head := make([]byte, 0, len(vhost)+len(name)+4)
	return &Addressee{bytecodec.AppendBytes(bytecodec.AppendBytes(head, vhost), name)}
}

// size is how many bytes it takes.
func (a *Addressee) size() int {
	if a == nil {
		return 0
	}
	return len(a.head)
}

// headSize is how many bytes of a publish go over the link as its head.
func (p *Publish) headSize() int { return p.For.size() + len(p.Message.Head) }

// addressee cuts what stands before a message's own head, and leaves that.
func (c *cut) addressee() (vhost, name []byte) { return c.Bytes(), c.Bytes() }

// told is what a publisher is told of an outcome.
func (f *far) told(o Outcome) Outcome {
	if isMailbox(f.def.ID) {
		return Accepted
	}
	return o
}

// post hands replies to the queues of those whom they are for, in their order; false: they make no sense. The mutex is held, so nothing is
// carried out yet.
func (s *session) post(ps []Publish) bool {
	to := make([]*Handle, len(ps))
	for i := range ps {
		p := &ps[i]
		c := newCut(p.Message.Head)
		vhost, name := c.addressee()
		if c.Bad() || p.part != 0 {
			return false
		}
		s.flow.given.Add(int64(len(p.Message.Head) - len(c.Rest))) // the queue gives back the rest
		p.Message.Head = c.Rest
		if find := s.guest.reg.o.Reply; find != nil {
			to[i] = find(vhost, name)
		}
	}
	for n := 0; len(ps) > 0; ps, to = ps[n:], to[n:] {
		for n = 1; n < len(ps) && to[n] == to[0]; n++ {
		}
		if to[0] != nil {
			to[0].Put(ps[:n])
			s.posted = append(s.posted, to[0])
			continue
		}
		for i := range n {
			s.flow.given.Add(ps[i].cost())
		}
		s.outcome(ps[0].Seq, ps[n-1].Seq, Accepted)
	}
	return true
}
