package catalog

import (
	"slices"
	"strings"

	"holdfast/internal/amqperr"
	"holdfast/internal/invariant"
	"holdfast/internal/routing"
)

func (t *txn) declareExchange(d *ExchangeDecl) *amqperr.Error {
	x, err := t.DeclaredExchange(d)
	if err != nil {
		return err
	}
	if x != nil {
		t.res.Exchange = x
		return nil
	}
	alternate := ""
	if v, ok := d.Args.Get(argAlternate); ok {
		if alternate, ok = v.Str(); !ok {
			return amqperr.InvalidArg(amqperr.Exchange, d.VHost, d.Name, argAlternate, "invalid type "+v.TypeName())
		}
	}
	kind, _ := t.kindOf(ExchangeType(d.Type))
	if ExchangeType(d.Type) == Delayed {
		if err := t.checkDelayed(d); err != nil {
			return err
		}
		kind = (&Exchange{Type: Delayed, Args: d.Args}).kind()
	}
	if problem := routing.CheckExchange(kind, d.Args); problem != "" {
		return amqperr.InvalidExchange(problem)
	}
	if !t.alive(d.Conn.Incarnation()) {
		return staleIncarnation("exchange", d.VHost, d.Name)
	}
	x = &Exchange{
		VHost:      d.VHost,
		Name:       d.Name,
		Type:       ExchangeType(d.Type),
		Durable:    d.Durable,
		AutoDelete: d.AutoDelete,
		Internal:   d.Internal,
		Args:       d.Args,
		Alternate:  alternate,
		User:       d.User,
	}
	if !d.Durable {
		x.Incarnation, x.Born = d.Conn.Incarnation(), t.lastIncarnation
	}
	vh := t.ownVHost(t.VHost(d.VHost))
	x.owner = t.edit
	t.addExchange(vh, x)
	if HasStore(x.Type) {
		if err := t.placeStore(vh, x, d); err != nil {
			return err
		}
	}
	t.res.Exchange, t.res.Created = x, true
	return nil
}

// addExchange gives a new exchange its id and enters it.
func (t *txn) addExchange(vh *VHost, x *Exchange) {
	t.lastExchange++
	x.ID = t.lastExchange
	t.putExchange(vh, x)
}

// putExchange enters an exchange without bindings in all the maps it belongs to.
func (t *txn) putExchange(vh *VHost, x *Exchange) {
	x.index = routing.New(x.kind(), x.Args)
	vh.exchanges = vh.exchanges.Set(t.edit, x.Name, x)
	vh.exchangeIDs = vh.exchangeIDs.Set(t.edit, x.ID, x.Name)
	if !x.Durable {
		t.mortalExchanges = t.mortalExchanges.Set(t.edit, x.ownerKey(), x)
	}
}

// forgetExchange takes an exchange out of the maps that are not the vhost's.
func (t *txn) forgetExchange(x *Exchange) {
	if !x.Durable {
		t.mortalExchanges = t.mortalExchanges.Delete(t.edit, x.ownerKey())
	}
	t.forgetStore(x)
	t.res.Removed.Exchanges = append(t.res.Removed.Exchanges, x)
}

func (t *txn) deleteExchange(vhost, name string, ifUnused bool) *amqperr.Error {
	switch {
	case name == "":
		return amqperr.DefaultExchange()
	case strings.HasPrefix(name, reservedPrefix):
		return amqperr.PredeclaredExchange(vhost, name)
	}
	x := t.Exchange(vhost, name)
	if x == nil {
		return nil
	}
	if ifUnused && x.bindings > 0 {
		return amqperr.ExchangeInUse(vhost, name)
	}
	t.removeExchange(t.ownVHost(t.VHost(vhost)), x)
	return nil
}

// removeExchange removes an exchange with the bindings from it and to it, and what goes with the latter.
func (t *txn) removeExchange(vh *VHost, x *Exchange) {
	vh.exchanges = vh.exchanges.Delete(t.edit, x.Name)
	vh.exchangeIDs = vh.exchangeIDs.Delete(t.edit, x.ID)
	t.forgetExchange(x)
	prefix := string(appendPart(nil, x.Name))
	for b := range t.BindingsFrom(vh.Name, x.Name).All() {
		vh.byTarget = vh.byTarget.Delete(t.edit, targetKey(b))
		t.res.Removed.Bindings = append(t.res.Removed.Bindings, b)
	}
	vh.bySource = vh.bySource.DeleteRange(t.edit, prefix, prefixEnd(prefix))
	t.removeBindingsTo(vh, KindExchange, x.Name, routing.ToExchange(uint64(x.ID)))
}

func (t *txn) bind(b *Binding, conn ConnID) *amqperr.Error {
	x, target, err := t.ends(b, conn)
	if err != nil {
		return err
	}
	key := sourceKey(b)
	if _, ok := t.VHost(b.VHost).bySource.Get(key); ok {
		return nil
	}
	vh := t.ownVHost(t.VHost(b.VHost))
	t.putBinding(vh, x, b, key, target)
	t.res.Created, t.res.Generation = true, vh.generation
	return nil
}

// putBinding enters a binding in all the maps it belongs to.
func (t *txn) putBinding(vh *VHost, x *Exchange, b *Binding, key string, target routing.Target) {
	vh.bySource = vh.bySource.Set(t.edit, key, b)
	vh.byTarget = vh.byTarget.Set(t.edit, targetKey(b), b)
	x = t.ownExchange(vh, x)
	x.index = x.index.Bind(t.edit, b.indexed(target))
	x.bindings++
}

// indexed is the binding as the index of its source sees it: the target with its name, and what kind of thing it is.
func (b *Binding) indexed(target routing.Target) routing.Binding {
	return routing.Binding{Key: b.Key, Args: b.Args, Target: target, Name: string(rune('0'+b.Kind)) + b.Destination}
}

func (t *txn) unbind(b *Binding, conn ConnID) *amqperr.Error {
	if b.Source == "" || b.Kind == KindExchange && b.Destination == "" {
		return amqperr.DefaultExchange()
	}
	if !t.HasBinding(b) {
		return nil
	}
	_, target, err := t.ends(b, conn)
	if err != nil {
		return err
	}
	vh := t.ownVHost(t.VHost(b.VHost))
	t.removeBinding(vh, b, target)
	t.autoDelete(vh, b.Source)
	return nil
}

// ends returns the source of a binding that exists or may be made, and where it leads.
func (t *txn) ends(b *Binding, conn ConnID) (x *Exchange, target routing.Target, err *amqperr.Error) {
	if b.Source == "" || b.Kind == KindExchange && b.Destination == "" {
		return nil, 0, amqperr.DefaultExchange()
	}
	if t.VHost(b.VHost) == nil {
		return nil, 0, amqperr.VHostNotFound(b.VHost)
	}
	if x, err = t.UseExchange(b.VHost, b.Source); err != nil {
		return nil, 0, err
	}
	var q *Queue
	if b.Kind == KindExchange {
		to, err := t.UseExchange(b.VHost, b.Destination)
		if err != nil {
			return nil, 0, err
		}
		target = routing.ToExchange(uint64(to.ID))
	} else {
		if q = t.Queue(b.VHost, b.Destination); q == nil {
			return nil, 0, amqperr.NoQueue(b.VHost, b.Destination)
		}
		target = routing.ToQueue(uint64(q.ID))
	}
	kind := x.kind()
	if problem := routing.CheckKey(kind, b.Key); problem != "" {
		if kind == routing.Topic {
			return nil, 0, amqperr.InvalidBindingKey(b.Key, b.Source, b.VHost, problem)
		}
		return nil, 0, amqperr.InvalidBinding(problem)
	}
	if kind == routing.LocalRandom {
		if q == nil {
			return nil, 0, amqperr.InvalidBinding("Destination not found")
		}
		if q.Type != Classic {
			return nil, 0, amqperr.InvalidBinding("Queue type " + string(q.Type) + " not valid for this exchange type")
		}
	}
	if arg, problem := routing.CheckArgs(kind, b.Args); problem != "" {
		return nil, 0, amqperr.InvalidBindingArg(arg, b.Source, b.VHost, problem)
	}
	if q != nil {
		if err := q.allows(conn); err != nil {
			return nil, 0, err
		}
	}
	return x, target, nil
}

// removeBinding removes one binding. The source has to be looked at afterwards: see autoDelete.
func (t *txn) removeBinding(vh *VHost, b *Binding, target routing.Target) {
	key := sourceKey(b)
	b, _ = vh.bySource.Get(key) // the one that was made, not the one that was asked for
	vh.bySource = vh.bySource.Delete(t.edit, key)
	vh.byTarget = vh.byTarget.Delete(t.edit, targetKey(b))
	t.res.Removed.Bindings = append(t.res.Removed.Bindings, b)
	if x, ok := vh.exchanges.Get(b.Source); ok {
		x = t.ownExchange(vh, x)
		x.index = x.index.Unbind(t.edit, b.indexed(target))
		x.bindings--
	}
}

// removeBindingsTo removes all bindings to a queue or an exchange that is gone already. There may be very many: what is kept in order
// loses them at once, and a source that loses most of what it has gets a new index instead of a changed one.
func (t *txn) removeBindingsTo(vh *VHost, kind Kind, name string, target routing.Target) {
	bindings := slices.Collect(t.BindingsTo(vh.Name, kind, name).All())
	if len(bindings) == 0 {
		return
	}
	prefix := targetPrefix(kind, name)
	vh.byTarget = vh.byTarget.DeleteRange(t.edit, prefix, prefixEnd(prefix))
	t.res.Removed.Bindings = append(t.res.Removed.Bindings, bindings...)
	bySource := func(yield func(string, []*Binding) bool) {
		for rest := bindings; len(rest) > 0; {
			n := 1
			for n < len(rest) && rest[n].Source == rest[0].Source {
				n++
			}
			if !yield(rest[0].Source, rest[:n]) {
				return
			}
			rest = rest[n:]
		}
	}
	for source, gone := range bySource {
		prefix := sourcePrefix(source, kind, name)
		vh.bySource = vh.bySource.DeleteRange(t.edit, prefix, prefixEnd(prefix))
		if x, ok := vh.exchanges.Get(source); ok {
			t.unbindAll(vh, t.ownExchange(vh, x), gone, target)
		}
	}
	for source := range bySource {
		t.autoDelete(vh, source)
	}
}

// unbindAll takes bindings to one target, which are gone already, out of the index of their source.
func (t *txn) unbindAll(vh *VHost, x *Exchange, gone []*Binding, target routing.Target) {
	if x.bindings -= len(gone); x.bindings >= len(gone) {
		for _, b := range gone {
			x.index = x.index.Unbind(t.edit, b.indexed(target))
		}
		return
	}
	x.index = routing.New(x.kind(), x.Args)
	for b := range t.BindingsFrom(vh.Name, x.Name).All() {
		_, to, ok := vh.bindingEnds(b)
		if !ok {
			invariant.Failf("catalog: exchange %q of vhost %q is bound to what is not there: %q", x.Name, vh.Name, b.Destination)
		}
		x.index = x.index.Bind(t.edit, b.indexed(to))
	}
}

// autoDelete removes an auto-delete exchange that has just lost its last binding.
func (t *txn) autoDelete(vh *VHost, name string) {
	if x, ok := vh.exchanges.Get(name); ok && x.AutoDelete && x.bindings == 0 {
		t.removeExchange(vh, x)
	}
}
