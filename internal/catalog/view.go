package catalog

import (
	"cmp"
	"iter"
	"strings"

	"holdfast/internal/amqperr"
	"holdfast/internal/routing"
	"holdfast/internal/routing/ordmap"
)

// View is the catalog as of one command. It is immutable; any goroutine may read it, as long as it likes.
type View struct {
	generation   uint64
	bootstrapped bool
	level        uint16 // 0 stands for 1

	vhosts      ordmap.Map[string, *VHost]
	users       ordmap.Map[string, *User]
	permissions ordmap.Map[string, *Permission] // by permissionKey
	queues      ordmap.Map[QueueID, *Queue]
	nodes       ordmap.Map[uint64, *Node]
	placed      ordmap.Map[uint64, hosted] // what lives on a node, by its id; none that hosts nothing

	// What dies with a connection or a node's incarnation, by ownerKey: exclusive and non-durable queues, non-durable
	// exchanges.
	mortalQueues    ordmap.Map[string, *Queue]
	mortalExchanges ordmap.Map[string, *Exchange]

	lastQueue       QueueID
	lastExchange    ExchangeID
	lastIncarnation Incarnation
}

// VHost is a name space with exchanges, queues and bindings. It is immutable.
type VHost struct {
	Name        string
	Description string
	Tags        []string

	owner       *ordmap.Edit
	generation  uint64
	queues      ordmap.Map[string, *Queue]
	exchanges   ordmap.Map[string, *Exchange]
	exchangeIDs ordmap.Map[ExchangeID, string]
	bySource    ordmap.Map[string, *Binding] // by sourceKey
	byTarget    ordmap.Map[string, *Binding] // by targetKey
	policies    *policySet
}

// Generation changes whenever anything in the vhost does that routing depends on: queues, exchanges, bindings, policies that
// name alternate exchanges. As long as it stays the same, so does every answer of Route.
func (vh *VHost) Generation() uint64 { return vh.generation }

// Generation is the number of commands that changed anything.
func (v *View) Generation() uint64 { return v.generation }

// Bootstrapped reports whether Bootstrap has been applied.
func (v *View) Bootstrapped() bool { return v.bootstrapped }

// VHost returns a vhost, nil if there is none.
func (v *View) VHost(name string) *VHost {
	vh, _ := v.vhosts.Get(name)
	return vh
}

// VHosts lists all vhosts by name.
func (v *View) VHosts() List[*VHost] { return listOf(v.vhosts, 0, v.vhosts.Len()) }

// User returns a user, nil if there is none.
func (v *View) User(name string) *User {
	u, _ := v.users.Get(name)
	return u
}

// Users lists all users by name.
func (v *View) Users() List[*User] { return listOf(v.users, 0, v.users.Len()) }

// Permission returns a user's permissions in a vhost, nil if it has none.
func (v *View) Permission(user, vhost string) *Permission {
	p, _ := v.permissions.Get(permissionKey(user, vhost))
	return p
}

// Permissions lists all permissions by user, then vhost.
func (v *View) Permissions() List[*Permission] {
	return listOf(v.permissions, 0, v.permissions.Len())
}

// Queue returns a queue, nil if there is none.
func (v *View) Queue(vhost, name string) *Queue {
	if vh := v.VHost(vhost); vh != nil {
		q, _ := vh.queues.Get(name)
		return q
	}
	return nil
}

// QueueByID returns a queue, nil if it is gone.
func (v *View) QueueByID(id QueueID) *Queue {
	q, _ := v.queues.Get(id)
	return q
}

// LastQueue returns the highest queue id that was ever given out: a group with a lower one that no queue has belonged to a
// queue that was deleted.
func (v *View) LastQueue() QueueID { return v.lastQueue }

// UseQueue returns a queue for a connection that wants to do something with it: 404 if there is none, 405 if it is
// exclusive to another connection. It answers a passive declare, too.
func (v *View) UseQueue(vhost, name string, conn ConnID) (*Queue, *amqperr.Error) {
	name = CleanName(name)
	q := v.Queue(vhost, name)
	if q == nil {
		return nil, amqperr.NoQueue(vhost, name)
	}
	if err := q.allows(conn); err != nil {
		return nil, err
	}
	return q, nil
}

func (q *Queue) allows(conn ConnID) *amqperr.Error {
	if q.Exclusive && q.Owner != conn {
		return amqperr.QueueLocked(q.VHost, q.Name)
	}
	return nil
}

// Queues lists the queues of a vhost by name.
func (v *View) Queues(vhost string) List[*Queue] {
	if vh := v.VHost(vhost); vh != nil {
		return listOf(vh.queues, 0, vh.queues.Len())
	}
	return List[*Queue]{}
}

// AllQueues lists the queues of all vhosts by id, that is, by age.
func (v *View) AllQueues() List[*Queue] { return listOf(v.queues, 0, v.queues.Len()) }

// Exchange returns an exchange, nil if there is none.
func (v *View) Exchange(vhost, name string) *Exchange {
	if vh := v.VHost(vhost); vh != nil {
		x, _ := vh.exchanges.Get(name)
		return x
	}
	return nil
}

// ExchangeByID returns an exchange of a vhost, nil if it is gone.
func (v *View) ExchangeByID(vhost string, id ExchangeID) *Exchange {
	vh := v.VHost(vhost)
	if vh == nil {
		return nil
	}
	name, ok := vh.exchangeIDs.Get(id)
	if !ok {
		return nil
	}
	x, _ := vh.exchanges.Get(name)
	return x
}

// HistoryLength returns how many messages an exchange keeps for later bindings, if it is one that does.
func (x *Exchange) HistoryLength() int { return routing.HistoryLength(x.Args) }

// UseExchange returns an exchange, or 404.
func (v *View) UseExchange(vhost, name string) (*Exchange, *amqperr.Error) {
	if x := v.Exchange(vhost, name); x != nil {
		return x, nil
	}
	return nil, amqperr.NoExchange(vhost, name)
}

// Exchanges lists the exchanges of a vhost by name, the default exchange first.
func (v *View) Exchanges(vhost string) List[*Exchange] {
	if vh := v.VHost(vhost); vh != nil {
		return listOf(vh.exchanges, 0, vh.exchanges.Len())
	}
	return List[*Exchange]{}
}

// Bindings lists the bindings of a vhost by source, then destination. The default exchange's are not in the list, since
// they are not kept: see [Queue.DefaultBinding].
func (v *View) Bindings(vhost string) List[*Binding] {
	if vh := v.VHost(vhost); vh != nil {
		return listOf(vh.bySource, 0, vh.bySource.Len())
	}
	return List[*Binding]{}
}

// BindingsFrom lists the bindings of an exchange by destination.
func (v *View) BindingsFrom(vhost, exchange string) List[*Binding] {
	if vh := v.VHost(vhost); vh != nil {
		return listPrefix(vh.bySource, string(appendPart(nil, exchange)))
	}
	return List[*Binding]{}
}

// BindingsTo lists the bindings that lead to a queue or an exchange, by source.
func (v *View) BindingsTo(vhost string, kind Kind, name string) List[*Binding] {
	if vh := v.VHost(vhost); vh != nil {
		return listPrefix(vh.byTarget, targetPrefix(kind, name))
	}
	return List[*Binding]{}
}

// HasBinding reports whether this very binding exists.
func (v *View) HasBinding(b *Binding) bool {
	vh := v.VHost(b.VHost)
	if vh == nil {
		return false
	}
	_, ok := vh.bySource.Get(sourceKey(b))
	return ok
}

// DefaultBinding returns the binding by which the default exchange leads to the queue.
func (q *Queue) DefaultBinding() *Binding {
	return &Binding{VHost: q.VHost, Destination: q.Name, Key: q.Name}
}

// List is an ordered list that can be entered anywhere at little cost.
type List[T any] struct {
	first, n int
	from     func(rank int) iter.Seq[T]
}

// Len returns the number of items.
func (l List[T]) Len() int { return l.n }

// All iterates over all items.
func (l List[T]) All() iter.Seq[T] { return l.From(0) }

// From iterates over the items but the first skip ones.
func (l List[T]) From(skip int) iter.Seq[T] {
	return func(yield func(T) bool) {
		left := l.n - max(skip, 0)
		if left <= 0 {
			return
		}
		for item := range l.from(l.first + max(skip, 0)) {
			if !yield(item) {
				return
			}
			if left--; left == 0 {
				return
			}
		}
	}
}

func listOf[K cmp.Ordered, T any](m ordmap.Map[K, T], first, n int) List[T] {
	return List[T]{first, n, func(rank int) iter.Seq[T] {
		return func(yield func(T) bool) {
			for _, item := range m.From(rank) {
				if !yield(item) {
					return
				}
			}
		}
	}}
}

// listPrefix lists what stands under keys that start with prefix, which ends with a part.
func listPrefix[T any](m ordmap.Map[string, T], prefix string) List[T] {
	first := m.Rank(prefix)
	return listOf(m, first, m.Rank(prefixEnd(prefix))-first)
}

// The keys below are made of parts such that they sort like the tuples of their parts. A part is a string in which a zero
// byte is followed by 0xff; it ends with a zero byte and 0x01.

func appendPart(dst []byte, s string) []byte {
	for {
		i := strings.IndexByte(s, 0)
		if i < 0 {
			break
		}
		dst = append(append(dst, s[:i]...), 0, 0xff)
		s = s[i+1:]
	}
	return append(append(dst, s...), 0, 1)
}

// prefixEnd returns the least key that is greater than all keys starting with prefix.
func prefixEnd(prefix string) string { return prefix[:len(prefix)-1] + "\x02" }
