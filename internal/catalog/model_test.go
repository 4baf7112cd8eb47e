package catalog

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/amqperr"
	"holdfast/internal/routing"
	"holdfast/internal/wire"

	"pgregory.net/rapid"
)

// The cases of rapid are the same in every run; -rapid.seed=N makes others.
func init() { flag.Set("rapid.seed", "1") }

// model is the catalog written down as simply as possible: lists, and loops over all of them. Users and permissions are
// left to the scripts.
type model struct {
	vhosts    []string
	queues    []*Queue
	exchanges []*Exchange
	bindings  []*Binding
	nodes     []*Node
	started   Incarnation
	level     uint16
	policies  []*Policy
}

func newModel() *model {
	m := &model{level: 1}
	m.addVHost("/")
	return m
}

func (m *model) addVHost(name string) (code uint16) {
	if slices.Contains(m.vhosts, name) {
		return 0
	}
	m.vhosts = append(m.vhosts, name)
	for _, x := range predeclared {
		x.VHost, x.Durable = name, true
		m.exchanges = append(m.exchanges, &x)
	}
	return 0
}

func (m *model) deleteVHost(name string) uint16 {
	if !slices.Contains(m.vhosts, name) {
		return 404
	}
	m.vhosts = slices.DeleteFunc(m.vhosts, func(v string) bool { return v == name })
	m.queues = slices.DeleteFunc(m.queues, func(q *Queue) bool { return q.VHost == name })
	m.exchanges = slices.DeleteFunc(m.exchanges, func(x *Exchange) bool { return x.VHost == name })
	m.bindings = slices.DeleteFunc(m.bindings, func(b *Binding) bool { return b.VHost == name })
	m.policies = slices.DeleteFunc(m.policies, func(p *Policy) bool { return p.VHost == name })
	return 0
}

func (m *model) queue(vhost, name string) *Queue {
	for _, q := range m.queues {
		if q.VHost == vhost && q.Name == name {
			return q
		}
	}
	return nil
}

func (m *model) exchange(vhost, name string) *Exchange {
	for _, x := range m.exchanges {
		if x.VHost == vhost && x.Name == name {
			return x
		}
	}
	return nil
}

func (m *model) stale(c ConnID) bool {
	return c.Incarnation() != 0 && m.nodeOf(c.Incarnation()) == nil
}

func (m *model) declareQueue(d QueueDecl) uint16 {
	if strings.HasPrefix(d.Name, "amq.") {
		return 403
	}
	if !slices.Contains(m.vhosts, d.VHost) {
		return 530
	}
	durable := d.Durable && !d.Exclusive
	if q := m.queue(d.VHost, d.Name); q != nil {
		switch {
		case q.Exclusive != d.Exclusive || q.Exclusive && q.Owner != d.Conn:
			return 405
		case q.Durable != durable || q.AutoDelete != d.AutoDelete || q.Type != TypeOf(d.Args):
			return 406
		}
		return 0
	}
	if TypeOf(d.Args) == Quorum && (!d.Durable || d.AutoDelete || d.Exclusive || len(d.Members) == 0) {
		return 406
	}
	if m.stale(d.Conn) {
		return 404
	}
	q := &Queue{VHost: d.VHost, Name: d.Name, Type: TypeOf(d.Args), Durable: durable, AutoDelete: d.AutoDelete, Exclusive: d.Exclusive}
	if d.Exclusive {
		q.Owner = d.Conn
	}
	if code := m.place(q, d); code != 0 {
		return code
	}
	m.queues = append(m.queues, q)
	return 0
}

func (m *model) declareExchange(d ExchangeDecl) uint16 {
	if !slices.Contains(m.vhosts, d.VHost) {
		return 530
	}
	if x := m.exchange(d.VHost, d.Name); x != nil {
		if string(x.Type) != d.Type || x.Durable != d.Durable || x.AutoDelete != d.AutoDelete || x.Alternate != alternateOf(d.Args) {
			return 406
		}
		return 0
	}
	if m.stale(d.Conn) {
		return 404
	}
	x := &Exchange{VHost: d.VHost, Name: d.Name, Type: ExchangeType(d.Type), Durable: d.Durable, AutoDelete: d.AutoDelete, Alternate: alternateOf(d.Args)}
	if !d.Durable {
		x.Incarnation, x.Born = d.Conn.Incarnation(), m.started
	}
	m.exchanges = append(m.exchanges, x)
	return 0
}

func alternateOf(args wire.Table) string {
	v, _ := args.Get("alternate-exchange")
	s, _ := v.Str()
	return s
}

func (m *model) isSource(vhost, name string) bool {
	return slices.ContainsFunc(m.bindings, func(b *Binding) bool { return b.VHost == vhost && b.Source == name })
}

func (m *model) deleteExchange(vhost, name string, ifUnused bool) uint16 {
	x := m.exchange(vhost, name)
	switch {
	case name == "" || strings.HasPrefix(name, "amq."):
		return 403
	case x == nil:
		return 0
	case ifUnused && m.isSource(vhost, name):
		return 406
	}
	m.dropExchange(x)
	return 0
}

func (m *model) dropExchange(x *Exchange) {
	m.exchanges = slices.DeleteFunc(m.exchanges, func(y *Exchange) bool { return y == x })
	m.dropBindings(func(b *Binding) bool {
		return b.VHost == x.VHost && (b.Source == x.Name || b.Kind == KindExchange && b.Destination == x.Name)
	})
}

func (m *model) dropQueues(which func(*Queue) bool) {
	for _, q := range slices.Clone(m.queues) {
		if which(q) {
			m.queues = slices.DeleteFunc(m.queues, func(r *Queue) bool { return r == q })
			m.dropBindings(func(b *Binding) bool {
				return b.VHost == q.VHost && b.Kind == KindQueue && b.Destination == q.Name
			})
		}
	}
}

// dropBindings removes bindings, then auto-delete exchanges that had one of them and have none left.
func (m *model) dropBindings(which func(*Binding) bool) {
	var gone []*Binding
	m.bindings = slices.DeleteFunc(m.bindings, func(b *Binding) bool {
		if which(b) {
			gone = append(gone, b)
		}
		return which(b)
	})
	for _, b := range gone {
		if x := m.exchange(b.VHost, b.Source); x != nil && x.AutoDelete && !m.isSource(b.VHost, b.Source) {
			m.dropExchange(x)
		}
	}
}

func (m *model) bind(b Binding, conn ConnID, add bool) uint16 {
	same := func(c *Binding) bool {
		return b.VHost == c.VHost && b.Source == c.Source && b.Kind == c.Kind && b.Destination == c.Destination && b.Key == c.Key && string(b.Args) == string(c.Args)
	}
	exists := slices.ContainsFunc(m.bindings, same)
	switch {
	case b.Source == "" || b.Kind == KindExchange && b.Destination == "":
		return 403
	case !add && !exists:
		return 0
	case !slices.Contains(m.vhosts, b.VHost):
		return 530
	case m.exchange(b.VHost, b.Source) == nil,
		b.Kind == KindExchange && m.exchange(b.VHost, b.Destination) == nil,
		b.Kind == KindQueue && m.queue(b.VHost, b.Destination) == nil:
		return 404
	}
	if q := m.queue(b.VHost, b.Destination); b.Kind == KindQueue && q.Exclusive && q.Owner != conn {
		return 405
	}
	if !add {
		m.dropBindings(same)
	} else if !exists {
		m.bindings = append(m.bindings, &b)
	}
	return 0
}

// route follows every way there is, with a set of exchanges visited.
func (m *model) route(x *Exchange, key string, seen map[*Exchange]bool, queues map[string]bool) {
	if x == nil || seen[x] {
		return
	}
	seen[x] = true
	matched := false
	for _, b := range m.bindings {
		if b.VHost != x.VHost || b.Source != x.Name {
			continue
		}
		if x.Type == Direct && b.Key != key || x.Type == Topic && !topicMatches(split(b.Key), split(key)) {
			continue
		}
		matched = true
		if b.Kind == KindQueue {
			queues[b.Destination] = true
		} else {
			m.route(m.exchange(b.VHost, b.Destination), key, seen, queues)
		}
	}
	if alternate := m.alternate(x); !matched && alternate != "" {
		m.route(m.exchange(x.VHost, alternate), key, seen, queues)
	}
}

func split(key string) []string {
	if key == "" {
		return nil
	}
	return strings.Split(key, ".")
}

func topicMatches(pattern, key []string) bool {
	switch {
	case len(pattern) == 0:
		return len(key) == 0
	case pattern[0] == "#":
		return topicMatches(pattern[1:], key) || len(key) > 0 && topicMatches(pattern, key[1:])
	}
	return len(key) > 0 && (pattern[0] == "*" || pattern[0] == key[0]) && topicMatches(pattern[1:], key[1:])
}

// summary lists the model as summarize lists a view.
func (m *model) summary() string {
	var lines []string
	for _, v := range m.vhosts {
		lines = append(lines, "vhost "+v)
	}
	lines = append(lines, m.summarizeNodes()...)
	lines = append(lines, m.summarizePolicies()...)
	for _, x := range m.exchanges {
		lines = append(lines, summarizeExchange(x))
	}
	for _, q := range m.queues {
		lines = append(lines, summarizeQueue(q))
	}
	for _, b := range m.bindings {
		lines = append(lines, b.VHost+" "+describeBinding(b))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func summarize(v *View) string {
	lines := append(summarizeNodes(v), summarizePolicies(v)...)
	for vh := range v.VHosts().All() {
		lines = append(lines, "vhost "+vh.Name)
		for x := range v.Exchanges(vh.Name).All() {
			lines = append(lines, summarizeExchange(x))
		}
		for q := range v.Queues(vh.Name).All() {
			lines = append(lines, summarizeQueue(q))
		}
		for b := range v.Bindings(vh.Name).All() {
			lines = append(lines, b.VHost+" "+describeBinding(b))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func summarizeExchange(x *Exchange) string {
	return fmt.Sprintf("exchange %s %q %s %v %v alternate %q incarnation %d of %d", x.VHost, x.Name, x.Type, x.Durable, x.AutoDelete, x.Alternate, x.Incarnation, x.Born)
}

func summarizeQueue(q *Queue) string {
	return fmt.Sprintf("queue %s %q %v %v %v owner %d incarnation %d home %d members %v paused %v", q.VHost, q.Name, q.Durable, q.AutoDelete, q.Exclusive, q.Owner, q.Incarnation, q.Home, q.Members, q.Paused)
}

// TestModel applies random commands to the machine and to the model and compares results, listings and routing; the
// machine is replaced by its restored self now and then, and every view but the newest must still say what it said.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, naive := New(), newModel()
		m.Apply(1, 1, Bootstrap(Defaults{VHost: "/"}))
		if rapid.Bool().Draw(t, "at level 2") {
			m.Apply(1, 1, RaiseLevel(2))
			naive.level = 2
		}
		pick := func(label string, list ...string) string { return rapid.SampledFrom(list).Draw(t, label) }
		vhost := func() string { return pick("vhost", "/", "/", "/", "v") }
		conn := func() ConnID {
			inc := rapid.IntRange(0, int(naive.started)).Draw(t, "incarnation")
			return MakeConnID(Incarnation(inc), uint64(rapid.IntRange(1, 2).Draw(t, "connection")))
		}
		flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
		queueNames, exchangeNames := []string{"q1", "q2", "q3", "amq.q"}, []string{"x1", "x2", "x3", "x4", "amq.topic", ""}
		keys := []string{"", "a", "a.b", "#", "*", "a.#", "#.b"}
		type kept struct {
			v       *View
			summary string
		}
		var views []kept
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			var cmd []byte
			var want uint16
			switch op := pick("op", "queue", "queue", "exchange", "exchange", "bind", "bind", "bind", "bind", "unbind", "delete queue", "delete exchange", "close", "incarnation", "add vhost", "delete vhost", "delete queues", "node", "members", "members", "policy", "policy", "pause"); op {
			case "queue":
				d := QueueDecl{VHost: vhost(), Name: pick("name", queueNames...), Durable: flag("durable"), AutoDelete: flag("auto-delete"), Exclusive: flag("exclusive"), Conn: conn()}
				drawPlace(t, &d)
				cmd, want = DeclareQueue(d), naive.declareQueue(d)
			case "exchange":
				d := ExchangeDecl{VHost: vhost(), Name: pick("name", exchangeNames[:4]...), Type: pick("type", "direct", "fanout", "topic"), Durable: flag("durable"), AutoDelete: flag("auto-delete"), Conn: conn()}
				if flag("alternate") {
					d.Args = wire.NewTable(map[string]any{"alternate-exchange": pick("alternate", exchangeNames[:5]...)})
				}
				cmd, want = DeclareExchange(d), naive.declareExchange(d)
			case "bind", "unbind":
				b := Binding{VHost: vhost(), Source: pick("source", exchangeNames...), Key: pick("key", keys...)}
				if flag("to exchange") {
					b.Kind, b.Destination = KindExchange, pick("destination", exchangeNames...)
				} else {
					b.Destination = pick("destination", queueNames...)
				}
				if flag("arguments") {
					b.Args = wire.NewTable(map[string]any{"a": 1})
				}
				c := conn()
				cmd, want = Bind(b, c), 0
				if op == "unbind" {
					cmd = Unbind(b, c)
				}
				want = naive.bind(b, c, op == "bind")
			case "delete queue":
				v, name, c := vhost(), pick("name", queueNames...), conn()
				cmd = DeleteQueue(v, name, 0, c)
				if q := naive.queue(v, name); q != nil && q.Exclusive && q.Owner != c {
					want = 405
				} else if q != nil {
					naive.dropQueues(func(r *Queue) bool { return r == q })
				}
			case "delete queues":
				var ids []QueueID
				for q := range m.View().AllQueues().All() {
					if flag("this one") {
						ids = append(ids, q.ID)
						naive.dropQueues(func(r *Queue) bool { return r.VHost == q.VHost && r.Name == q.Name })
					}
				}
				cmd = DeleteQueues(ids)
			case "delete exchange":
				v, name, unused := vhost(), pick("name", exchangeNames...), flag("if-unused")
				cmd, want = DeleteExchange(v, name, unused), naive.deleteExchange(v, name, unused)
			case "close":
				c := conn()
				cmd = DeleteConnectionQueues(c)
				naive.dropQueues(func(q *Queue) bool { return q.Owner == c })
			case "incarnation":
				cmd, want = naive.start(drawNode(t))
			case "node":
				cmd, want = naive.drawNodes(t)
			case "members":
				cmd, want = naive.drawMembers(t, m.View())
			case "pause":
				cmd, want = naive.pause(vhost(), pick("name", queueNames...), flag("on"))
			case "policy":
				cmd, want = naive.drawPolicy(t, vhost())
			case "add vhost":
				cmd, want = AddVHost("v", "", nil), naive.addVHost("v")
			case "delete vhost":
				cmd, want = DeleteVHost("v"), naive.deleteVHost("v")
			}
			before := m.View()
			summary := summarize(before)
			res := m.Apply(uint64(step), 1, cmd).(*Result)
			if got := codeOf(res.Err); got != want {
				t.Fatalf("step %d: code %d (%v), want %d", step, got, res.Err, want)
			}
			now := summarize(m.View())
			if want := naive.summary(); now != want {
				t.Fatalf("step %d: the machine has\n%s\nthe model has\n%s", step, now, want)
			}
			if (now != summary) != (m.View().Generation() != before.Generation()) && len(res.Removed.Queues) == 0 && res.Incarnation == 0 && res.Node == nil {
				t.Fatalf("step %d: changed: %v, generation %d to %d", step, now != summary, before.Generation(), m.View().Generation())
			}
			views = append(views, kept{before, summary})
			checkRemoved(t, before, m.View(), res)
			checkRoutes(t, m.View(), naive, keys)
			if rapid.IntRange(0, 9).Draw(t, "restore") == 0 {
				restored := New()
				if err := restored.Restore(m.AppendSnapshot(nil)); err != nil {
					t.Fatal(err)
				}
				if string(restored.AppendSnapshot(nil)) != string(m.AppendSnapshot(nil)) {
					t.Fatal("the restored machine has another snapshot")
				}
				m = restored
			}
		}
		for _, k := range views {
			if summarize(k.v) != k.summary {
				t.Fatal("an old view has changed")
			}
		}
	})
}

func codeOf(err *amqperr.Error) uint16 {
	if err == nil {
		return 0
	}
	return err.Code
}

// checkRemoved compares what a result says went away with what did.
func checkRemoved(t *rapid.T, before, after *View, res *Result) {
	gone := 0
	for q := range before.AllQueues().All() {
		if after.QueueByID(q.ID) == nil {
			gone++
			if !slices.Contains(res.Removed.Queues, q) {
				t.Fatalf("queue %s went away unmentioned", q.Name)
			}
		}
	}
	for q := range before.AllQueues().All() {
		now := after.QueueByID(q.ID)
		for _, m := range q.Members {
			moved := res.Incarnation != 0 && after.Node(m.Node) == nil // with the folder, to its new identity
			lost := now != nil && !moved && !slices.Contains(now.Members, m)
			if lost != slices.Contains(res.Removed.Members, LostMember{now, m}) {
				t.Fatalf("queue %s, member %v: lost %v, mentioned %v", q.Name, m, lost, res.Removed.Members)
			}
		}
	}
	if gone != len(res.Removed.Queues) {
		t.Fatalf("%d queues went away, %d are mentioned", gone, len(res.Removed.Queues))
	}
	count := func(v *View) (exchanges, bindings int) {
		for vh := range v.VHosts().All() {
			exchanges += v.Exchanges(vh.Name).Len()
			bindings += v.Bindings(vh.Name).Len()
		}
		return exchanges, bindings
	}
	x1, b1 := count(before)
	x2, b2 := count(after)
	if res.Removed.Exchanges != nil && x1-x2 != len(res.Removed.Exchanges) || res.Removed.Bindings != nil && b1-b2 != len(res.Removed.Bindings) {
		t.Fatalf("exchanges %d to %d, bindings %d to %d, but %d and %d are mentioned", x1, x2, b1, b2, len(res.Removed.Exchanges), len(res.Removed.Bindings))
	}
}

func checkRoutes(t *rapid.T, v *View, naive *model, keys []string) {
	for _, x := range naive.exchanges {
		for _, key := range keys {
			queues := map[string]bool{}
			if x.Name == "" {
				if naive.queue(x.VHost, key) != nil {
					queues[key] = true
				}
			} else {
				naive.route(x, key, map[*Exchange]bool{}, queues)
			}
			got := v.Route(v.Exchange(x.VHost, x.Name), &routing.Message{Key: key}, nil)
			if len(got) != len(queues) {
				t.Fatalf("exchange %q key %q: %v, want %v", x.Name, key, got, queues)
			}
			for _, id := range got {
				if q := v.QueueByID(id); q == nil || !queues[q.Name] || q.VHost != x.VHost {
					t.Fatalf("exchange %q key %q: queue %d", x.Name, key, id)
				}
			}
		}
	}
}
