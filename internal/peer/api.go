package peer

import (
	"context"
	"encoding/hex"
	"errors"
)

// NodeID names a node: chosen at random when its data folder is made, never 0.
// A folder that was wiped is a new node.
type NodeID uint64

// ClusterID names a cluster; zero is a node that is not in one yet.
type ClusterID [16]byte

// String is the id in hexadecimal digits.
func (c ClusterID) String() string { return hex.EncodeToString(c[:]) }

// Lane is one of the streams of a link. What goes on one never waits behind
// what goes on another.
type Lane uint8

// The lanes: votes, heartbeats and acknowledgements; what is agreed on, with
// bodies; whole states for a member that is far behind.
const (
	Control Lane = iota
	Data
	Bulk

	// Lanes is how many there are.
	Lanes = 3
)

// String is the lane's name in logs.
func (l Lane) String() string {
	switch l {
	case Control:
		return "control"
	case Data:
		return "data"
	case Bulk:
		return "bulk"
	}
	return "unknown"
}

// Handler hears what comes from other nodes. Its methods are called on
// goroutines of the links, those for different nodes and lanes at the same
// time. Except Call, none may block, and none may call anything of Links but
// Send, Room and Break.
//
// For one node Up and Down take turns; Message and Writable are called between an
// Up and its Down only. Suspect and Trust take turns too, whether or not a link is up: a
// node named in SetPeers begins as trusted and has to be heard within the same
// time as any other.
type Handler interface {
	// Message is one message. Those of one node and lane come one after another,
	// in the order in which they were sent. msg belongs to the receiver for good;
	// it shares its memory with neighbours, so that keeping a small one keeps up
	// to 256 KiB.
	Message(from NodeID, lane Lane, msg []byte)
	// Up says that all lanes stand in both directions. incarnation is the node's
	// start; info is its Options.Info, which is the receiver's to keep. Send
	// works already.
	Up(n NodeID, incarnation uint64, info []byte)
	// Down says that a lane broke, or the node said goodbye (ErrGoodbye), or we
	// gave the link up (ErrRemoved, ErrClosed).
	Down(n NodeID, why error)
	// Writable says that a lane has drained to below half of its budget since Send
	// said no because it was full. After a link broke it does not come: Up does.
	Writable(n NodeID, lane Lane)
	// Beat is a heartbeat with what the node's Options.Beat had to say. It is
	// called in line with the messages of the control lane. payload as in Message.
	Beat(from NodeID, payload []byte)
	// Suspect says that the node has not been heard for a while by our own clock.
	Suspect(n NodeID)
	// Trust says that a suspect node has been heard again.
	Trust(n NodeID)
	// Call answers a request of a node that need not be a peer, nor in the
	// cluster; but it knows the secret, where there is one. It may block for a
	// moment; the caller's patience is not known. At most 16 run at a time. msg and
	// from belong to the receiver.
	Call(from Hello, msg []byte) []byte
}

// Target is a node to have a link to.
type Target struct {
	ID   NodeID // 0: not known yet; whoever answers at Addr
	Addr string // host:port
}

// Hello is what a node says of itself.
type Hello struct {
	Least, Most uint16 // versions of the protocol it speaks
	Cluster     ClusterID
	Node        NodeID
	Incarnation uint64 // rises with every start
	Instance    uint64 // drawn by the process; two with one NodeID are a folder and its copy
	Name        string // for people; at most 255 bytes
	Addr        string // where it says it can be reached; at most 255 bytes
	Info        []byte // what the layers above say of themselves; at most 4 KiB
	Levels      Levels
	Line        []byte // where the state of the layers above comes from, as they say it; at most 512 bytes
}

// Levels is what a node says of the formats of the layers above: which it knows, and which its cluster uses. Nodes of a cluster
// whose level they do not know get no connection.
type Levels struct {
	Least, Most uint16 // 0: it did not say; it knows the first only
	Cluster     uint16 // 0: not known, or in none
}

// knows reports whether the node knows a level; 0 is no level, which everybody knows.
func (l Levels) knows(level uint16) bool {
	return level == 0 || max(l.Least, 1) <= level && level <= max(l.Most, 1)
}

// Links are a node's links to its peers. All methods may be called by several
// goroutines; Network's are for one only.
type Links interface {
	// SetPeers says which nodes to have links to; links to others are closed. Our
	// own address among them does no harm. It does not wait for anything.
	SetPeers([]Target)
	// SetCluster says which cluster this node belongs to from now on. Links to
	// nodes of another are closed.
	SetCluster(ClusterID)
	// Send appends one message: append writes it behind dst and returns the
	// result. It is called once, at once, with a lock held, or not at all. False
	// says that nothing was sent: the link is not up, or the lane's budget is used
	// up (a message is taken whole as long as anything is left of it); then
	// Handler.Writable follows. A message over Options.MaxMessage is a bug. Send
	// never blocks.
	Send(to NodeID, lane Lane, append func(dst []byte) []byte) bool
	// Room is how many bytes of the lane's budget are left, 0 if the link is not up.
	Room(to NodeID, lane Lane) int
	// Break ends the link to a node, if there is one, for a reason of the caller's: Down follows, and the link is tried again as
	// any other that broke. A Handler may call it.
	Break(n NodeID, why error)
	// Probe asks who is at an address, whatever cluster it belongs to. ErrSelf and
	// ErrSameNode come with the Hello.
	Probe(ctx context.Context, addr string) (Hello, error)
	// Call sends one request to the node at an address and waits for its answer,
	// until ctx ends or for 15 s. A call that failed may have been carried out.
	Call(ctx context.Context, addr string, msg []byte) (answer []byte, err error)
	// Close says goodbye, ends all links, and returns when no method of the
	// Handler runs any more.
	Close()
}

// Reasons why a link ended.
var (
	ErrGoodbye = errors.New("the node said goodbye")
	ErrRemoved = errors.New("the node is no longer a peer")
	ErrClosed  = errors.New("this node is stopping")
)

// Reasons why two nodes do not talk. Where the other side refused, it told the same.
var (
	ErrVersion   = errors.New("no version of the protocol in common")
	ErrSecret    = errors.New("the two nodes do not have the same secret")
	ErrCluster   = errors.New("the two nodes belong to different clusters")
	ErrSelf      = errors.New("this is the node itself")
	ErrSameNode  = errors.New("two nodes have the same node id: one runs on a copy of the other's data folder")
	ErrStranger  = errors.New("the two nodes are not peers, or not yet")
	ErrEarlier   = errors.New("a later start of the same node has been seen: two processes use its data folder or a copy of it")
	ErrOtherNode = errors.New("another node than the expected one is at this address")
	ErrBusy      = errors.New("the node is busy with other requests")
	ErrLevel     = errors.New("the version of a node does not fit the cluster's")
	ErrLine      = errors.New("what the two nodes have agreed on with others has come apart")
	ErrGarbage   = errors.New("what came is not the protocol of the nodes")
	ErrNoAnswer  = errors.New("no answer")
)
