package routing

import (
	"strings"

	"holdfast/internal/routing/ordmap"
	"holdfast/internal/wire"
)

// A binding's arguments are conditions on a message's headers: that a header is there (a void argument), or that it has a
// certain value. x-match says whether all conditions must hold or any one is enough, and whether arguments that start with
// "x-" are conditions too.

// condition is one condition as a string: the header's name with its length before it, then nothing for presence, or
// the meaning of the value.
type condition string

func appendCondition(dst []byte, name string) []byte {
	return append(append(dst, byte(len(name))), name...)
}

// rule is all bindings that have the same arguments. It is immutable.
type rule struct {
	any   bool
	conds []condition
	by    int // which condition a rule for "all" is found by
	set   set
}

// headersIndex finds the rules a message may satisfy by the conditions it does satisfy, instead of trying all of them.
//
// A rule for "any" stands in byCond under each of its conditions, a rule for "all" under one of them, the one that had the
// fewest rules when it came. A rule for "all" without conditions holds always, one for "any" without conditions never.
type headersIndex struct {
	rules  ordmap.Map[string, *rule] // by canonical arguments
	byCond ordmap.Map[condition, ordmap.Map[string, *rule]]
	always ordmap.Map[string, *rule]
}

func (x headersIndex) bind(e *ordmap.Edit, args wire.Table, t Target) headersIndex {
	id := Canonical(args)
	r := new(rule)
	if old, ok := x.rules.Get(id); ok {
		*r = *old
	} else {
		r.any, r.conds = parseRule(args)
		r.by = x.rarest(r.conds)
	}
	r.set = addTarget(e, r.set, t)
	return x.put(e, id, r)
}

func (x headersIndex) unbind(e *ordmap.Edit, args wire.Table, t Target) headersIndex {
	id := Canonical(args)
	old, ok := x.rules.Get(id)
	if !ok {
		return x
	}
	r := *old
	r.set = dropTarget(e, r.set, t)
	return x.put(e, id, &r)
}

// rarest returns the index of the condition by which the fewest rules are found.
func (x headersIndex) rarest(conds []condition) int {
	best, fewest := 0, -1
	for i, c := range conds {
		rules, _ := x.byCond.Get(c)
		if n := rules.Len(); fewest < 0 || n < fewest {
			best, fewest = i, n
		}
	}
	return best
}

// put stores the rule wherever it belongs, or removes it if it has no targets left.
func (x headersIndex) put(e *ordmap.Edit, id string, r *rule) headersIndex {
	x.rules = putRule(e, x.rules, id, r)
	switch {
	case r.any:
		for _, c := range r.conds {
			x.byCond = putCond(e, x.byCond, c, id, r)
		}
	case len(r.conds) == 0:
		x.always = putRule(e, x.always, id, r)
	default:
		x.byCond = putCond(e, x.byCond, r.conds[r.by], id, r)
	}
	return x
}

func putRule(e *ordmap.Edit, m ordmap.Map[string, *rule], id string, r *rule) ordmap.Map[string, *rule] {
	if r.set.Len() == 0 {
		return m.Delete(e, id)
	}
	return m.Set(e, id, r)
}

func putCond(e *ordmap.Edit, m ordmap.Map[condition, ordmap.Map[string, *rule]], c condition, id string, r *rule) ordmap.Map[condition, ordmap.Map[string, *rule]] {
	rules, _ := m.Get(c)
	if rules = putRule(e, rules, id, r); rules.Len() == 0 {
		return m.Delete(e, c)
	}
	return m.Set(e, c, rules)
}

// parseRule reads arguments that CheckArgs has passed. Conditions on values come before those on presence, which tell less.
func parseRule(args wire.Table) (any bool, conds []condition) {
	withX := false
	if v, ok := args.Get("x-match"); ok {
		mode, _ := v.Str()
		any = mode == "any" || mode == "any-with-x"
		withX = mode == "all-with-x" || mode == "any-with-x"
	}
	var present []condition
	for k, v := range args.All() {
		if k == "x-match" || !withX && strings.HasPrefix(k, "x-") {
			continue
		}
		c := appendCondition(nil, k)
		if v.Kind == wire.KindVoid {
			present = append(present, condition(c))
		} else {
			conds = append(conds, condition(appendMeaning(c, v)))
		}
	}
	return any, append(conds, present...)
}

// match appends the targets of all rules that hold for these headers and returns from how many sets they come.
func (x *headersIndex) match(dst []Target, headers wire.Table) ([]Target, int) {
	sets := 0
	take := func(r *rule) {
		dst = r.set.AppendKeys(dst)
		sets++
	}
	for _, r := range x.always.All() {
		take(r)
	}
	if x.byCond.Len() == 0 || len(headers) == 0 {
		return dst, sets
	}
	holds := satisfied(headers)
	for c := range holds {
		rules, _ := x.byCond.Get(c)
		for _, r := range rules.All() {
			if r.any || allHold(r.conds, holds) {
				take(r)
			}
		}
	}
	return dst, sets
}

// satisfied returns the conditions that hold for these headers. Of several headers with one name the last one counts.
func satisfied(headers wire.Table) map[condition]struct{} {
	values := make(map[string]wire.Value, 16)
	for k, v := range headers.All() {
		values[k] = v
	}
	holds := make(map[condition]struct{}, 2*len(values))
	var buf []byte
	for k, v := range values {
		buf = appendCondition(buf[:0], k)
		holds[condition(buf)] = struct{}{}
		if v.Kind != wire.KindVoid {
			holds[condition(appendMeaning(buf, v))] = struct{}{}
		}
	}
	return holds
}

func allHold(conds []condition, holds map[condition]struct{}) bool {
	for _, c := range conds {
		if _, ok := holds[c]; !ok {
			return false
		}
	}
	return true
}
