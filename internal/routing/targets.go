package routing

import "holdfast/internal/routing/ordmap"

// set holds targets, each with the number of bindings that lead to it in the same way: bindings that differ only in
// arguments the type does not look at.
type set = ordmap.Map[Target, uint32]

func addTarget(e *ordmap.Edit, s set, t Target) set {
	n, _ := s.Get(t)
	return s.Set(e, t, n+1)
}

func dropTarget(e *ordmap.Edit, s set, t Target) set {
	if n, _ := s.Get(t); n > 1 {
		return s.Set(e, t, n-1)
	}
	return s.Delete(e, t)
}

// targets is a set for where there are very many of them: nearly all have one target, and that takes no map.
type targets struct {
	one   Target
	many  set    // if there is not one alone
	times uint32 // how many bindings lead to one
}

func (ts targets) none() bool { return ts.times == 0 && ts.many.Len() == 0 }

func (ts targets) with(e *ordmap.Edit, t Target) targets {
	switch {
	case ts.none():
		return targets{one: t, times: 1}
	case ts.times > 0 && ts.one == t:
		ts.times++
		return ts
	case ts.times > 0:
		ts = targets{many: set{}.Set(e, ts.one, ts.times)}
	}
	ts.many = addTarget(e, ts.many, t)
	return ts
}

// without takes out one binding, which is there.
func (ts targets) without(e *ordmap.Edit, t Target) targets {
	if ts.times > 0 {
		if ts.one == t {
			ts.times--
		}
		return ts
	}
	if ts.many = dropTarget(e, ts.many, t); ts.many.Len() == 1 {
		one, times := ts.many.At(0)
		return targets{one: one, times: times}
	}
	return ts
}

func (ts targets) appendTo(dst []Target) []Target {
	if ts.times > 0 {
		return append(dst, ts.one)
	}
	return ts.many.AppendKeys(dst)
}
