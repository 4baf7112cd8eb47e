package catalog

import (
	"holdfast/internal/amqperr"
)

// Some exchanges keep messages for a time before they route them. Such an exchange has a store: a queue of its own that is in no
// vhost's list of queues, so that nobody but the exchange can use it. It comes and goes with the exchange.

// argDelayedType is the argument of an exchange that delays: how it routes.
const argDelayedType = "x-delayed-type"

// HasStore reports whether exchanges of a type have a store.
func HasStore(t ExchangeType) bool { return t == Delayed }

// Routes is the type by whose rules the exchange routes: its own, but for one that delays.
func (x *Exchange) Routes() ExchangeType {
	if x.Type != Delayed {
		return x.Type
	}
	v, _ := x.Args.Get(argDelayedType)
	s, _ := v.Str()
	return ExchangeType(s)
}

// checkDelayed returns what is wrong with the arguments of an exchange that is to delay.
func (v *View) checkDelayed(d *ExchangeDecl) *amqperr.Error {
	arg, _ := d.Args.Get(argDelayedType)
	base, is := arg.Str()
	switch _, known := v.kindOf(ExchangeType(base)); {
	case !is:
		return amqperr.InvalidExchange("Invalid argument, '" + argDelayedType + "' must be an existing exchange type")
	case ExchangeType(base) == Delayed:
		return amqperr.InvalidExchange("Invalid argument, '" + string(Delayed) + "' can't be used for '" + argDelayedType + "'")
	case !known:
		return amqperr.UnknownExchangeType(base)
	}
	return nil
}

// addStore gives an exchange of t's own a new store: a copy on each of the nodes of members, if there are any, else one on home.
func (t *txn) addStore(vh *VHost, x *Exchange, home uint64, members []Member) {
	t.lastQueue++
	q := &Queue{
		ID: t.lastQueue, VHost: x.VHost, Name: "messages of exchange " + x.Name, Of: x.ID, Type: Classic,
		Durable: x.Durable, Incarnation: x.Incarnation, Home: home, User: x.User, Created: t.time,
	}
	if x.Durable && len(members) > 0 {
		q.Type, q.Home, q.Members = Quorum, 0, members
	}
	x.Store = q.ID
	t.putQueue(vh, q)
	t.res.Stores = append(t.res.Stores, q)
}

// placeStore gives a new exchange its store where the declaration says: on the node that it was declared on, if it does not.
func (t *txn) placeStore(vh *VHost, x *Exchange, d *ExchangeDecl) *amqperr.Error {
	home := t.NodeOf(d.Conn.Incarnation())
	if d.Home != 0 {
		if home = t.Node(d.Home); home == nil {
			return noNode(d.Home)
		}
	}
	if len(d.Members) > 0 {
		if err := t.checkMembers(d.Members); err != nil {
			return err
		}
	}
	id := uint64(0)
	if home != nil {
		id = home.ID
	}
	t.addStore(vh, x, id, d.Members)
	return nil
}

// moveStore gives an exchange another store instead of one that is lost with its node, on the first of the nodes that are left; what
// was in the old one is lost, too.
func (t *txn) moveStore(q *Queue) {
	vh := t.ownVHost(t.VHost(q.VHost))
	name, _ := vh.exchangeIDs.Get(q.Of)
	x, _ := vh.exchanges.Get(name)
	t.forgetQueue(q)
	x = t.ownExchange(vh, x)
	home := uint64(0)
	for n := range t.Nodes().All() {
		if home == 0 || !n.Drained {
			home = n.ID
		}
		if !n.Drained {
			break
		}
	}
	if !x.Durable {
		home = 0
		if n := t.NodeOf(x.Incarnation); n != nil {
			home = n.ID
		}
	}
	t.addStore(vh, x, home, nil)
}

// forgetStore lets the store of an exchange go that is gone.
func (t *txn) forgetStore(x *Exchange) {
	if q := t.QueueByID(x.Store); q != nil {
		t.forgetQueue(q)
	}
}
