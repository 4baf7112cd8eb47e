package broker

import (
	"cmp"
	"errors"
	"slices"

	"holdfast/internal/catalog"
	"holdfast/internal/planted"
)

// AdminPolicy is a policy that is to be set.
type AdminPolicy struct {
	VHost, Name string
	Operator    bool // an operator policy
	Pattern     string
	ApplyTo     string // "all", "queues", "exchanges", ...; "" is "all"
	Priority    int64
	// Definition is what it says as encoding/json decodes it, numbers as json.Number.
	Definition any
}

// Policy is a row of the list of policies.
type Policy struct {
	VHost      string         `json:"vhost"`
	Name       string         `json:"name"`
	Pattern    string         `json:"pattern"`
	ApplyTo    string         `json:"apply-to"`
	Definition map[string]any `json:"definition"`
	Priority   int64          `json:"priority"`
}

// SetPolicy sets a policy, or replaces the one of its name. It holds for what is there at once.
func (b *Broker) SetPolicy(a AdminPolicy) error {
	if err := b.takesPolicies(); err != nil {
		return err
	}
	if err := checkText("the name of a policy", a.Name); err != nil {
		return err
	}
	if b.view().VHost(a.VHost) == nil {
		return noVHost(a.VHost)
	}
	p, err := catalog.MakePolicy(catalog.Policy{
		VHost: a.VHost, Name: a.Name, Operator: a.Operator,
		Pattern: a.Pattern, ApplyTo: cmp.Or(a.ApplyTo, catalog.ApplyToAll), Priority: a.Priority,
	}, a.Definition)
	var wrong *catalog.PolicyError
	if errors.As(err, &wrong) {
		return &AdminError{Invalid, wrong.Error()}
	}
	if b.view().HasPolicy(p) && b.settled() {
		return nil // there is nothing to be put in order
	}
	_, err = b.command(catalog.SetPolicy(p))
	if err == nil {
		b.log.Info("policy set", "policy", p.Name, "operator", p.Operator, "vhost", p.VHost, "pattern", p.Pattern, "apply_to", p.ApplyTo)
	}
	return err
}

// ClearPolicy removes a policy.
func (b *Broker) ClearPolicy(vhost, name string, operator bool) error {
	if err := b.takesPolicies(); err != nil {
		return err
	}
	if b.view().VHost(vhost) == nil {
		return &AdminError{NotFound, "Parameter does not exist"} // as RabbitMQ, which looks for no vhost
	}
	_, err := b.command(catalog.ClearPolicy(vhost, name, operator))
	if err == nil {
		b.log.Info("policy cleared", "policy", name, "operator", operator, "vhost", vhost)
	}
	return err
}

// takesPolicies says why no policy can be set or cleared, nil: it can. Nothing of it may be proposed before every node knows it.
func (b *Broker) takesPolicies() error {
	if b.view().Level() < catalog.PolicyLevel {
		return &AdminError{Unavailable, catalog.NoPolicies}
	}
	return nil
}

// ListPolicies lists the policies of a vhost, or its operator policies, the highest priority last.
func (b *Broker) ListPolicies(vhost string, operator bool) ([]Policy, error) {
	v := b.view()
	if v.VHost(vhost) == nil {
		return nil, noVHost(vhost)
	}
	policies := v.Policies(vhost)
	if operator {
		policies = v.OperatorPolicies(vhost)
	}
	slices.SortStableFunc(policies, func(p, q *catalog.Policy) int { return cmp.Compare(p.Priority, q.Priority) })
	list := []Policy{}
	for _, p := range policies {
		list = append(list, Policy{p.VHost, p.Name, p.Pattern, p.ApplyTo, p.Definition.Map(), p.Priority})
	}
	return list, nil
}

// PoliciesChanged says, on the catalog's worker, that other policies hold in a virtual host. There may be very many queues, so
// they are gone through elsewhere.
func (b *Broker) PoliciesChanged(c *catalog.PolicyChange) {
	if planted.Is(planted.PolicyUnheard) {
		return
	}
	b.later(func() {
		for q := range c.Queues(b.view()) {
			if b.isHere(q) {
				b.settingsChanged(q)
			}
		}
	})
}

// policyName is the name of a policy as listings show it, "" for none.
func policyName(p *catalog.Policy) string {
	if p == nil {
		return ""
	}
	return p.Name
}
