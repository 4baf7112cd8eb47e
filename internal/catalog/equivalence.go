package catalog

import (
	"fmt"
	"strconv"
	"strings"

	"holdfast/internal/amqperr"
	"holdfast/internal/wire"
)

// DeclaredQueue answers a declare of a queue that exists: the queue if the request is equivalent to it, 405 or 406 if
// not. Without a queue of this name both results are nil and DeclareQueue has to be proposed; a name that may not be
// declared is refused (403) in any case.
func (v *View) DeclaredQueue(d *QueueDecl) (*Queue, *amqperr.Error) {
	name := CleanName(d.Name)
	if !d.ServerNamed && strings.HasPrefix(name, reservedPrefix) {
		return nil, amqperr.ReservedName(amqperr.Queue, d.VHost, name)
	}
	vh := v.VHost(d.VHost)
	if vh == nil {
		return nil, amqperr.VHostNotFound(d.VHost)
	}
	q, ok := vh.queues.Get(name)
	if !ok {
		return nil, nil
	}
	owner := ConnID(0)
	if d.Exclusive {
		owner = d.Conn
	}
	if q.Exclusive != d.Exclusive || q.Owner != owner {
		return nil, amqperr.QueueLocked(q.VHost, q.Name)
	}
	e := entity{amqperr.Queue, q.VHost, q.Name}
	if err := e.sameFlag("durable", d.Durable && !d.Exclusive, q.Durable); err != nil {
		return nil, err
	}
	if err := e.sameFlag("auto_delete", d.AutoDelete, q.AutoDelete); err != nil {
		return nil, err
	}
	for _, a := range arguments {
		if !a.by(declareRules).takenBy(q.Type) {
			continue
		}
		if err := e.sameArg(a.name, d.Args, q.Args); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// DeclaredExchange answers a declare of an exchange that exists: the exchange if the request is equivalent to it, 406 if
// not. Without an exchange of this name both results are nil and DeclareExchange has to be proposed; a type or a name
// that may not be declared is refused in any case.
func (v *View) DeclaredExchange(d *ExchangeDecl) (*Exchange, *amqperr.Error) {
	if _, ok := v.kindOf(ExchangeType(d.Type)); !ok {
		return nil, amqperr.UnknownExchangeType(d.Type)
	}
	name := CleanName(d.Name)
	if name == "" {
		return nil, amqperr.DefaultExchange()
	}
	vh := v.VHost(d.VHost)
	if vh == nil {
		return nil, amqperr.VHostNotFound(d.VHost)
	}
	x, ok := vh.exchanges.Get(name)
	if !ok {
		if strings.HasPrefix(name, reservedPrefix) {
			return nil, amqperr.ReservedName(amqperr.Exchange, d.VHost, name)
		}
		return nil, nil
	}
	e := entity{amqperr.Exchange, x.VHost, x.Name}
	if d.Type != string(x.Type) {
		return nil, amqperr.InequivalentFlag(e.kind, e.vhost, e.name, "type", d.Type, string(x.Type))
	}
	if err := e.sameFlag("durable", d.Durable, x.Durable); err != nil {
		return nil, err
	}
	if err := e.sameFlag("auto_delete", d.AutoDelete, x.AutoDelete); err != nil {
		return nil, err
	}
	if err := e.sameFlag("internal", d.Internal, x.Internal); err != nil {
		return nil, err
	}
	if err := e.sameArg(argAlternate, d.Args, x.Args); err != nil {
		return nil, err
	}
	return x, nil
}

// reservedPrefix starts the names that only the broker gives.
const reservedPrefix = "amq."

// entity is what a comparison is about.
type entity struct {
	kind        amqperr.Kind
	vhost, name string
}

func (e entity) sameFlag(flag string, received, current bool) *amqperr.Error {
	if received == current {
		return nil
	}
	return amqperr.InequivalentFlag(e.kind, e.vhost, e.name, flag, strconv.FormatBool(received), strconv.FormatBool(current))
}

func (e entity) sameArg(arg string, received, current wire.Table) *amqperr.Error {
	r, c := compared(arg, received), compared(arg, current)
	switch {
	case r.IsZero() && c.IsZero():
		return nil
	case r.IsZero():
		return amqperr.InequivalentArg(e.kind, e.vhost, e.name, arg, "", c.String())
	case c.IsZero():
		return amqperr.InequivalentArg(e.kind, e.vhost, e.name, arg, r.String(), "")
	case equivalent(r, c):
		return nil
	}
	return amqperr.InequivalentFlag(e.kind, e.vhost, e.name, arg, fmt.Sprint(r.Any()), fmt.Sprint(c.Any()))
}

var classicValue = wire.ValueOf(string(Classic))

// compared returns the value of an argument as it is compared: no type of queue is the type classic.
func compared(arg string, args wire.Table) wire.Value {
	v, ok := args.Get(arg)
	if arg == argQueueType {
		if s, _ := v.Str(); !ok || v.Kind == wire.KindString && (s == "" || s == "undefined") {
			return classicValue
		}
	}
	return v
}

// equivalent reports whether two values mean the same to a declare: integers of any width are equal by number, strings
// and byte strings by their bytes, and a timestamp is equal to the integer it is made of. A float equals no integer.
func equivalent(a, b wire.Value) bool {
	if a.Equal(b) {
		return true
	}
	if x, ok := a.Bytes(); ok {
		y, ok := b.Bytes()
		return ok && string(x) == string(y)
	}
	x, ok := number(a)
	y, ok2 := number(b)
	return ok && ok2 && x == y
}

func number(v wire.Value) (int64, bool) {
	if t, ok := v.Time(); ok {
		return t.Unix(), true
	}
	return v.Int()
}
