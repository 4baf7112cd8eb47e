package invariant

import "sync/atomic"

// passed is who records the path of a message, if anybody does.
var passed atomic.Pointer[func(room, step string)]

// Pass notes that a message, or something that was asked for it, passes a step
// on its way through the rooms. The golden path test records these notes and
// compares them with a text; while nobody records, a note costs one load.
func Pass(room, step string) {
	if f := passed.Load(); f != nil {
		(*f)(room, step)
	}
}

// RecordPath hands every step to f, which may be called by several goroutines
// at once, until stop is called. There is one recorder in a process; only tests
// have any use for it.
func RecordPath(f func(room, step string)) (stop func()) {
	if !passed.CompareAndSwap(nil, &f) {
		Failf("two recorders of the path")
	}
	return func() { passed.CompareAndSwap(&f, nil) }
}
