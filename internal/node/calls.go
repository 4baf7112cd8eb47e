package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/catalog"
	"holdfast/internal/cluster"
	"holdfast/internal/config"
	"holdfast/internal/message"
	"holdfast/internal/peer"
)

// What nodes ask each other outside their links, beside what the forming of a cluster says: a node that joins learns who
// is there, one that was away whether it still belongs, one that leaves is taken out. Each is a call of its own: a byte
// that tells it from the forming's, and JSON, of which fields that are not known are left out.
const clusterCall = 0x80

// asked is a request.
type asked struct {
	What string          `json:"what"`                  // one of the following
	Node uint64          `json:"node,string,omitempty"` // askSees
	Join *broker.Joining `json:"join,omitempty"`        // askHistory
	Name *replyName      `json:"name,omitempty"`        // askReply
}

// replyName is the name of a direct reply-to consumer.
type replyName struct {
	VHost string `json:"vhost"`
	Name  string `json:"name"`
}

const (
	askNodes = "nodes" // who is in the cluster, and am I?
	askLeave = "leave" // take me out
	askSees  = "sees"  // is this node up, as you see it?

	askHistory = "history" // what have you kept of what was published to this exchange?
	askReply   = "reply"   // have you the direct reply-to consumer of this name?
)

// told is an answer.
type told struct {
	Error string         `json:"error,omitempty"` // then nothing else counts
	Nodes []cluster.Node `json:"nodes,omitempty"`
	In    bool           `json:"in,omitempty"` // the asking node is in the cluster; the catalog was asked, if not
	Up    bool           `json:"up,omitempty"`

	Kept  []broker.KeptMessage `json:"kept,omitempty"`
	There bool                 `json:"there,omitempty"` // the consumer that was asked for
}

// Bounds of calls.
const (
	callWait  = 3 * time.Second
	leaveWait = 8 * time.Second
	keptWait  = 2 * time.Second
	replyWait = 2 * time.Second
	maxBook   = 1024 // nodes taken from an answer
)

var errNotReady = errors.New("this node is not ready yet")

// answer answers another node.
func (m *mesh) answer(ctx context.Context, from peer.Hello, msg []byte) []byte {
	var q asked
	if err := json.Unmarshal(msg, &q); err != nil {
		return told{Error: "the request is not understood"}.encode()
	}
	t, err := m.tell(ctx, from, q)
	if err != nil {
		t = told{Error: err.Error()}
	}
	return t.encode()
}

func (t told) encode() []byte {
	b, _ := json.Marshal(t) // nothing in it can fail
	return b
}

func (m *mesh) tell(ctx context.Context, from peer.Hello, q asked) (t told, err error) {
	n := m.n
	if !n.running.Load() || !n.catalog.View().Bootstrapped() {
		return t, errNotReady
	}
	if from.Cluster != peer.ClusterID(m.state.Cluster()) {
		return t, errors.New("this is another cluster")
	}
	if q.What != askSees && !m.lineage.follows(from) {
		return t, errors.New("this node does not follow the same line of the catalog")
	}
	asking := uint64(from.Node)
	switch q.What {
	case askNodes:
		if t.In = n.catalog.View().Node(asking) != nil; !t.In {
			// It must not be sent away because this node has not heard of it yet.
			if err := m.barrier(ctx); err != nil {
				return t, fmt.Errorf("this node cannot tell for sure who is in the cluster: %w", err)
			}
			t.In = n.catalog.View().Node(asking) != nil
		}
		for node := range n.catalog.View().Nodes().All() {
			t.Nodes = append(t.Nodes, cluster.Node{ID: node.ID, Name: node.Name, Addr: node.Addr})
		}
	case askSees:
		t.Up = m.isUp(q.Node)
	case askHistory:
		if q.Join == nil {
			return t, errors.New("the request is not understood")
		}
		if err := m.barrier(ctx); err != nil {
			return t, err
		}
		t.Kept = n.broker.History(*q.Join)
	case askReply:
		if q.Name == nil {
			return t, errors.New("the request is not understood")
		}
		t.There = n.broker.ReplyQueue([]byte(q.Name.VHost), []byte(q.Name.Name)) != nil
	case askLeave:
		ctx, cancel := context.WithTimeout(ctx, leaveWait)
		defer cancel()
		if n.catalog.View().Node(asking) == nil {
			return t, m.barrier(ctx)
		}
		_, err := n.ask(ctx, catalog.RemoveNode(asking))
		return t, err
	default:
		return t, fmt.Errorf("'%s' is not understood", q.What)
	}
	return t, nil
}

// barrier waits until the view here has all that was answered anywhere before, for a second at most.
func (m *mesh) barrier(ctx context.Context) error {
	done := make(chan error, 1)
	m.Barrier(func(_ any, err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// caller is what a request is sent by.
type caller interface {
	Call(ctx context.Context, addr string, msg []byte) ([]byte, error)
}

// ask sends a request to the node at an address.
func ask(ctx context.Context, by caller, addr string, q asked, wait time.Duration) (t told, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errors.New("no answer"))
	defer cancel()
	msg, err := json.Marshal(q)
	if err != nil {
		return t, err
	}
	b, err := by.Call(ctx, addr, append([]byte{clusterCall}, msg...))
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(b, &t); err != nil {
		return t, fmt.Errorf("%s: the answer is not understood", addr)
	}
	if t.Error != "" {
		return t, fmt.Errorf("%s: %s", addr, t.Error)
	}
	t.Nodes = t.Nodes[:min(len(t.Nodes), maxBook)]
	return t, nil
}

// keptElsewhere asks the other nodes that are up what they have of a history. What does not come in time is left out.
func (m *mesh) keptElsewhere(j broker.Joining) (list []broker.KeptMessage) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for other := range m.n.catalog.View().Nodes().All() {
		if other.ID == m.self || !m.isUp(other.ID) {
			continue
		}
		all.Go(func() {
			t, err := ask(m.life, m.links, other.Addr, asked{What: askHistory, Join: &j}, keptWait)
			if err != nil {
				m.n.log.Warn("a new binding goes without what another node has kept for it", "exchange", j.Source, "vhost", j.VHost, "node", other.Name, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, k := range t.Kept {
				if v, err := message.Parse(k.Head); err == nil && v.Chunks == len(k.Chunks) {
					list = append(list, k)
				}
			}
		})
	}
	all.Wait()
	return list
}

// replyAt asks another node whether it has a direct reply-to consumer. Where it does not answer in time, nobody can say that it has.
func (m *mesh) replyAt(node uint64, vhost, name string) bool {
	other := m.n.catalog.View().Node(node)
	if other == nil || !m.isUp(node) {
		return false
	}
	t, err := ask(m.life, m.links, other.Addr, asked{What: askReply, Name: &replyName{vhost, name}}, replyWait)
	if err != nil {
		m.n.log.Debug("nobody can say whether a direct reply-to consumer is there", "node", other.Name, "error", err)
	}
	return t.There
}

// passerBy has calls made by a node that has no links: it is stopped, or not in the cluster yet.
type passerBy struct{}

func (passerBy) Message(peer.NodeID, peer.Lane, []byte) {}
func (passerBy) Up(peer.NodeID, uint64, []byte)         {}
func (passerBy) Down(peer.NodeID, error)                {}
func (passerBy) Writable(peer.NodeID, peer.Lane)        {}
func (passerBy) Beat(peer.NodeID, []byte)               {}
func (passerBy) Suspect(peer.NodeID)                    {}
func (passerBy) Trust(peer.NodeID)                      {}
func (passerBy) Call(from peer.Hello, msg []byte) []byte {
	return told{Error: "this node is stopped"}.encode()
}

// outside opens what a node makes calls with that is not running.
func outside(s *config.Settings, id *identity, name string, known catalog.Levels, log *slog.Logger) (*peer.TCP, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	state := cluster.State{}
	if id.Cluster != nil {
		state = *id.Cluster
	}
	o := peer.Options{
		Node: peer.NodeID(id.number()), Incarnation: id.Starts, Cluster: peer.ClusterID(state.Cluster()), Name: name, Addr: s.Cluster.Address,
		Levels:  func() peer.Levels { return peer.Levels{Least: known.Least, Most: known.Most} },
		Line:    id.Line.Bytes,
		Handler: passerBy{}, Listener: l, Secret: []byte(s.Cluster.Secret), Logger: log,
	}
	if s.Cluster.TLS {
		o.TLS = s.TLS.Load
	}
	return peer.Open(o), nil
}

// others are the nodes that a folder's identity knows of beside itself: those of the cluster as it was last known, and
// its founders.
func (id *identity) others() []cluster.Node {
	var list []cluster.Node
	add := func(n cluster.Node) {
		known := slices.ContainsFunc(list, func(o cluster.Node) bool { return o.ID == n.ID })
		if n.ID != id.number() && n.Addr != "" && !known {
			list = append(list, n)
		}
	}
	for _, n := range id.Peers {
		add(n)
	}
	if id.Cluster != nil && id.Cluster.Founding != nil && len(id.Peers) == 0 {
		for _, f := range id.Cluster.Founding.Founders {
			add(f.Node)
		}
	}
	return list
}
