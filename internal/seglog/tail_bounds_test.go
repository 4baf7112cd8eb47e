package seglog

// TailBounds are the lowest and the highest index ReadEntry can read; last is the newest stable entry. There is none if
// first is above last.
func (l *Log) TailBounds(gid GroupID) (first, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.groups[gid]
	if g == nil {
		return 1, 0
	}
	switch {
	case g.repl != nil && len(g.repl.kept) > 0:
		first = g.repl.kept[0].index
	case len(g.tail) > 0:
		first = g.tail[0].index
	default:
		first = g.lastIndex + 1
	}
	return first, g.lastIndex
}
