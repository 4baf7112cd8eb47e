package replica

import (
	"fmt"

	"holdfast/internal/seglog"
)

// logReader reads a segment log; its methods but Pin are for one goroutine.
type logReader struct {
	l *seglog.Log
	r *seglog.Reader
}

// NewReader returns what raft groups read a segment log with (Options.Reader).
func NewReader(l *seglog.Log) Reader { return &logReader{l, l.NewReader()} }

// ReadEntry implements Reader.
func (r *logReader) ReadEntry(g seglog.GroupID, index uint64) (seglog.Replayed, [][]byte, error) {
	e, err := r.r.ReadEntry(g, index)
	return e.Replayed, e.Items, err
}

// Pin implements Reader.
func (r *logReader) Pin(g seglog.GroupID, items []seglog.Range) (Pinned, error) {
	p := &logPin{r: r.r}
	for _, want := range items {
		for want.First <= want.Last {
			ref, n := r.l.PinRange(g, want.First, want.Last)
			if n == 0 {
				p.Close()
				return nil, fmt.Errorf("item %d is not in the log", want.First)
			}
			p.refs = append(p.refs, ref)
			p.spans = append(p.spans, pinSpan{ref, seglog.Range{First: want.First, Last: want.First + n - 1}})
			want.First += n
		}
	}
	return p, nil
}

// logPin is items of a segment log that stay readable.
type logPin struct {
	r     *seglog.Reader
	refs  []seglog.Ref
	spans []pinSpan // not read yet
}

// pinSpan is items that one Ref is good for.
type pinSpan struct {
	ref seglog.Ref
	seglog.Range
}

// Skip implements Pinned.
func (p *logPin) Skip(ranges []seglog.Range) {
	var left []pinSpan
	for _, s := range p.spans {
		for len(ranges) > 0 && ranges[0].Last < s.First {
			ranges = ranges[1:]
		}
		for _, r := range subtractRanges([]seglog.Range{s.Range}, ranges) {
			left = append(left, pinSpan{s.ref, r})
		}
	}
	p.spans = left
}

// Next implements Pinned.
func (p *logPin) Next(limit int) (blocks []seglog.Block, err error) {
	bytes := 0
	for len(p.spans) > 0 && bytes < limit {
		s := &p.spans[0]
		b := seglog.Block{First: s.First}
		for s.First <= s.Last && bytes < limit {
			item, err := p.r.Read(s.ref.At(s.First))
			if err != nil {
				return nil, err
			}
			b.Items = append(b.Items, append(make([]byte, 0, len(item)), item...))
			bytes += len(item) + 8
			s.First++
		}
		blocks = append(blocks, b)
		if s.First > s.Last {
			p.spans = p.spans[1:]
		}
	}
	return blocks, nil
}

// Close implements Pinned.
func (p *logPin) Close() {
	for _, ref := range p.refs {
		ref.Unpin()
	}
	p.refs, p.spans = nil, nil
}
