package catalog

import (
	"holdfast/internal/amqperr"
	"holdfast/internal/routing"
	"holdfast/internal/routing/ordmap"
	"holdfast/internal/wire"
)

// QueueID identifies a queue for ever: it is never given to another queue, not even to a later one of the same name. It
// is the queue's group id in the log.
type QueueID uint64

// ExchangeID identifies an exchange for ever.
type ExchangeID uint64

// Incarnation is one start of one node. The machine hands them out ([NewIncarnation]), ascending; 0 is none.
type Incarnation uint64

// Node is a broker of the cluster. It is immutable.
type Node struct {
	ID          uint64      // the data folder's own, chosen at random once; never 0
	Name        string      // what people call it; no two nodes have the same
	Addr        string      // where other nodes reach it; "" for one that has always been alone
	Incarnation Incarnation // its latest start; 0: added, but never started since
	Voter       bool        // it has a say in the catalog's own group; the others only listen
	Drained     bool        // no leader and no new queue is put there
	Joined      int64       // when it was added, ns since 1970; 0 for one that has always been alone

	levels Levels // see Levels; zero stands for the first level alone
}

// Member is one copy of a quorum queue.
type Member struct {
	ID   uint64 // of the copy, for ever. It is the node's id, except where a copy came back after damage
	Node uint64
}

// ConnID identifies a client connection for ever: the incarnation of its node in the upper 24 bits, a counter below.
// 0 is no connection.
type ConnID uint64

const connBits = 40

// MakeConnID returns the id of the n-th connection of a node incarnation. n starts at 1.
func MakeConnID(inc Incarnation, n uint64) ConnID {
	return ConnID(uint64(inc)<<connBits | n&(1<<connBits-1))
}

// Incarnation returns the node incarnation the connection belongs to.
func (c ConnID) Incarnation() Incarnation { return Incarnation(c >> connBits) }

// QueueType is the value of x-queue-type.
type QueueType string

// The queue types. Streams are refused with 406, quorum queues unless whoever proposes names members for them.
const (
	Classic QueueType = "classic"
	Quorum  QueueType = "quorum"
	Stream  QueueType = "stream"
)

// Queue is the definition of a queue. It is immutable.
type Queue struct {
	ID          QueueID
	VHost, Name string
	Type        QueueType
	Durable     bool // false for every exclusive queue, as in RabbitMQ
	AutoDelete  bool
	Exclusive   bool
	Args        wire.Table  // as declared, unknown ones included
	Owner       ConnID      // the connection an exclusive queue belongs to; 0 for others
	Of          ExchangeID  // the exchange that it is the store of: then it has a name for people only; 0 for others
	Incarnation Incarnation // the node start a non-durable queue lives and dies with; 0 for durable ones
	User        string      // who declared it
	Created     int64       // time of the declaring command, ns since 1970
	Paused      bool        // an operator wants nothing of it to be delivered

	// Home is the node that a queue with one copy lives on: every queue but a quorum queue. 0: none is known.
	Home uint64
	// Members are the copies of a quorum queue, one a node, the one that was to lead at first in front. Who leads now, the
	Members []Member

	memo *memo
}

// ExchangeType says how an exchange matches.
type ExchangeType string

// The exchange types. The second group came with level 2 of the formats: below it nobody can declare one.
const (
	Direct  ExchangeType = "direct"
	Fanout  ExchangeType = "fanout"
	Topic   ExchangeType = "topic"
	Headers ExchangeType = "headers"

	ConsistentHash ExchangeType = "x-consistent-hash"
	ModulusHash    ExchangeType = "x-modulus-hash"
	Random         ExchangeType = "x-random"
	LocalRandom    ExchangeType = "x-local-random"
	RecentHistory  ExchangeType = "x-recent-history"
	Delayed        ExchangeType = "x-delayed-message"
	Deduplication  ExchangeType = "x-message-deduplication"
)

// Exchange is the definition of an exchange together with its routing index as of the view it was read from. It is
// immutable: a later bind makes a new Exchange with the same ID.
type Exchange struct {
	ID          ExchangeID
	VHost, Name string
	Type        ExchangeType
	Durable     bool
	AutoDelete  bool
	Internal    bool
	Args        wire.Table
	Alternate   string      // the alternate-exchange argument, "" for none
	Incarnation Incarnation // the node start a non-durable exchange lives with; 0 for durable ones
	// Born is the last incarnation there was when a non-durable exchange was declared. It dies when no node of the cluster
	// is left that has been running since; up to then another one's start takes it over.
	Born Incarnation
	User string

	Store QueueID // the queue that keeps its messages until it routes them; 0: it has none

	owner    *ordmap.Edit
	index    routing.Index
	bindings int // how many bindings it is the source of
}

// Kind tells the two things a binding can point to apart.
type Kind uint8

// The kinds of destinations.
const (
	KindQueue Kind = iota
	KindExchange
)

// String returns "queue" or "exchange".
func (k Kind) String() string {
	if k == KindExchange {
		return "exchange"
	}
	return "queue"
}

// Binding leads from an exchange to a queue or to another exchange of the same vhost. It is immutable. Two bindings are
// the same when all fields are; arguments are compared without regard to their order.
type Binding struct {
	VHost       string
	Source      string // exchange
	Kind        Kind   // of the destination
	Destination string
	Key         string
	Args        wire.Table
}

// User is somebody who may log in. It is immutable.
type User struct {
	Name      string
	Hash      string   // base64, RabbitMQ's password_hash; "" means that no password fits
	Algorithm string   // RabbitMQ's hashing_algorithm; see package auth
	Tags      []string // "administrator", "monitoring", ...
}

// Permission is what a user may do in a vhost: three regular expressions over names, "" meaning nothing.
type Permission struct {
	User, VHost            string
	Configure, Write, Read string
}

// Result is what Apply returns, always as *Result. Err, if not nil, is what a client is told, and then nothing changed.
type Result struct {
	Err *amqperr.Error

	Queue       *Queue      // declare: the queue, new or existing
	Exchange    *Exchange   // declare: the exchange, new or existing
	Stores      []*Queue    // of exchanges: those that are new
	Created     bool        // declare, bind and the like: it did not exist before
	Generation  uint64      // bind: the vhost's, from which on the binding is there; 0 if it was before
	Node        *Node       // AddNode, SetDrained, SetVoter, SetLevels: as it is now; RemoveNode: as it was
	Incarnation Incarnation // NewIncarnation
	Removed     Removed
}

// Removed lists everything a command took away, its consequences included: bindings of a deleted queue, auto-delete
// exchanges that lost their last binding, the contents of a vhost.
type Removed struct {
	Queues    []*Queue
	Exchanges []*Exchange
	Bindings  []*Binding
	Members   []LostMember // of quorum queues that go on without them
	VHosts    []string
	Users     []string
}

// LostMember is a copy that a quorum queue no longer has.
type LostMember struct {
	Queue  *Queue // as it is now
	Member Member
}
