package broker

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"

	"holdfast/internal/catalog"
	"holdfast/internal/message"
	"holdfast/internal/queuehost"
	"holdfast/internal/routing"
	"holdfast/internal/wire"
)

// How much of the latest messages is kept at most, in bytes: for one exchange, and for all on this node. What is kept for one
// fits into one answer to another node.
const (
	historyMost   = 2 << 20
	historiesMost = 64 << 20
)

// keptCost is what a kept message takes beside its own bytes.
const keptCost = 128

// noStore is the header, true, of a message that is not to be kept.
const noStore = "x-recent-history-no-store"

// histories are the latest messages of the exchanges of type x-recent-history, for the queues that are bound to them
// later. Each node has in memory what was published on it; with the node's end it is gone. The node where something is
// bound asks the others for theirs, puts them in order by the time they were published at, and hands on the latest. The
// oldest go first when there is more than the exchange is to keep, or too many bytes.
type histories struct {
	mu    sync.Mutex
	of    map[catalog.ExchangeID]*history
	bytes int
}

// history is one exchange's.
type history struct {
	vhost string
	kept  []kept // the oldest first
	bytes int
	// latecomers were bound when publishes were on their way that did not know of them.
	latecomers []latecomer
}

type kept struct {
	message    message.Message
	at         int64  // wall time when it was published, ns since 1970
	generation uint64 // of the vhost when it was routed
	bytes      int
}

// KeptMessage is a message of a history, on its way to the node that asked for it.
type KeptMessage struct {
	At     int64    `json:"at,string"` // ns since 1970
	Head   []byte   `json:"head"`
	Chunks [][]byte `json:"chunks,omitempty"`
}

// Joining is a binding that is to get a history: there since a generation of its vhost.
type Joining struct {
	VHost       string `json:"vhost"`
	Source      string `json:"source"`
	ToExchange  bool   `json:"to_exchange,omitempty"`
	Destination string `json:"destination"`
	Generation  uint64 `json:"generation,string"`
}

// latecomer is a binding from some generation on: what was routed before is still to come by it.
type latecomer struct {
	generation uint64
	deliver    func([]message.Message)
}

// mostLatecomers is how many are remembered. A publish is on its way for as long as it takes to read it from the socket's
// buffer.
const mostLatecomers = 16

// keepers are the exchanges that keep a message on its way.
type keepers struct{ exchanges []catalog.ExchangeID }

func newKeepers(targets []routing.Target) *keepers {
	k := new(keepers)
	for _, t := range targets {
		k.exchanges = append(k.exchanges, catalog.ExchangeID(t.ID()))
	}
	return k
}

// keep has exchanges keep a message that was routed in a generation of its vhost.
func (hs *histories) keep(b *Broker, vhost string, k *keepers, generation uint64, m message.Message) {
	if v, err := message.Parse(m.Head); err == nil {
		no, _ := v.Properties.Headers().Get(noStore)
		if no, _ := no.Bool(); no {
			return
		}
	}
	m.Head = slices.Clone(m.Head) // it may be a small part of a large block
	for _, id := range k.exchanges {
		for _, late := range hs.add(b, vhost, id, generation, m) {
			late.deliver([]message.Message{m})
		}
	}
}

// add adds a message to an exchange's history and returns to whom it is to go as well.
func (hs *histories) add(b *Broker, vhost string, id catalog.ExchangeID, generation uint64, m message.Message) (late []latecomer) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	x, h := hs.history(b, vhost, id)
	if h == nil {
		return nil
	}
	for _, l := range h.latecomers {
		if generation < l.generation {
			late = append(late, l)
		}
	}
	n := m.Size() + keptCost
	if n > historyMost {
		return late
	}
	for len(h.kept) > 0 && (len(h.kept) >= x.HistoryLength() || h.bytes+n > historyMost || hs.bytes+n > historiesMost) {
		hs.dropOldest(h)
	}
	if hs.bytes+n <= historiesMost {
		h.kept = append(h.kept, kept{m, b.clock.Now().UnixNano(), generation, n})
		h.bytes += n
		hs.bytes += n
	}
	return late
}

// history returns an exchange and its history, nil if the exchange is gone. mu is held: who deletes an exchange drops its
// history behind, so that it is not made anew.
func (hs *histories) history(b *Broker, vhost string, id catalog.ExchangeID) (*catalog.Exchange, *history) {
	x := b.view().ExchangeByID(vhost, id)
	if x == nil {
		return nil, nil
	}
	h := hs.of[id]
	if h == nil {
		h = &history{vhost: vhost}
		hs.of[id] = h
	}
	return x, h
}

func (hs *histories) dropOldest(h *history) {
	hs.bytes -= h.kept[0].bytes
	h.bytes -= h.kept[0].bytes
	h.kept = slices.Delete(h.kept, 0, 1)
}

// join returns, the oldest first, what was routed before the generation in which a binding came, and has deliver called
// with what is still on its way.
func (hs *histories) join(b *Broker, x *catalog.Exchange, generation uint64, deliver func([]message.Message)) (list []KeptMessage) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	_, h := hs.history(b, x.VHost, x.ID)
	if h == nil {
		return nil
	}
	for _, k := range h.kept {
		if k.generation < generation {
			list = append(list, KeptMessage{k.at, k.message.Head, k.message.Chunks})
		}
	}
	if len(h.latecomers) == mostLatecomers {
		h.latecomers = slices.Delete(h.latecomers, 0, 1)
	}
	h.latecomers = append(h.latecomers, latecomer{generation, deliver})
	return list
}

// forget drops the histories of exchanges that are gone. The catalog's view has them no more.
func (hs *histories) forget(gone []*catalog.Exchange) {
	if len(gone) == 0 {
		return
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, x := range gone {
		hs.drop(x.ID)
	}
}

// forgetUnknown drops the histories of exchanges that v does not have.
func (hs *histories) forgetUnknown(v *catalog.View) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for id, h := range hs.of {
		if v.ExchangeByID(h.vhost, id) == nil {
			hs.drop(id)
		}
	}
}

func (hs *histories) drop(id catalog.ExchangeID) {
	if h := hs.of[id]; h != nil {
		hs.bytes -= h.bytes
		delete(hs.of, id)
	}
}

// replay hands the history of a new binding's source to its destination, if the source keeps one: what was routed before
// the binding was there. What was routed since then is no matter of the history.
func (b *Broker) replay(j Joining) {
	x := b.view().Exchange(j.VHost, j.Source)
	if x == nil || x.Type != catalog.RecentHistory {
		return
	}
	list, deliver := b.history(j)
	if deliver == nil {
		return
	}
	if b.elsewhere != nil {
		list = latest(append(list, b.elsewhere(j)...), x.HistoryLength())
	}
	messages := make([]message.Message, 0, len(list))
	for _, k := range list {
		messages = append(messages, message.Message{Head: k.Head, Chunks: k.Chunks})
	}
	if len(messages) > 0 {
		deliver(messages)
	}
}

// latest returns the latest n messages, the oldest first, or fewer if they are too many bytes.
func latest(list []KeptMessage, n int) []KeptMessage {
	slices.SortStableFunc(list, func(a, b KeptMessage) int { return cmp.Compare(a.At, b.At) })
	list = list[max(len(list)-n, 0):]
	bytes := 0
	for i, k := range slices.Backward(list) {
		if bytes += (message.Message{Head: k.Head, Chunks: k.Chunks}).Size(); bytes > historyMost {
			return list[i+1:]
		}
	}
	return list
}

// History returns what this node has for a binding, the oldest first, and hands it what is still on its way here. The
// view has to have the binding.
func (b *Broker) History(j Joining) []KeptMessage {
	list, _ := b.history(j)
	return list
}

// history is History, together with the way to the binding's destination; nil: there is none.
func (b *Broker) history(j Joining) (list []KeptMessage, deliver func([]message.Message)) {
	v := b.view()
	x := v.Exchange(j.VHost, j.Source)
	if x == nil {
		return nil, nil
	}
	if j.ToExchange {
		deliver = func(list []message.Message) {
			for _, m := range list {
				b.routeOn(j.VHost, j.Destination, m)
			}
		}
	} else {
		q := v.Queue(j.VHost, j.Destination)
		if q == nil {
			return nil, nil
		}
		h := b.handle(q)
		if h == nil {
			return nil, nil
		}
		deliver = func(list []message.Message) { putAll(h, list) }
	}
	return b.histories.join(b, x, j.Generation, deliver), deliver
}

func putAll(h *queuehost.Handle, list []message.Message) {
	publishes := make([]queuehost.Publish, len(list))
	for i, m := range list {
		publishes[i] = queuehost.Publish{Message: m, Persistent: m.Persistent(), Carried: true}
	}
	h.Publish(publishes)
}

// routeOn routes a kept message through the exchange that is a binding's destination, as it was published.
func (b *Broker) routeOn(vhost, exchange string, m message.Message) {
	v := b.view()
	x := v.Exchange(vhost, exchange)
	head, err := message.Parse(m.Head)
	if x == nil || err != nil {
		return
	}
	for _, way := range b.routeWhole(v, x, string(head.RoutingKey), head.Properties, m) {
		putAll(way.queue, []message.Message{m})
	}
}

// way is a queue that a message is for, and by way of which exchange that lets nothing through twice it is reached; nil: of none.
type way struct {
	queue  *queuehost.Handle
	screen *queuehost.Screen
}

// routeWhole returns the queues that a message of nobody's channel is for. Exchanges that keep it do so.
func (b *Broker) routeWhole(v *catalog.View, x *catalog.Exchange, key string, properties wire.Properties, m message.Message) (ways []way) {
	about := &routing.Message{
		Key: key, Properties: properties, Draw: rand.Uint64,
		Here: func(t routing.Target) bool { return b.takes(v, catalog.QueueID(t.ID())) },
	}
	for _, id := range v.Route(x, about, nil) {
		if h := b.handleByID(v, id); h != nil {
			ways = append(ways, way{h, b.screenIn(about.Screened, id, v, x.VHost)})
		}
	}
	if len(about.Kept) > 0 {
		b.histories.keep(b, x.VHost, newKeepers(about.Kept), v.VHost(x.VHost).Generation(), m)
	}
	return ways
}
