package queue

// extra checks what most machines do not have.
func (w *checker) extra(x *extra) {
	m := w.m
	w.that(!x.none() && !x.set.AutoDelete, "something extra that is nothing")
	if most, ok := x.set.MaxLength.Get(); ok && x.set.Overflow == OverflowDropHead {
		w.that(m.ready <= most, "%d messages ready, at most %d wanted", m.ready, most)
	}
}
