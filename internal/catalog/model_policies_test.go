package catalog

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// The model's policies: a list, and loops over all of it.

// patterns are what the model's policies are drawn from, each with what it means.
var patterns = map[string]func(name string) bool{
	".*":  func(string) bool { return true },
	"q":   func(name string) bool { return strings.Contains(name, "q") },
	"1$":  func(name string) bool { return strings.HasSuffix(name, "1") },
	"^x":  func(name string) bool { return strings.HasPrefix(name, "x") },
	"^$":  func(name string) bool { return name == "" },
	"2|3": func(name string) bool { return strings.ContainsAny(name, "23") },
}

func (m *model) drawPolicy(t *rapid.T, vhost string) (cmd []byte, code uint16) {
	pick := func(label string, list ...string) string { return rapid.SampledFrom(list).Draw(t, label) }
	name, operator := pick("policy", "p1", "p2", "p3", "p4"), rapid.IntRange(0, 2).Draw(t, "operator's") == 0
	is := func(p *Policy) bool { return p.VHost == vhost && p.Name == name && p.Operator == operator }
	refused := uint16(0)
	switch {
	case m.level < 2:
		refused = 406
	case !slices.Contains(m.vhosts, vhost):
		refused = 404
	}
	if rapid.IntRange(0, 3).Draw(t, "clear") == 0 {
		cmd = ClearPolicy(vhost, name, operator)
		switch {
		case refused != 0:
			return cmd, refused
		case !slices.ContainsFunc(m.policies, is):
			return cmd, 404
		}
		m.policies = slices.DeleteFunc(m.policies, is)
		return cmd, 0
	}
	given := map[string]any{"max-length": int64(rapid.IntRange(0, 3).Draw(t, "max-length"))}
	switch pick("further", "", "", "alternate", "alternate", "size") {
	case "alternate":
		if !operator {
			given["alternate-exchange"] = pick("alternate", "x1", "x2", "x3", "x4", "amq.topic", "")
		}
	case "size":
		given["target-group-size"] = int64(3)
	}
	p, err := MakePolicy(Policy{
		VHost: vhost, Name: name, Operator: operator, Priority: int64(rapid.IntRange(-1, 1).Draw(t, "priority")),
		Pattern: pick("pattern", ".*", "q", "1$", "^x", "^$", "2|3"),
		ApplyTo: pick("apply to", "all", "all", "queues", "classic_queues", "quorum_queues", "exchanges", "streams"),
	}, given)
	if err != nil {
		t.Fatal(err)
	}
	cmd = SetPolicy(p)
	if refused == 0 {
		m.policies = append(slices.DeleteFunc(m.policies, is), p)
	}
	return cmd, refused
}

// pause pauses a queue, or has it go on.
func (m *model) pause(vhost, name string, on bool) (cmd []byte, code uint16) {
	cmd = PauseQueue(vhost, name, on)
	if m.level < 2 {
		return cmd, 406
	}
	q := m.queue(vhost, name)
	if q == nil {
		return cmd, 404
	}
	q.Paused = on
	return cmd, 0
}

// holding returns the policy that holds, nil for none: of those that may hold, the one that no other comes before.
func (m *model) holding(vhost, name string, operator bool, may func(*Policy) bool) (best *Policy) {
	for _, p := range m.policies {
		if p.VHost != vhost || p.Operator != operator || !patterns[p.Pattern](name) || !may(p) {
			continue
		}
		if best == nil || p.Priority > best.Priority || p.Priority == best.Priority && p.Name < best.Name {
			best = p
		}
	}
	return best
}

func (m *model) holdingQueue(q *Queue, operator bool) *Policy {
	return m.holding(q.VHost, q.Name, operator, func(p *Policy) bool {
		_, grows := p.Definition.Get("target-group-size")
		switch p.ApplyTo {
		case "all", "queues":
			return q.Type == Quorum || !grows
		case "classic_queues":
			return q.Type == Classic && !grows
		}
		return p.ApplyTo == string(q.Type)+"_queues"
	})
}

func (m *model) holdingExchange(x *Exchange, operator bool) *Policy {
	return m.holding(x.VHost, x.Name, operator, func(p *Policy) bool { return p.ApplyTo == "all" || p.ApplyTo == "exchanges" })
}

func (m *model) alternate(x *Exchange) string {
	if x.Alternate != "" {
		return x.Alternate
	}
	if p := m.holdingExchange(x, false); p != nil {
		v, _ := p.Definition.Get("alternate-exchange")
		s, _ := v.Str()
		return s
	}
	return ""
}

func summarizePolicy(p *Policy) string {
	return fmt.Sprintf("policy %s %s %v %s %s %d%s", p.VHost, p.Name, p.Operator, p.Pattern, p.ApplyTo, p.Priority, describeArgs(p.Definition))
}

// summarizeHolding says what holds for a queue or an exchange.
func summarizeHolding(what, vhost, name string, policy, operator *Policy, maxLength string) string {
	return fmt.Sprintf("on %s %s %q %s %s%s", what, vhost, name, policyName(policy), policyName(operator), maxLength)
}

func (m *model) summarizePolicies() (lines []string) {
	for _, p := range m.policies {
		lines = append(lines, summarizePolicy(p))
	}
	for _, q := range m.queues {
		policy, operator := m.holdingQueue(q, false), m.holdingQueue(q, true)
		least := int64(-1)
		for _, p := range []*Policy{policy, operator} {
			if p == nil {
				continue
			}
			v, _ := p.Definition.Get("max-length")
			if n, _ := v.Int(); least < 0 || n < least {
				least = n
			}
		}
		lines = append(lines, summarizeHolding("queue", q.VHost, q.Name, policy, operator, fmt.Sprint(" ", least)))
	}
	for _, x := range m.exchanges {
		lines = append(lines, summarizeHolding("exchange", x.VHost, x.Name, m.holdingExchange(x, false), m.holdingExchange(x, true), ""))
	}
	return lines
}

func summarizePolicies(v *View) (lines []string) {
	for vh := range v.VHosts().All() {
		for _, p := range append(v.Policies(vh.Name), v.OperatorPolicies(vh.Name)...) {
			lines = append(lines, summarizePolicy(p))
		}
		for q := range v.Queues(vh.Name).All() {
			e := v.Effective(q)
			least := int64(-1)
			if n, is := e.MaxLength.Value(); is {
				least = int64(n)
			}
			lines = append(lines, summarizeHolding("queue", q.VHost, q.Name, e.Policy, e.Operator, fmt.Sprint(" ", least)))
		}
		for x := range v.Exchanges(vh.Name).All() {
			policy, operator := v.ExchangePolicies(x)
			lines = append(lines, summarizeHolding("exchange", x.VHost, x.Name, policy, operator, ""))
		}
	}
	return lines
}
