package mgmt

import (
	"context"
	"fmt"
	"slices"
	"time"

	"holdfast/internal/broker"
)

// fakeBroker is a small broker in memory: enough of one that what ctl did can be seen in what ctl then lists.
type fakeBroker struct {
	redrive     broker.Redrive // that was asked for last
	redriving   chan struct{}
	users       []broker.User
	passwords   map[string]string
	vhosts      []broker.VHost
	permissions map[[2]string]broker.Permission // vhost, user
	policies    map[bool][]broker.Policy        // by whether they are operators'
	queues      map[[2]string]*broker.QueueInfo
	messages    map[[2]string][]broker.AdminMessage
	connections []broker.ConnectionInfo
	orphans     []broker.OrphanInfo
	alarms      []broker.Alarm
	elsewhere   []broker.NodeAlarms
	sick        error
	said        string        // the reason given when connections were closed
	known       bool          // queues were listed without asking other nodes
	within      time.Duration // what the last explanation was given
}

func newFakeBroker() *fakeBroker {
	b := &fakeBroker{
		users:     []broker.User{{Name: "guest", Tags: []string{"administrator"}}},
		passwords: map[string]string{"guest": "guest"},
		vhosts:    []broker.VHost{{Name: "/"}},
		permissions: map[[2]string]broker.Permission{
			{"/", "guest"}: {User: "guest", VHost: "/", Configure: ".*", Write: ".*", Read: ".*"},
		},
		policies: map[bool][]broker.Policy{},
		queues:   map[[2]string]*broker.QueueInfo{},
		messages: map[[2]string][]broker.AdminMessage{},
		connections: []broker.ConnectionInfo{
			{Name: "127.0.0.1:1 -> 127.0.0.1:5672", User: "guest", VHost: "/", PeerHost: "127.0.0.1", PeerPort: 1, State: "running"},
		},
	}
	return b
}

func fail(kind broker.AdminErrorKind, format string, args ...any) error {
	return &broker.AdminError{Kind: kind, Text: fmt.Sprintf(format, args...)}
}

func (b *fakeBroker) vhost(name string) error {
	for _, v := range b.vhosts {
		if v.Name == name {
			return nil
		}
	}
	return fail(broker.NotFound, "Virtual host '%s' does not exist", name)
}

func (b *fakeBroker) ListQueues(vhost string, p broker.QueuePage) ([]broker.QueueInfo, int, error) {
	list := []broker.QueueInfo{}
	for key, q := range b.queues {
		if key[0] == vhost {
			list = append(list, *q)
		}
	}
	total := len(list)
	list = list[min(p.Skip, total):]
	if p.Limit > 0 && len(list) > p.Limit {
		list = list[:p.Limit]
	}
	b.known = p.Known
	return list, total, b.vhost(vhost)
}

func (b *fakeBroker) ListAllQueues() (all []broker.QueueInfo) {
	for _, v := range b.vhosts {
		list, _, _ := b.ListQueues(v.Name, broker.QueuePage{})
		all = append(all, list...)
	}
	return all
}

func (b *fakeBroker) CountQueues() (total int, quarantined []broker.QueueInfo) {
	for _, q := range b.queues {
		total++
		if q.State == "quarantined" {
			quarantined = append(quarantined, *q)
		}
	}
	return total, quarantined
}

func (b *fakeBroker) QueueInfo(vhost, name string) (broker.QueueInfo, error) {
	if q := b.queues[[2]string{vhost, name}]; q != nil {
		return *q, nil
	}
	return broker.QueueInfo{}, fail(broker.NotFound, "no queue '%s' in vhost '%s'", name, vhost)
}

func (b *fakeBroker) ListExchanges(vhost string) ([]broker.ExchangeInfo, error) {
	return []broker.ExchangeInfo{{Name: "", VHost: vhost, Type: "direct"}}, b.vhost(vhost)
}

func (b *fakeBroker) ListBindings(vhost string) ([]broker.BindingInfo, error) {
	return []broker.BindingInfo{{VHost: vhost, Destination: "q", DestinationKind: "queue", RoutingKey: "q"}}, b.vhost(vhost)
}

func (b *fakeBroker) ListConnections() []broker.ConnectionInfo { return b.connections }

func (b *fakeBroker) ListChannels() []broker.ChannelInfo {
	return []broker.ChannelInfo{{Connection: "c", Number: 1, User: "guest"}}
}

func (b *fakeBroker) ListConsumers(vhost string) ([]broker.ConsumerInfo, error) {
	return []broker.ConsumerInfo{{VHost: vhost, Queue: "q", Connection: "c", Channel: 1, Tag: "t", Active: true}}, b.vhost(vhost)
}

func (b *fakeBroker) ListUsers() []broker.User { return b.users }

func (b *fakeBroker) ListPermissions(vhost, user string) []broker.Permission {
	list := []broker.Permission{}
	for _, p := range b.permissions {
		if (vhost == "" || p.VHost == vhost) && (user == "" || p.User == user) {
			list = append(list, p)
		}
	}
	return list
}

func (b *fakeBroker) ListVHosts() []broker.VHost           { return b.vhosts }
func (b *fakeBroker) ListOrphans() []broker.OrphanInfo     { return b.orphans }
func (b *fakeBroker) Alarms() []broker.Alarm               { return b.alarms }
func (b *fakeBroker) AlarmsElsewhere() []broker.NodeAlarms { return b.elsewhere }
func (b *fakeBroker) Health() error                        { return b.sick }
func (b *fakeBroker) SetUserTags(n string, t []string) error {
	return b.change(n, func(u *broker.User) { u.Tags = t })
}

func (b *fakeBroker) change(name string, how func(*broker.User)) error {
	for i := range b.users {
		if b.users[i].Name == name {
			how(&b.users[i])
			return nil
		}
	}
	return fail(broker.NotFound, "no user '%s'", name)
}

func (b *fakeBroker) AddUser(name, password string) error {
	b.users = append(b.users, broker.User{Name: name, Tags: []string{}})
	b.passwords[name] = password
	return nil
}

func (b *fakeBroker) ChangePassword(name, password string) error {
	return b.change(name, func(*broker.User) { b.passwords[name] = password })
}

func (b *fakeBroker) DeleteUser(name string) error {
	for i, u := range b.users {
		if u.Name == name {
			b.users = append(b.users[:i], b.users[i+1:]...)
			return nil
		}
	}
	return fail(broker.NotFound, "no user '%s'", name)
}

func (b *fakeBroker) AuthenticateUser(name, password string) error {
	if b.passwords[name] != password {
		return fail(broker.Rejected, "wrong")
	}
	return nil
}

func (b *fakeBroker) SetPermissions(vhost, user, configure, write, read string) error {
	b.permissions[[2]string{vhost, user}] = broker.Permission{User: user, VHost: vhost, Configure: configure, Write: write, Read: read}
	return nil
}

func (b *fakeBroker) ClearPermissions(vhost, user string) error {
	delete(b.permissions, [2]string{vhost, user})
	return nil
}

func (b *fakeBroker) ListPolicies(vhost string, operator bool) ([]broker.Policy, error) {
	list := []broker.Policy{}
	for _, p := range b.policies[operator] {
		if p.VHost == vhost {
			list = append(list, p)
		}
	}
	return list, b.vhost(vhost)
}

func (b *fakeBroker) SetPolicy(a broker.AdminPolicy) error {
	definition, is := a.Definition.(map[string]any)
	if !is {
		return fail(broker.Invalid, "Validation failed\n\nit is no dictionary\n")
	}
	if err := b.vhost(a.VHost); err != nil {
		return err
	}
	b.policies[a.Operator] = append(b.policies[a.Operator], broker.Policy{
		VHost: a.VHost, Name: a.Name, Pattern: a.Pattern, ApplyTo: a.ApplyTo, Definition: definition, Priority: a.Priority,
	})
	return nil
}

func (b *fakeBroker) ClearPolicy(vhost, name string, operator bool) error {
	for i, p := range b.policies[operator] {
		if p.VHost == vhost && p.Name == name {
			b.policies[operator] = slices.Delete(b.policies[operator], i, i+1)
			return nil
		}
	}
	return fail(broker.NotFound, "Parameter does not exist")
}

func (b *fakeBroker) AddVHost(name, description string, tags []string) error {
	b.vhosts = append(b.vhosts, broker.VHost{Name: name, Description: description, Tags: tags})
	return nil
}

func (b *fakeBroker) DeleteVHost(name string) error {
	for i, v := range b.vhosts {
		if v.Name == name {
			b.vhosts = append(b.vhosts[:i], b.vhosts[i+1:]...)
			return nil
		}
	}
	return b.vhost(name)
}

func (b *fakeBroker) AdminDeclareQueue(q broker.AdminQueue) error {
	key := [2]string{q.VHost, q.Name}
	if b.queues[key] == nil {
		b.queues[key] = &broker.QueueInfo{Name: q.Name, VHost: q.VHost, Durable: q.Durable, State: "running", ID: uint64(100 + len(b.queues)), Arguments: q.Arguments.Map()}
	}
	return b.vhost(q.VHost)
}

func (b *fakeBroker) AdminDeleteQueue(vhost, name string, ifUnused, ifEmpty bool) (uint64, error) {
	q, err := b.QueueInfo(vhost, name)
	if err != nil {
		return 0, err
	}
	if ifEmpty && q.Messages > 0 {
		return 0, fail(broker.Rejected, "queue '%s' is not empty", name)
	}
	delete(b.queues, [2]string{vhost, name})
	return q.Messages, nil
}

func (b *fakeBroker) AdminPurgeQueue(vhost, name string) (uint64, error) {
	q := b.queues[[2]string{vhost, name}]
	if q == nil {
		return 0, fail(broker.NotFound, "no queue '%s'", name)
	}
	n := q.Messages
	q.Messages = 0
	return n, nil
}

func (b *fakeBroker) AdminPublish(p broker.AdminPublish) (int, error) {
	if p.Exchange != "" {
		return 0, fail(broker.NotFound, "no exchange '%s'", p.Exchange)
	}
	key := [2]string{p.VHost, p.RoutingKey}
	q := b.queues[key]
	if q == nil {
		return 0, nil
	}
	q.Messages++
	b.messages[key] = append(b.messages[key], broker.AdminMessage{RoutingKey: p.RoutingKey, Properties: p.Properties, Body: p.Body})
	return 1, nil
}

func (b *fakeBroker) AdminGet(vhost, queue string, n int, requeue bool) ([]broker.AdminMessage, error) {
	key := [2]string{vhost, queue}
	if b.queues[key] == nil {
		return nil, fail(broker.NotFound, "no queue '%s'", queue)
	}
	got := b.messages[key][:min(n, len(b.messages[key]))]
	if !requeue {
		b.messages[key] = b.messages[key][len(got):]
	}
	return got, nil
}

func (b *fakeBroker) AdminForceDeleteQueue(vhost, name string) error {
	_, err := b.AdminDeleteQueue(vhost, name, false, false)
	return err
}

func (b *fakeBroker) DiscardGroup(group uint64) error {
	for i, o := range b.orphans {
		if o.Group == group {
			b.orphans = append(b.orphans[:i], b.orphans[i+1:]...)
			return nil
		}
	}
	for key, q := range b.queues {
		if q.ID == group {
			delete(b.queues, key)
			return nil
		}
	}
	return fail(broker.NotFound, "no group %d", group)
}

func (b *fakeBroker) Explain(ctx context.Context, vhost, queue string) (broker.Explanation, error) {
	if end, bounded := ctx.Deadline(); bounded {
		b.within = time.Until(end)
	}
	q, err := b.QueueInfo(vhost, queue)
	return broker.Explanation{Queue: q, Reason: "no consumer", Lines: []string{"There is no consumer."}}, err
}

func (b *fakeBroker) CloseConnection(name, reason string) error {
	for _, c := range b.connections {
		if c.Name == name {
			b.said = reason
			return nil
		}
	}
	return fail(broker.NotFound, "no connection '%s'", name)
}

func (b *fakeBroker) CloseAllConnections(vhost, user, reason string) int {
	n := 0
	for _, c := range b.connections {
		if (vhost == "" || c.VHost == vhost) && (user == "" || c.User == user) {
			n++
			b.said = reason
		}
	}
	return n
}

func diskAlarm() broker.Alarm {
	return broker.Alarm{Kind: broker.AlarmDisk, Reason: "1 GiB is free", Since: time.Unix(0, 0).UTC()}
}

func (b *fakeBroker) AdminPauseQueue(vhost, name string, on bool) error {
	q := b.queues[[2]string{vhost, name}]
	if q == nil {
		return fail(broker.NotFound, "no queue '%s'", name)
	}
	q.Paused = on
	return nil
}

// Redrive says something of each kind; of "long" it goes on until it is told to end.
func (b *fakeBroker) Redrive(ctx context.Context, o broker.Redrive, progress func(broker.Redriven)) (broker.Redriven, error) {
	b.redrive = o
	said := broker.Redriven{Sent: 1, Passed: 2, Left: map[string]uint64{"no_queue": 3}}
	if o.Queue == "nowhere" {
		return broker.Redriven{}, fail(broker.NotFound, "no queue '%s'", o.Queue)
	}
	progress(said)
	said.Sent, said.To = 4, map[string]uint64{"q": 3}
	switch o.Queue {
	case "ends":
		return said, fail(broker.Unavailable, "the queue is gone")
	case "long":
		b.redriving <- struct{}{}
		<-ctx.Done()
		b.redriving <- struct{}{}
	}
	return said, nil
}
