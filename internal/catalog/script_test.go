package catalog

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"holdfast/internal/routing"
	"holdfast/internal/wire"

	"github.com/cockroachdb/datadriven"
)

// TestScripts runs the files in testdata/scripts. Each line of an "apply" block is a command; its result is printed below, one
// line for a command that changes nothing, more for what it removes. "list" prints all there is, "nodes" the nodes and what is on them, "definitions" what is exported; "route" takes lines of
// exchange, key and headers. Words: name, flags, conn=1:7 (incarnation 1, connection 7), x-foo=int8:5 for an argument, ”
// for an empty name.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		m := New()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			switch d.Cmd {
			case "apply":
				for line := range strings.Lines(d.Input) {
					res := m.Apply(1, 1000, parseCommand(t, strings.Fields(line))).(*Result)
					fmt.Fprintf(&out, "%s -> %s\n", strings.TrimSpace(line), describe(res))
					restored := New()
					if err := restored.Restore(m.AppendSnapshot(nil)); err != nil {
						t.Fatal(err)
					}
					if list(restored.View()) != list(m.View()) || listNodes(restored.View()) != listNodes(m.View()) {
						t.Fatalf("%s: the restored state differs", line)
					}
				}
			case "route":
				for line := range strings.Lines(d.Input) {
					w := words{strings.Fields(line)}
					x, key := m.View().Exchange("/", w.name()), w.name()
					if x == nil {
						t.Fatalf("%s: no such exchange", line)
					}
					fmt.Fprintf(&out, "%s -> %s\n", strings.TrimSpace(line), route(m.View(), x, key, w.args()))
				}
			case "effective":
				for line := range strings.Lines(d.Input) {
					q := m.View().Queue("/", strings.TrimSpace(line))
					fmt.Fprintf(&out, "%s: %s\n", q.Name, describeEffective(m.View().Effective(q)))
				}
			case "exchange-policies":
				for line := range strings.Lines(d.Input) {
					p, o := m.View().ExchangePolicies(m.View().Exchange("/", strings.TrimSpace(line)))
					fmt.Fprintf(&out, "%s: %s, %s\n", strings.TrimSpace(line), policyName(p), policyName(o))
				}
			case "definitions":
				b, err := json.MarshalIndent(m.View().Definitions("4.3.0", "1.0"), "", " ")
				if err != nil {
					t.Fatal(err)
				}
				out.Write(append(b, '\n'))
			case "nodes":
				out.WriteString(listNodes(m.View()))
			case "levels":
				out.WriteString(listLevels(m.View()))
			case "list":
				out.WriteString(list(m.View()))
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			return out.String()
		})
	})
}

func policyName(p *Policy) string {
	if p == nil {
		return "none"
	}
	return p.Name
}

// describeEffective names the policies, and the settings that are not zero; limits as numbers.
func describeEffective(e *Effective) string {
	s := policyName(e.Policy) + ", " + policyName(e.Operator) + ":"
	v := reflect.ValueOf(e.Settings)
	for i := range v.NumField() {
		f := v.Field(i)
		if f.IsZero() {
			continue
		}
		value := f.Interface()
		if l, is := value.(Limit); is {
			value, _ = l.Value()
		}
		s += fmt.Sprintf(" %s=%v", v.Type().Field(i).Name, value)
	}
	return s
}

func route(v *View, x *Exchange, key string, headers wire.Table) string {
	var names []string
	var p wire.Properties
	m := &routing.Message{Key: key, Properties: p.WithHeaders(headers)}
	left := 0
	for _, id := range v.Route(x, m, nil) {
		name := v.QueueByID(id).Name
		if left < len(m.Screened) && m.Screened[left].Queue == routing.ToQueue(uint64(id)) { // they are in the same order
			name += " by " + v.ExchangeByID(x.VHost, ExchangeID(m.Screened[left].Exchange.ID())).Name
			left++
		}
		names = append(names, name)
	}
	if left < len(m.Screened) {
		names = append(names, "and others that are screened")
	}
	slices.Sort(names)
	return "[" + strings.Join(names, " ") + "]"
}

// words is the rest of a script line.
type words struct{ list []string }

func (w *words) next() string {
	if len(w.list) == 0 {
		return ""
	}
	s := w.list[0]
	w.list = w.list[1:]
	return s
}

func (w *words) name() string {
	s := strings.ReplaceAll(w.next(), "''", "")
	return strings.NewReplacer(`\n`, "\n", `\r`, "\r").Replace(s)
}

// flag takes a word out of the line.
func (w *words) flag(name string) bool {
	i := slices.Index(w.list, name)
	if i >= 0 {
		w.list = slices.Delete(w.list, i, i+1)
	}
	return i >= 0
}

// value takes name=value out of the line.
func (w *words) value(name, fallback string) string {
	for i, s := range w.list {
		if v, ok := strings.CutPrefix(s, name+"="); ok {
			w.list = slices.Delete(w.list, i, i+1)
			return strings.ReplaceAll(v, "''", "")
		}
	}
	return fallback
}

func (w *words) conn() ConnID {
	s := w.value("conn", "0:0")
	inc, n, _ := strings.Cut(s, ":")
	return MakeConnID(Incarnation(atoi(inc)), uint64(atoi(n)))
}

// node is a node's number, or the name of a folder from before there were any.
func (w *words) node() uint64 {
	s := w.name()
	if n, err := strconv.Atoi(s); err == nil {
		return uint64(n)
	}
	return NodeIDOf(s)
}

// members reads 1,2,13@3: members on nodes 1, 2 and 3, with those ids but for the last.
func members(s string) (list []Member) {
	for _, m := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) {
		id, node, ok := strings.Cut(m, "@")
		if !ok {
			node = id
		}
		list = append(list, Member{uint64(atoi(id)), uint64(atoi(node))})
	}
	return list
}

func describeMembers(list []Member) string {
	var words []string
	for _, m := range list {
		if m.ID == m.Node {
			words = append(words, fmt.Sprint(m.Node))
		} else {
			words = append(words, fmt.Sprintf("%d@%d", m.ID, m.Node))
		}
	}
	return strings.Join(words, ",")
}

func (w *words) args() wire.Table {
	var t wire.Table
	for _, s := range w.list {
		name, v, ok := strings.Cut(s, "=")
		if !ok {
			panic("unknown word " + s)
		}
		t = t.Append(name, scriptValue(v))
	}
	return t
}

func scriptValue(s string) any {
	kind, v, ok := strings.Cut(s, ":")
	if !ok {
		return strings.ReplaceAll(s, "''", "")
	}
	switch kind {
	case "int8":
		return int8(atoi(v))
	case "int16":
		return int16(atoi(v))
	case "int32":
		return int32(atoi(v))
	case "int64":
		return int64(atoi(v))
	case "uint8":
		return uint8(atoi(v))
	case "float":
		f, _ := strconv.ParseFloat(v, 64)
		return f
	case "bool":
		return v == "true"
	case "bytes":
		return []byte(v)
	case "void":
		return nil
	}
	panic("unknown type " + kind)
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func parseCommand(t *testing.T, fields []string) []byte {
	w := &words{fields}
	cmd := w.next()
	vhost := w.value("vhost", "/")
	switch cmd {
	case "set-policy":
		p := Policy{VHost: vhost, Name: w.name(), Pattern: w.name(), ApplyTo: w.value("apply-to", "all"), Priority: int64(atoi(w.value("priority", "0"))), Operator: w.flag("operator")}
		made, err := MakePolicy(p, w.args().Map())
		if err != nil {
			t.Fatal(err)
		}
		return SetPolicy(made)
	case "pause":
		return PauseQueue(vhost, w.name(), !w.flag("off"))
	case "clear-policy":
		return ClearPolicy(vhost, w.name(), w.flag("operator"))
	case "bootstrap":
		return Bootstrap(Defaults{VHost: "/", User: User{Name: "guest", Hash: "h", Algorithm: "a", Tags: []string{"administrator"}}, Configure: ".*", Write: ".*", Read: ".*"})
	case "incarnation":
		return NewIncarnation(w.node())
	case "add-node":
		n := Node{ID: w.node(), Name: w.name(), Addr: w.name()}
		n.Voter = w.flag("voter")
		return AddNode(n)
	case "remove-node":
		return RemoveNode(w.node())
	case "drain":
		return SetDrained(w.node(), !w.flag("off"))
	case "vote":
		return SetVoter(w.node(), !w.flag("off"))
	case "levels":
		return SetLevels(w.node(), Levels{uint16(atoi(w.next())), uint16(atoi(w.next()))})
	case "raise":
		return RaiseLevel(uint16(atoi(w.next())))
	case "gone":
		return NodeGone(w.node(), Incarnation(atoi(w.next())))
	case "add-member":
		return AddMember(QueueID(atoi(w.next())), members(w.next())[0])
	case "remove-member":
		return RemoveMember(QueueID(atoi(w.next())), w.node())
	case "set-members":
		return SetMembers(QueueID(atoi(w.next())), members(w.next()))
	case "queue":
		d := QueueDecl{VHost: vhost, Name: w.name(), Conn: w.conn(), User: w.value("user", "")}
		d.Durable, d.Exclusive, d.AutoDelete, d.ServerNamed = w.flag("durable"), w.flag("exclusive"), w.flag("auto-delete"), w.flag("server-named")
		d.Home = uint64(atoi(w.value("home", "0")))
		d.Level = uint16(atoi(w.value("level", "0")))
		d.Members = members(w.value("members", ""))
		d.Args = w.args()
		return DeclareQueue(d)
	case "delete-queue":
		return DeleteQueue(vhost, w.name(), QueueID(atoi(w.value("id", "0"))), w.conn())
	case "delete-queues":
		var ids []QueueID
		for _, s := range w.list {
			ids = append(ids, QueueID(atoi(s)))
		}
		return DeleteQueues(ids)
	case "close":
		return DeleteConnectionQueues(w.conn())
	case "exchange":
		d := ExchangeDecl{VHost: vhost, Name: w.name(), Type: w.name(), Conn: w.conn(), User: w.value("user", "")}
		d.Durable, d.AutoDelete, d.Internal = w.flag("durable"), w.flag("auto-delete"), w.flag("internal")
		d.Home, d.Members, d.Level = uint64(atoi(w.value("home", "0"))), members(w.value("members", "")), uint16(atoi(w.value("level", "0")))
		d.Args = w.args()
		return DeclareExchange(d)
	case "delete-exchange":
		return DeleteExchange(vhost, w.name(), w.flag("if-unused"))
	case "bind", "unbind":
		b := Binding{VHost: vhost, Source: w.name(), Destination: w.name(), Key: w.name()}
		if w.flag("to-exchange") {
			b.Kind = KindExchange
		}
		conn := w.conn()
		b.Args = w.args()
		if cmd == "unbind" {
			return Unbind(b, conn)
		}
		return Bind(b, conn)
	case "add-vhost":
		return AddVHost(w.name(), "", nil)
	case "delete-vhost":
		return DeleteVHost(w.name())
	case "add-user":
		return AddUser(User{Name: w.name(), Hash: w.name(), Tags: w.list})
	case "put-user":
		return PutUser(User{Name: w.name(), Hash: w.name(), Tags: w.list})
	case "set-password":
		return SetPassword(w.name(), w.name(), "sha256")
	case "set-tags":
		return SetTags(w.name(), w.list)
	case "delete-user":
		return DeleteUser(w.name())
	case "set-permissions":
		return SetPermissions(Permission{User: w.name(), VHost: vhost, Configure: w.name(), Write: w.name(), Read: w.name()})
	case "clear-permissions":
		return ClearPermissions(w.name(), vhost)
	}
	t.Fatalf("unknown command %q", cmd)
	return nil
}

func describe(r *Result) string {
	if r.Err != nil {
		return fmt.Sprintf("%s (%s)", r.Err.Text, r.Err.Scope)
	}
	s := "ok"
	if r.Created {
		s = "created"
	}
	if r.Queue != nil {
		s += fmt.Sprintf(" queue %d", r.Queue.ID)
		if len(r.Queue.Members) > 0 {
			s += " members=" + describeMembers(r.Queue.Members)
		}
	}
	if r.Node != nil {
		s += fmt.Sprintf(" node %d %s", r.Node.ID, r.Node.Name)
	}
	if r.Exchange != nil {
		s += fmt.Sprintf(" exchange %d", r.Exchange.ID)
	}
	for _, q := range r.Stores {
		s += fmt.Sprintf(" store %d", q.ID)
	}
	if r.Incarnation != 0 {
		s += fmt.Sprintf(" incarnation %d", r.Incarnation)
	}
	for _, q := range r.Removed.Queues {
		s += "\n  - queue " + q.Name
	}
	for _, m := range r.Removed.Members {
		s += fmt.Sprintf("\n  - member %s of queue %s, left are %s", describeMembers([]Member{m.Member}), m.Queue.Name, describeMembers(m.Queue.Members))
	}
	for _, x := range r.Removed.Exchanges {
		s += "\n  - exchange " + x.Name
	}
	for _, b := range r.Removed.Bindings {
		s += "\n  - " + describeBinding(b)
	}
	return s
}

func describeBinding(b *Binding) string {
	s := fmt.Sprintf("%q -> %s %q key %q", b.Source, b.Kind, b.Destination, b.Key)
	return s + describeArgs(b.Args)
}

func describeArgs(args wire.Table) (s string) {
	for k, v := range args.All() {
		s += fmt.Sprintf(" %s=%v(%s)", k, v.Any(), v.TypeName())
	}
	return s
}

// list prints everything a view knows, the predeclared exchanges aside.
func list(v *View) string {
	var b strings.Builder
	for vh := range v.VHosts().All() {
		fmt.Fprintf(&b, "vhost %q\n", vh.Name)
		for x := range v.Exchanges(vh.Name).All() {
			if x.Name != "" && !strings.HasPrefix(x.Name, "amq.") {
				fmt.Fprintf(&b, "  exchange %q %s%s%s\n", x.Name, x.Type, flags("durable", x.Durable, "auto-delete", x.AutoDelete, "internal", x.Internal), describeArgs(x.Args))
				if q := v.QueueByID(x.Store); q != nil {
					fmt.Fprintf(&b, "    store %d %s%s home=%d members=%s incarnation=%d, of its own: %v\n", q.ID, q.Type, flags("durable", q.Durable), q.Home, describeMembers(q.Members),
						q.Incarnation, q.Of == x.ID && v.Queue(q.VHost, q.Name) == nil)
				}
			}
		}
		for q := range v.Queues(vh.Name).All() {
			fmt.Fprintf(&b, "  queue %d %q%s%s", q.ID, q.Name, flags("durable", q.Durable, "auto-delete", q.AutoDelete, "exclusive", q.Exclusive, "paused", q.Paused), describeArgs(q.Args))
			if q.Owner != 0 {
				fmt.Fprintf(&b, " owner=%d:%d", q.Owner.Incarnation(), q.Owner&(1<<connBits-1))
			}
			if q.Incarnation != 0 {
				fmt.Fprintf(&b, " incarnation=%d", q.Incarnation)
			}
			if len(q.Members) > 0 {
				fmt.Fprintf(&b, " members=%s", describeMembers(q.Members))
			}
			b.WriteByte('\n')
		}
		for bd := range v.Bindings(vh.Name).All() {
			fmt.Fprintf(&b, "  binding %s\n", describeBinding(bd))
		}
		for _, p := range append(v.Policies(vh.Name), v.OperatorPolicies(vh.Name)...) {
			fmt.Fprintf(&b, "  policy %q%s %q for %s priority %d%s\n", p.Name, flags("operator", p.Operator), p.Pattern, p.ApplyTo, p.Priority, describeArgs(p.Definition))
		}
	}
	for u := range v.Users().All() {
		fmt.Fprintf(&b, "user %s %v %v\n", u.Name, u.Hash, u.Tags)
	}
	for p := range v.Permissions().All() {
		fmt.Fprintf(&b, "permission %s on %q: %q %q %q\n", p.User, p.VHost, p.Configure, p.Write, p.Read)
	}
	return b.String()
}

// listNodes prints the nodes and what is on them.
func listNodes(v *View) string {
	var b strings.Builder
	on := func(id uint64) {
		c := v.Counts(id)
		fmt.Fprintf(&b, ": homes %d members %d leaders %d on it:", c.Homes, c.Members, c.Leaders)
		for q := range v.QueuesOn(id).All() {
			fmt.Fprintf(&b, " %s", q.Name)
		}
		b.WriteByte('\n')
	}
	if v.QueuesOn(0).Len() > 0 {
		b.WriteString("no node")
		on(0)
	}
	for n := range v.Nodes().All() {
		fmt.Fprintf(&b, "node %d %q %q incarnation %d joined %d%s", n.ID, n.Name, n.Addr, n.Incarnation, n.Joined, flags("voter", n.Voter, "drained", n.Drained))
		on(n.ID)
	}
	return b.String()
}

// listLevels prints what the nodes know and write.
func listLevels(v *View) string {
	s := fmt.Sprintf("level %d", v.Level())
	if next := v.NextLevel(); next != 0 {
		s += fmt.Sprintf(", all know %d", next)
	}
	for n := range v.Nodes().All() {
		s += fmt.Sprintf("\nnode %d knows %v", n.ID, n.Levels())
	}
	return s + "\n"
}

func flags(list ...any) (s string) {
	for i := 0; i < len(list); i += 2 {
		if list[i+1].(bool) {
			s += " " + list[i].(string)
		}
	}
	return s
}
