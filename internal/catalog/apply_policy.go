package catalog

import "holdfast/internal/amqperr"

func (t *txn) setPolicy(p *Policy) *amqperr.Error {
	vh, err := t.withPolicies(p.VHost)
	switch {
	case err != nil:
		return err
	case p.Name == "":
		return noName("policy")
	}
	old := vh.policies.get(p.Name, p.Operator)
	if old != nil && old.same(p) {
		return nil
	}
	t.res.Created = old == nil
	t.putPolicies(vh, vh.policies.with(p))
	return nil
}

func (t *txn) clearPolicy(vhost, name string, operator bool) *amqperr.Error {
	vh, err := t.withPolicies(vhost)
	if err != nil {
		return err
	}
	if vh.policies.get(name, operator) == nil {
		return noPolicy()
	}
	t.putPolicies(vh, vh.policies.without(name, operator))
	return nil
}

// withPolicies returns a vhost whose policies a command is about. Below level 2 there are none: whoever proposes one has seen
// that level, and no snapshot may have what older versions cannot read.
func (t *txn) withPolicies(name string) (*VHost, *amqperr.Error) {
	if t.Level() < PolicyLevel {
		return nil, adminError(amqperr.PreconditionFailed, "%s", NoPolicies)
	}
	vh := t.VHost(name)
	if vh == nil {
		return nil, noVHost(name)
	}
	return vh, nil
}

// putPolicies gives a vhost other policies. Routes change by it only where policies name alternate exchanges.
func (t *txn) putPolicies(vh *VHost, s *policySet) {
	c := *vh
	if vh.policies != nil && vh.policies.alternates || s != nil && s.alternates {
		c.generation++
	}
	c.owner, c.policies = t.edit, s
	t.vhosts = t.vhosts.Set(t.edit, vh.Name, &c)
	t.generation++
	t.changed = &PolicyChange{VHost: vh.Name, before: vh.policies, after: s}
}
