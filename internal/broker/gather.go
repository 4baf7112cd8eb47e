package broker

import (
	"sort"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/queuehost"
	"holdfast/internal/seglog"
	"holdfast/internal/wire"
)

// ListUsers lists the users by name.
func (b *Broker) ListUsers() []User {
	list := []User{}
	for u := range b.view().Users().All() {
		list = append(list, User{Name: u.Name, Tags: append([]string{}, u.Tags...)})
	}
	return list
}

// ListPermissions lists permissions by user and vhost, of one user or vhost if given.
func (b *Broker) ListPermissions(vhost, user string) []Permission {
	list := []Permission{}
	for p := range b.view().Permissions().All() {
		if (vhost == "" || p.VHost == vhost) && (user == "" || p.User == user) {
			list = append(list, Permission{User: p.User, VHost: p.VHost, Configure: p.Configure, Write: p.Write, Read: p.Read})
		}
	}
	return list
}

// ListVHosts lists the virtual hosts by name.
func (b *Broker) ListVHosts() []VHost {
	list := []VHost{}
	for vh := range b.view().VHosts().All() {
		list = append(list, VHost{Name: vh.Name, Description: vh.Description, Tags: append([]string{}, vh.Tags...)})
	}
	return list
}

// ListQueues lists the queues of a vhost by name, and says how many there are in all.
func (b *Broker) ListQueues(vhost string, p QueuePage) (list []QueueInfo, total int, err error) {
	v := b.view()
	if v.VHost(vhost) == nil {
		return nil, 0, noVHost(vhost)
	}
	all := v.Queues(vhost)
	var queues []*catalog.Queue
	var handles []*queuehost.Handle
	for q := range all.From(p.Skip) {
		if p.Limit > 0 && len(queues) == p.Limit {
			break
		}
		queues, handles = append(queues, q), append(handles, b.listed(q))
	}
	return b.rows(v, queues, handles, !p.Known), all.Len(), nil
}

// ListAllQueues lists the queues of all vhosts, by vhost and name.
func (b *Broker) ListAllQueues() []QueueInfo {
	v := b.view()
	var queues []*catalog.Queue
	var handles []*queuehost.Handle
	for vh := range v.VHosts().All() {
		for q := range v.Queues(vh.Name).All() {
			queues, handles = append(queues, q), append(handles, b.listed(q))
		}
	}
	return b.rows(v, queues, handles, true)
}

// rows describes queues. What other nodes serve is as these say, if they are to be asked, or as they last said: then it is marked.
func (b *Broker) rows(v *catalog.View, queues []*catalog.Queue, handles []*queuehost.Handle, ask bool) []QueueInfo {
	var fresh map[int]bool
	if ask {
		fresh = gather(b, queues, handles, b.servedElsewhere, func(h *queuehost.Handle, done func(bool)) {
			h.Explain(func(x queuehost.Explanation) { done(x.BlockedBy != unreached) })
		})
	}
	var active map[int]string
	if ask {
		active = b.singleActive(v, queues, handles)
	}
	list := []QueueInfo{}
	for i, q := range queues {
		info := b.queueInfo(v, q, handles[i])
		info.SingleActive = active[i]
		if h := handles[i]; h == nil || b.servedElsewhere(q, h) {
			info.Stale = !fresh[i]
		}
		list = append(list, info)
	}
	return list
}

// singleActive asks the queues that have a single active consumer which one it is, and gives the tags by the queues' places.
func (b *Broker) singleActive(v *catalog.View, queues []*catalog.Queue, handles []*queuehost.Handle) map[int]string {
	fit := func(q *catalog.Queue, h *queuehost.Handle) bool {
		return h != nil && v.Effective(q).SingleActive && h.Unavailable() == nil && (b.servedHere(h) || b.servedElsewhere(q, h) || b.ledElsewhere(q, h))
	}
	return gather(b, queues, handles, fit, func(h *queuehost.Handle, done func(string)) {
		h.Consumers(func(list []queuehost.ConsumerInfo) {
			tag := ""
			for i := range list {
				if list[i].Is == queuehost.SingleActive {
					tag = list[i].Spec.Tag
				}
			}
			done(tag)
		})
	})
}

// unreached is what a queue is blocked by, as it says of itself, when those who serve it have not answered.
const unreached = "unavailable"

// CountQueues counts the queues of all vhosts, and lists those that are quarantined. Nobody is asked, so that it is answered at
// once whatever other nodes do.
func (b *Broker) CountQueues() (total int, quarantined []QueueInfo) {
	v := b.view()
	for q := range v.AllQueues().All() {
		if q.Of == 0 {
			total++
		}
		if h := b.queues.Get(seglog.GroupID(q.ID)); h != nil && h.Unavailable() != nil {
			if info := b.queueInfo(v, q, h); info.State == "quarantined" {
				quarantined = append(quarantined, info)
			}
		}
	}
	return total, quarantined
}

// askWait is how long a listing waits for queues that are served by other nodes.
const askWait = time.Second

// listed is the handle of a queue that a listing shows. One that lives on other nodes is made reachable, if nothing here has
// used it yet: nobody else does that. nil: it lives nobody knows where, or does not run (yet, or any more).
func (b *Broker) listed(q *catalog.Queue) *queuehost.Handle {
	if b.isHere(q) || q.Type != catalog.Quorum && q.Home == 0 {
		return b.queues.Get(seglog.GroupID(q.ID))
	}
	return b.handle(q)
}

// servedElsewhere reports whether another node has to be asked about a queue, and can be. A member of a quorum queue that is
// here knows by itself; without one, the handle finds the leader.
func (b *Broker) servedElsewhere(q *catalog.Queue, h *queuehost.Handle) bool {
	switch {
	case h == nil || h.Group() != nil || h.Unavailable() != nil:
		return false
	case h.Quorum():
		return b.canBeLed(q) && (h.Home() != 0 || !b.isHere(q))
	}
	return h.Home() != 0 && b.isUp(h.Home())
}

// servedHere reports whether this node serves a queue, or leads it.
func (b *Broker) servedHere(h *queuehost.Handle) bool {
	if h.Quorum() {
		return h.Leader() == b.node
	}
	return h.Home() == 0
}

// ledElsewhere is servedElsewhere for what only the leader of a quorum queue knows.
func (b *Broker) ledElsewhere(q *catalog.Queue, h *queuehost.Handle) bool {
	if h == nil || !h.Quorum() || b.servedHere(h) {
		return b.servedElsewhere(q, h)
	}
	return b.canBeLed(q) && (h.Group() == nil || h.Stats().Consumers > 0)
}

// gather asks those of the queues that are fit to be asked, all at once, and waits for them a moment. The answers that came
// are by the queues' places in the slices. about must answer once, if at all, and must not wait.
func gather[T any](b *Broker, queues []*catalog.Queue, handles []*queuehost.Handle,
	fit func(*catalog.Queue, *queuehost.Handle) bool, about func(h *queuehost.Handle, done func(T))) map[int]T {
	type row struct {
		at    int
		value T
	}
	came := make(chan row, len(handles)) // nobody waits to answer, however late
	asked := 0
	for i, h := range handles {
		if fit(queues[i], h) {
			asked++
			about(h, func(value T) { came <- row{i, value} })
		}
	}
	answers := map[int]T{}
	if asked == 0 {
		return answers
	}
	late, done := clock.After(b.clock, askWait)
	defer done()
	for range asked {
		select {
		case r := <-came:
			answers[r.at] = r.value
		case <-late:
			return answers
		}
	}
	return answers
}

// QueueInfo describes one queue.
func (b *Broker) QueueInfo(vhost, name string) (QueueInfo, error) {
	q, h, err := b.adminQueue(vhost, name)
	if err != nil {
		return QueueInfo{}, err
	}
	return b.rows(b.view(), []*catalog.Queue{q}, []*queuehost.Handle{h}, true)[0], nil
}

// queueInfo describes a queue without disturbing its worker.
func (b *Broker) queueInfo(v *catalog.View, q *catalog.Queue, h *queuehost.Handle) QueueInfo {
	info := QueueInfo{
		Name: q.Name, VHost: q.VHost, Type: string(q.Type), ID: uint64(q.ID),
		Durable: q.Durable, AutoDelete: q.AutoDelete, Exclusive: q.Exclusive,
		Arguments: table(q.Args), State: "running", Paused: q.Paused,
	}
	e := v.Effective(q)
	info.Policy, info.OperatorPolicy, info.EffectiveDefinition = policyName(e.Policy), policyName(e.Operator), e.Definition()
	if q.Owner != 0 {
		info.Owner = b.connectionName(q.Owner)
	}
	b.whereabouts(&info, v, q, h)
	if h == nil {
		return info // declared or deleted this very moment: empty
	}
	nacks := h.Nacks()
	info.Counters.Refused, info.Counters.Unknown = nacks.Refused, nacks.Unknown
	if err := h.Unavailable(); err != nil {
		switch info.Reason = err.Error(); {
		case info.State != "running":
		case h.Home() != 0: // its node is not known to be down yet
			info.State = "down"
		default:
			info.State = "quarantined"
			return info
		}
	}
	s := h.Stats()
	info.Stale = h.Unavailable() != nil || info.State != "running" || h.Quorum() && info.Leader == ""
	info.MessagesReady, info.MessagesUnacknowledged, info.MessagesDelayed = s.Ready, s.Unacked, s.Delayed
	info.Messages, info.Consumers = s.Ready+s.Unacked+s.Delayed, s.Consumers
	info.Dead = s.Dead
	if e.MaxBytes > 0 {
		info.DeadBytes = &s.DeadBytes
	}
	info.Counters = QueueCounters{
		Published: s.Published, Delivered: s.Delivered, Acked: s.Acked, Redelivered: s.Redelivered,
		Gets: s.Gets, GetsEmpty: s.GetsEmpty,
		Refused: nacks.Refused, Unknown: nacks.Unknown, DeadLetters: b.letters.of(h.ID()),
		DeadLetterRates: b.letters.rates(h.ID()),
	}
	return info
}

// ListExchanges lists the exchanges of a vhost by name, the default exchange first.
func (b *Broker) ListExchanges(vhost string) ([]ExchangeInfo, error) {
	v := b.view()
	if v.VHost(vhost) == nil {
		return nil, noVHost(vhost)
	}
	delayed := b.delayed(v, vhost)
	list := []ExchangeInfo{}
	for x := range v.Exchanges(vhost).All() {
		policy, _ := v.ExchangePolicies(x)
		list = append(list, ExchangeInfo{
			Name: x.Name, VHost: x.VHost, Type: string(x.Type), Durable: x.Durable,
			AutoDelete: x.AutoDelete, Internal: x.Internal, Arguments: table(x.Args), Policy: policyName(policy),
			MessagesDelayed: delayed[x.Store],
		})
	}
	return list, nil
}

// delayed asks the stores of a vhost's exchanges how many messages they keep.
func (b *Broker) delayed(v *catalog.View, vhost string) map[catalog.QueueID]*uint64 {
	var queues []*catalog.Queue
	var handles []*queuehost.Handle
	for x := range v.Exchanges(vhost).All() {
		if q := v.QueueByID(x.Store); q != nil {
			queues, handles = append(queues, q), append(handles, b.listed(q))
		}
	}
	gather(b, queues, handles, b.servedElsewhere, func(h *queuehost.Handle, done func(bool)) {
		h.Explain(func(queuehost.Explanation) { done(true) })
	})
	n := map[catalog.QueueID]*uint64{}
	for i, q := range queues {
		n[q.ID] = new(uint64)
		if handles[i] != nil {
			*n[q.ID] = handles[i].Stats().Delayed
		}
	}
	return n
}

// ListBindings lists the bindings of a vhost, those of the default exchange first.
func (b *Broker) ListBindings(vhost string) ([]BindingInfo, error) {
	v := b.view()
	if v.VHost(vhost) == nil {
		return nil, noVHost(vhost)
	}
	list := []BindingInfo{}
	for q := range v.Queues(vhost).All() {
		list = append(list, bindingInfo(q.DefaultBinding()))
	}
	for bd := range v.Bindings(vhost).All() {
		list = append(list, bindingInfo(bd))
	}
	return list, nil
}

func bindingInfo(b *catalog.Binding) BindingInfo {
	return BindingInfo{
		VHost: b.VHost, Source: b.Source, Destination: b.Destination,
		DestinationKind: b.Kind.String(), RoutingKey: b.Key, Arguments: table(b.Args),
	}
}

// bindingsTo counts the bindings that lead to a queue, that of the default exchange apart.
func (b *Broker) bindingsTo(vhost, queue string) int {
	return b.view().BindingsTo(vhost, catalog.KindQueue, queue).Len()
}

// open returns the open connections in the order in which they were opened.
func (b *Broker) open() []*Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]*Conn, 0, len(b.conns))
	for _, c := range b.conns {
		list = append(list, c)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].id < list[j].id })
	return list
}

// ListConnections lists the open connections by age.
func (b *Broker) ListConnections() []ConnectionInfo {
	list := []ConnectionInfo{}
	for _, c := range b.open() {
		info := c.control.Info()
		info.ID, info.Name, info.User, info.VHost = c.ID(), c.name, c.user.Name, c.vhost
		list = append(list, info)
	}
	return list
}

// ListChannels lists the open channels, by the age of their connections and their numbers.
func (b *Broker) ListChannels() []ChannelInfo {
	list := []ChannelInfo{}
	for _, c := range b.open() {
		channels := c.control.Channels()
		sort.Slice(channels, func(i, j int) bool { return channels[i].Number < channels[j].Number })
		for _, info := range channels {
			info.Connection, info.User, info.VHost = c.name, c.user.Name, c.vhost
			list = append(list, info)
		}
	}
	return list
}

// ListConsumers lists the consumers of a vhost by queue.
func (b *Broker) ListConsumers(vhost string) ([]ConsumerInfo, error) {
	v := b.view()
	if v.VHost(vhost) == nil {
		return nil, noVHost(vhost)
	}
	var queues []*catalog.Queue
	var handles []*queuehost.Handle
	for q := range v.Queues(vhost).All() {
		queues, handles = append(queues, q), append(handles, b.listed(q))
	}
	elsewhere := gather(b, queues, handles, b.ledElsewhere, func(h *queuehost.Handle, done func([]queuehost.ConsumerInfo)) { h.Consumers(done) })
	list := []ConsumerInfo{}
	for i, q := range queues {
		h := handles[i]
		of, err := elsewhere[i], error(nil)
		if h != nil && b.servedHere(h) && h.Unavailable() == nil && h.Stats().Consumers > 0 {
			of, err = await(b, func(done func([]queuehost.ConsumerInfo, error)) {
				h.Consumers(func(l []queuehost.ConsumerInfo) { done(l, nil) })
			})
		}
		if err != nil {
			return nil, &AdminError{Unavailable, "queue '" + q.Name + "' gives no answer"}
		}
		for _, c := range of {
			if c.Spec.Tag == "" {
				continue // a channel's getter
			}
			list = append(list, ConsumerInfo{
				VHost: vhost, Queue: q.Name, Connection: b.connectionName(catalog.ConnID(c.Spec.Connection)), Channel: int(c.Spec.Channel),
				Tag: c.Spec.Tag, AckRequired: !c.Spec.NoAck, Exclusive: c.Spec.Exclusive,
				Prefetch: c.Spec.Prefetch, Unacked: c.Unacked, Active: c.Is.Active(), Activity: c.Is.String(), Arguments: table(c.Spec.Arguments),
			})
		}
	}
	return list, nil
}

// ListOrphans lists the groups of the log that the catalog does not know.
func (b *Broker) ListOrphans() []OrphanInfo {
	list := []OrphanInfo{}
	for _, o := range b.queues.Orphans() {
		list = append(list, OrphanInfo{Group: uint64(o.ID), Reason: o.Reason})
	}
	return list
}

// connectionName is the name of an open connection, or "" if it has gone.
func (b *Broker) connectionName(id catalog.ConnID) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.conns[id]; c != nil {
		return c.name
	}
	return ""
}

// table is a table as JSON can write it.
func table(t wire.Table) map[string]any {
	m := t.Map()
	if m == nil {
		return map[string]any{}
	}
	return m
}
