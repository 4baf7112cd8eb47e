package catalog

import "holdfast/internal/wire"

// QueueDecl is a request to declare a queue.
type QueueDecl struct {
	VHost, Name string
	ServerNamed bool // the name was made by ServerName: it may start with "amq."
	Durable     bool
	AutoDelete  bool
	Exclusive   bool
	Args        wire.Table
	Conn        ConnID // who asks: owner of an exclusive queue
	User        string

	// Home is where a queue with one copy shall live, if it comes to be; 0: on the node of Conn. An exclusive queue lives
	// with its owner whatever stands here. A non-durable queue dies with the present start of its home.
	Home uint64
	// Members are where the copies of a quorum queue shall live, the one to lead at first in front. Without any, a quorum
	// queue is refused as a type that is not there.
	Members []Member

	// Level is that of the view that it is proposed by: from 2 on the third rules hold.
	Level uint16
}

// ExchangeDecl is a request to declare an exchange.
type ExchangeDecl struct {
	VHost, Name string
	Type        string
	Durable     bool
	AutoDelete  bool
	Internal    bool
	Args        wire.Table
	Conn        ConnID // who asks; its incarnation is that of a non-durable exchange
	User        string

	// Where the store is to live, if the exchange has one: a copy on each node of Members, or, without any, one on Home; 0: on the
	// node of Conn. That of a non-durable exchange has one copy.
	Home    uint64
	Members []Member
	// Level is that of the view that it is proposed by: below 2 there are no stores.
	Level uint16
}

// Defaults is what a new broker starts with.
type Defaults struct {
	VHost                  string // "/"
	User                   User   // guest, tag administrator; no name: no user
	Configure, Write, Read string // permissions of User in VHost
}

// commandVersion is the first byte of every command.
const commandVersion = 1

// The kinds of commands: the second byte. Numbers are never reused.
type commandKind uint8

const (
	cmdBootstrap commandKind = 1 + iota
	cmdNewIncarnation
	cmdDeclareQueue
	cmdDeleteQueue
	cmdDeleteQueues
	cmdDeleteConnectionQueues
	cmdDeclareExchange
	cmdDeleteExchange
	cmdBind
	cmdUnbind
	cmdAddVHost
	cmdDeleteVHost
	cmdAddUser
	cmdPutUser
	cmdSetPassword
	cmdSetTags
	cmdDeleteUser
	cmdSetPermissions
	cmdClearPermissions
	cmdDeclarePlacedQueue
	cmdStartNode
	cmdAddNode
	cmdRemoveNode
	cmdSetDrained
	cmdNodeGone
	cmdAddMember
	cmdRemoveMember
	cmdSetMembers
	cmdSetVoter
	cmdSetLevels
	cmdRaiseLevel
	cmdSetPolicy
	cmdClearPolicy
	cmdPauseQueue
	cmdDeclarePlacedExchange
)

// Two kinds are read and no longer written: cmdNewIncarnation, which knows a node by a string (see [NodeIDOf]), and
// cmdDeclareQueue, which has neither home nor members. They do what they did when they were written, to the last refusal:
// a queue's id is the number of declares that succeeded before it.

// declareRules is the newest version of the rules by which a declare decides what is possible: see checkArguments. A declare
// carries the version of whoever proposed it, so that an old log gives the queues it gave. From the third on they belong to
// level 2.
const declareRules = 5

func begin(k commandKind, size int) *encoder {
	e := &encoder{b: make([]byte, 0, size+16)}
	e.byte(commandVersion)
	e.byte(byte(k))
	return e
}

// Bootstrap returns the command that fills a new catalog. Applied a second time it does nothing: see View.Bootstrapped.
func Bootstrap(d Defaults) []byte {
	e := begin(cmdBootstrap, 128)
	e.string(d.VHost)
	e.user(&d.User)
	e.string(d.Configure)
	e.string(d.Write)
	e.string(d.Read)
	return e.b
}

// NewIncarnation returns the command by which a node announces its start. Result.Incarnation is its number,
// Result.Removed the non-durable and exclusive things of the node's former incarnation. A node that is not in the cluster
// is refused (404); but as long as no node was ever added, whoever starts is the only one, and has all that others had.
func NewIncarnation(node uint64) []byte {
	e := begin(cmdStartNode, 8)
	e.uint(node)
	return e.b
}

// AddNode returns the command that adds a node to the cluster, or gives one that is there another name, address or vote;
// Result.Created, Result.Node. Of n it takes ID, Name, Addr and Voter. A name that another node has is refused (406).
func AddNode(n Node) []byte {
	e := begin(cmdAddNode, len(n.Name)+len(n.Addr)+8)
	e.uint(n.ID)
	e.string(n.Name)
	e.string(n.Addr)
	e.flags(n.Voter)
	return e.b
}

// RemoveNode returns the command that takes a node out of the cluster, for good: with it go the queues that live there,
// whatever dies with its present start, and its copies of quorum queues; a quorum queue with its only copy there goes
// whole. Result.Removed tells. 404 if there is no such node.
func RemoveNode(node uint64) []byte {
	e := begin(cmdRemoveNode, 8)
	e.uint(node)
	return e.b
}

// SetDrained returns the command that says whether a node takes leaders and new queues; 404 if there is no such node.
func SetDrained(node uint64, on bool) []byte {
	e := begin(cmdSetDrained, 8)
	e.uint(node)
	e.flags(on)
	return e.b
}

// SetVoter returns the command that says whether a node votes on the catalog; 404 if there is no such node: unlike AddNode it
// brings none back that was removed meanwhile. Result.Node.
func SetVoter(node uint64, on bool) []byte {
	e := begin(cmdSetVoter, 8)
	e.uint(node)
	e.flags(on)
	return e.b
}

// NodeGone returns the command that removes what dies with a start of a node which has been away for too long. The node
// stays. It does nothing if the node has been started anew by then.
func NodeGone(node uint64, inc Incarnation) []byte {
	e := begin(cmdNodeGone, 12)
	e.uint(node)
	e.uint(uint64(inc))
	return e.b
}

// AddMember returns the command that enters a further copy of a quorum queue; Result.Queue, Result.Created. One that is
// entered already is no error; a node that has another copy, or is not in the cluster, is.
func AddMember(q QueueID, m Member) []byte {
	e := begin(cmdAddMember, 24)
	e.uint(uint64(q))
	e.member(m)
	return e.b
}

// RemoveMember returns the command that strikes out the copy of a quorum queue on a node; Result.Queue, Result.Removed. A
// node without one is no error; the last copy is not removed (406).
func RemoveMember(q QueueID, node uint64) []byte {
	e := begin(cmdRemoveMember, 16)
	e.uint(uint64(q))
	e.uint(node)
	return e.b
}

// SetMembers returns the command that enters what a quorum queue's group has agreed on; Result.Queue, Result.Removed. The
// list has at least one member, one a node, each on a node of the cluster.
func SetMembers(q QueueID, members []Member) []byte {
	e := begin(cmdSetMembers, 16+16*len(members))
	e.uint(uint64(q))
	e.members(members)
	return e.b
}

// DeclareQueue returns the command that declares a queue; Result.Queue, Result.Created. A queue that exists is compared
// with the request (406, 405). View.DeclaredQueue answers without a command where the queue exists.
func DeclareQueue(d QueueDecl) []byte {
	e := begin(cmdDeclarePlacedQueue, len(d.VHost)+len(d.Name)+len(d.Args)+len(d.User)+16+16*len(d.Members))
	e.byte(byte(d.rules()))
	e.string(d.VHost)
	e.string(CleanName(d.Name))
	e.flags(d.ServerNamed, d.Durable, d.AutoDelete, d.Exclusive)
	e.bytes(without(d.Args, argNamePrefix))
	e.uint(uint64(d.Conn))
	e.string(d.User)
	e.uint(d.Home)
	e.members(d.Members)
	return e.b
}

// DeleteQueue returns the command that deletes the queue of this name, if its id is the given one (0: any) and conn may
// use it (405). A queue that is not there, or is another one by now, is no error. Whether it is empty or unused is the
// broker's business.
func DeleteQueue(vhost, name string, id QueueID, conn ConnID) []byte {
	e := begin(cmdDeleteQueue, len(vhost)+len(name)+8)
	e.string(vhost)
	e.string(CleanName(name))
	e.uint(uint64(id))
	e.uint(uint64(conn))
	return e.b
}

// PauseQueue returns the command by which nothing of a queue is delivered any more, or by which it goes on; Result.Queue. 404 if there is
// none of that name. It belongs to level 2.
func PauseQueue(vhost, name string, on bool) []byte {
	e := begin(cmdPauseQueue, len(vhost)+len(name))
	e.string(vhost)
	e.string(CleanName(name))
	e.flags(on)
	return e.b
}

// DeleteQueues returns the command that deletes these queues, whoever owns them: auto-delete, expiry. Ids that are gone
// are skipped.
func DeleteQueues(ids []QueueID) []byte {
	e := begin(cmdDeleteQueues, 5*len(ids))
	e.uint(uint64(len(ids)))
	for _, id := range ids {
		e.uint(uint64(id))
	}
	return e.b
}

// DeleteConnectionQueues returns the command that deletes all exclusive queues of a connection.
func DeleteConnectionQueues(conn ConnID) []byte {
	e := begin(cmdDeleteConnectionQueues, 8)
	e.uint(uint64(conn))
	return e.b
}

// DeclareExchange returns the command that declares an exchange; Result.Exchange, Result.Created.
// View.DeclaredExchange answers without a command where the exchange exists.
func DeclareExchange(d ExchangeDecl) []byte {
	kind := cmdDeclareExchange
	if HasStore(ExchangeType(d.Type)) && d.Level >= hashLevel {
		kind = cmdDeclarePlacedExchange
	}
	e := begin(kind, len(d.VHost)+len(d.Name)+len(d.Type)+len(d.Args)+len(d.User)+8)
	e.string(d.VHost)
	e.string(CleanName(d.Name))
	e.string(d.Type)
	e.flags(d.Durable, d.AutoDelete, d.Internal)
	e.bytes(d.Args)
	e.uint(uint64(d.Conn))
	e.string(d.User)
	if kind == cmdDeclarePlacedExchange {
		e.uint(d.Home)
		e.members(d.Members)
	}
	return e.b
}

// DeleteExchange returns the command that deletes an exchange; one that does not exist is no error. With ifUnused it is
// refused (406) while the exchange is the source of a binding.
func DeleteExchange(vhost, name string, ifUnused bool) []byte {
	e := begin(cmdDeleteExchange, len(vhost)+len(name))
	e.string(vhost)
	e.string(CleanName(name))
	e.flags(ifUnused)
	return e.b
}

// Bind returns the command that adds a binding; one that exists is no error, Result.Created tells. conn is who asks: an
// exclusive queue takes bindings from its owner only.
func Bind(b Binding, conn ConnID) []byte { return bindCommand(cmdBind, b, conn) }

// Unbind returns the command that removes a binding; one that does not exist is no error.
func Unbind(b Binding, conn ConnID) []byte { return bindCommand(cmdUnbind, b, conn) }

func bindCommand(k commandKind, b Binding, conn ConnID) []byte {
	e := begin(k, len(b.VHost)+len(b.Source)+len(b.Destination)+len(b.Key)+len(b.Args)+8)
	b.Source, b.Destination = CleanName(b.Source), CleanName(b.Destination)
	e.binding(&b)
	e.uint(uint64(conn))
	return e.b
}

// AddVHost returns the command that creates a vhost with its predeclared exchanges; one that exists stays as it is,
// Result.Created tells.
func AddVHost(name, description string, tags []string) []byte {
	e := begin(cmdAddVHost, len(name)+len(description)+16)
	e.string(name)
	e.string(description)
	e.strings(tags)
	return e.b
}

// DeleteVHost returns the command that deletes a vhost, everything in it and all permissions on it; 404 if missing.
func DeleteVHost(name string) []byte {
	e := begin(cmdDeleteVHost, len(name))
	e.string(name)
	return e.b
}

// AddUser returns the command that creates a user; 406 if the name is taken.
func AddUser(u User) []byte { return userCommand(cmdAddUser, u) }

// PutUser returns the command that creates a user or replaces it, keeping its permissions; Result.Created tells which.
func PutUser(u User) []byte { return userCommand(cmdPutUser, u) }

func userCommand(k commandKind, u User) []byte {
	e := begin(k, len(u.Name)+len(u.Hash)+32)
	e.user(&u)
	return e.b
}

// SetPassword returns the command that changes a password, hash and algorithm as in User; 404 if there is no such user.
func SetPassword(user, hash, algorithm string) []byte {
	e := begin(cmdSetPassword, len(user)+len(hash)+len(algorithm))
	e.string(user)
	e.string(hash)
	e.string(algorithm)
	return e.b
}

// SetTags returns the command that replaces a user's tags; 404 if there is no such user.
func SetTags(user string, tags []string) []byte {
	e := begin(cmdSetTags, len(user)+16)
	e.string(user)
	e.strings(tags)
	return e.b
}

// DeleteUser returns the command that deletes a user and its permissions; 404 if there is no such user.
func DeleteUser(user string) []byte {
	e := begin(cmdDeleteUser, len(user))
	e.string(user)
	return e.b
}

// SetPermissions returns the command that sets a user's permissions on a vhost; 404 if either is missing.
func SetPermissions(p Permission) []byte {
	e := begin(cmdSetPermissions, len(p.User)+len(p.VHost)+len(p.Configure)+len(p.Write)+len(p.Read))
	e.permission(&p)
	return e.b
}

// ClearPermissions returns the command that takes a user's permissions on a vhost away; 404 if either is missing.
func ClearPermissions(user, vhost string) []byte {
	e := begin(cmdClearPermissions, len(user)+len(vhost))
	e.string(user)
	e.string(vhost)
	return e.b
}
