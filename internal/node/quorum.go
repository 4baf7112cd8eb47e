package node

import (
	"log/slog"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/catalog"
	"holdfast/internal/node/members"
	"holdfast/internal/peer"
	"holdfast/internal/queuehost"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

// queuesTick is how often the queues are told that time passes.
const queuesTick = 50 * time.Millisecond

// silence is the way to other nodes of a node that is alone.
type silence struct{}

// Send implements replica.Transport.
func (silence) Send(uint64, replica.Lane, func([]byte) []byte) bool { return false }

// others tells the broker how the nodes stand.
type others struct{ n *Node }

// Name implements broker.Nodes.
func (o others) Name(node uint64) string {
	switch n := o.n; {
	case node == n.identity.number():
		return n.name()
	case n.mesh != nil:
		return n.mesh.nameOf(node)
	}
	return ""
}

// Up implements broker.Nodes.
func (o others) Up(node uint64) bool {
	if o.n.mesh == nil {
		return node == o.n.identity.number()
	}
	return o.n.mesh.isUp(node)
}

// openMembers makes what looks after the members of quorum queues.
func (n *Node) openMembers(propose func(cmd []byte, done func(any, error))) {
	o := members.Options{
		Self: n.identity.number(), View: n.catalog.View, Group: n.memberHere, Leader: n.leaderOf, Nacked: n.nacked, Propose: propose, Damaged: n.queues.Damaged,
		Name: others{n}.Name, Up: others{n}.Up, Alarmed: n.alarmedNode, Clock: n.clock, Logger: n.log.With("room", "members"),
		Catalog: func() members.Group { return nil },
		Send:    func(uint64, func([]byte) []byte) bool { return false },
	}
	if m := n.mesh; m != nil {
		o.Catalog = func() members.Group { return n.commands.Group() }
		o.Send = func(to uint64, add func([]byte) []byte) bool {
			return m.ways.Send(peer.NodeID(to), peer.Control, func(b []byte) []byte { return add(append(b, toMembers)) })
		}
	}
	n.members = members.New(o)
}

// memberHere is the member of a quorum queue that runs here, nil if none does.
func (n *Node) memberHere(id seglog.GroupID) members.Group {
	if h := n.queues.Get(id); h != nil && h.Quorum() {
		if g := h.Group(); g != nil {
			return g
		}
	}
	return nil
}

// leaderOf is the node that is thought to lead a quorum queue, 0 if nobody is known.
func (n *Node) leaderOf(id seglog.GroupID) uint64 {
	if h := n.queues.Get(id); h != nil && h.Quorum() {
		return h.Leader()
	}
	return 0
}

// nacked is how many publishes of clients here a quorum queue was not seen to take.
func (n *Node) nacked(id seglog.GroupID) uint64 {
	if h := n.queues.Get(id); h != nil {
		c := h.Nacks()
		return c.Refused + c.Unknown
	}
	return 0
}

// led follows the leaders of quorum queues that have a member here; on the queue's worker.
func (n *Node) led(id seglog.GroupID, node uint64) {
	if node == n.identity.number() && n.mesh != nil {
		n.members.Look(id)
	}
}

// lookAtMembers has the leaders look at queues whose lists of members a command has changed.
func (n *Node) lookAtMembers(r *catalog.Result) {
	for _, lost := range r.Removed.Members {
		n.members.Look(seglog.GroupID(lost.Queue.ID))
	}
}

// passTime tells the queues that time passes until the node has handed over what it leads.
func (n *Node) passTime() {
	ticker := n.clock.NewTicker(queuesTick)
	defer ticker.Stop()
	w := leaderlessWatch{logger: n.log}
	for k := 0; ; k++ {
		select {
		case <-n.handedOver:
			return
		case <-ticker.C():
			n.queues.Tick()
			if k%int(time.Second/queuesTick) == 0 {
				w.look(n.queues.Leaderless(queuehost.LeaderlessFor), n.clock.Mono())
			}
		}
	}
}

// leaderlessAgain is how often it is said again, as long as that is so.
const leaderlessAgain = int64(time.Minute)

// leaderlessWatch tells the log of quorum queues without a leader: their consumers get nothing, and hear nothing.
type leaderlessWatch struct {
	logger *slog.Logger
	queues int
	said   int64
}

func (w *leaderlessWatch) look(list []queuehost.Leaderless, now int64) {
	switch {
	case len(list) == 0 && w.queues > 0:
		w.logger.Info("all quorum queues that clients here use have a leader again")
	case len(list) > 0 && (w.queues == 0 || now-w.said >= leaderlessAgain):
		consumers, first := 0, list[0]
		for _, q := range list {
			consumers += q.Consumers
			if q.For > first.For {
				first = q
			}
		}
		def := first.Handle.Def()
		w.said = now
		w.logger.Warn("quorum queues have no leader: publishes are nacked, and consumers wait", "queues", len(list), "consumers", consumers,
			"vhost", def.VHost, "queue", def.Name, "for", first.For.Round(time.Second).String())
	}
	w.queues = len(list)
}

var _ broker.Nodes = others{}
