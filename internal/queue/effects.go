package queue

// Effects collects what applied entries ask for, in order. It is reused from
// entry to entry; the zero value is ready.
type Effects struct {
	List []Effect

	command uint32  // place of the command being applied
	freed   []freed // released by it, and not in List yet
}

// freed is a range of released messages. They are listed at the end of their
// command: so the deliveries of a round come first and both coalesce.
type freed struct {
	Numbers
	reason Reason
}

// Reset empties the list and keeps its memory, unless that has grown out of proportion.
func (fx *Effects) Reset() {
	const keep = 16 << 10 // a full entry of settles, each followed by a delivery, fits
	if cap(fx.List) > keep {
		fx.List = nil
	} else {
		clear(fx.List)
		fx.List = fx.List[:0]
	}
	if cap(fx.freed) > keep {
		fx.freed = nil
	}
}

// add appends an effect of the command being applied and returns it to be filled in.
func (fx *Effects) add(kind EffectKind) *Effect {
	fx.List = append(fx.List, Effect{Kind: kind, Command: fx.command})
	return &fx.List[len(fx.List)-1]
}

// about appends an effect that only names a consumer.
func (fx *Effects) about(kind EffectKind, c ConsumerID) { fx.add(kind).Consumer = c }

// deliver appends the delivery of n messages from first on to c under the ids from
// id on, or makes it part of the last effect. Each Get has an effect of its own.
func (fx *Effects) deliver(c *consumer, id uint64, first Number, n uint64, a attr) {
	last := first + Number(n) - 1
	if k := len(fx.List); k > 0 && !c.getter && !a.is(flagBig) {
		e := &fx.List[k-1]
		if e.Kind == Deliver && e.Consumer == c.id && e.Last+1 == first && e.attr == a {
			e.Last = last
			return
		}
	}
	fx.add(Deliver).describe(c, id, Numbers{first, last}, a)
}

// describe fills in the delivery of messages to c under the ids from id on.
func (e *Effect) describe(c *consumer, id uint64, n Numbers, a attr) {
	e.Consumer, e.Delivery, e.First, e.Last = c.id, id, n.First, n.Last
	e.NoAck, e.attr = c.noAck, a
	e.Redelivered, e.Transient = a.is(flagRedelivered), a.is(flagTransient)
	e.DeliveryCount, e.Acquired = a.deliveryCount(), a.acquired()
}

// free notes that messages first to last are released.
func (fx *Effects) free(first, last Number, reason Reason) {
	if k := len(fx.freed); k > 0 {
		f := &fx.freed[k-1]
		if f.Last+1 == first && f.reason == reason {
			f.Last = last
			return
		}
	}
	fx.freed = append(fx.freed, freed{Numbers{first, last}, reason})
}

// flush lists what the command has released.
func (fx *Effects) flush() {
	for _, f := range fx.freed {
		if k := len(fx.List); k > 0 {
			e := &fx.List[k-1]
			if e.Kind == Released && e.Last+1 == f.First && e.Reason == f.reason {
				e.Last = f.Last
				continue
			}
		}
		e := fx.add(Released)
		e.First, e.Last, e.Reason = f.First, f.Last, f.reason
	}
	fx.freed = fx.freed[:0]
}
