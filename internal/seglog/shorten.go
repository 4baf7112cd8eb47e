package seglog

import (
	"fmt"
	"io"

	"holdfast/internal/vfs"
)

// On a full disk a few pages decide: a frame that brings space back, or the snapshot without which nothing can be rewritten, may
// need no more than four of them. Segments that were made for a large record, or sealed early, have many behind their footers.

// shortenStep gives back to the disk what a sealed segment does not use, when a frame waits for room and there is nothing to
// rewrite; the cold segment is sealed for it. It tells whether it did something.
func (l *Log) shortenStep() bool {
	l.mu.Lock()
	if l.noSpace == "" || l.need == 0 || l.pickable(l.need, segmentHot) >= 0 {
		l.mu.Unlock()
		return false
	}
	var s *segment
	for _, other := range l.segs {
		if other.state == segSealed && other.footer && !other.looked && other.unused() >= pageSize &&
			(s == nil || other.unused() > s.unused() || other.unused() == s.unused() && other.id < s.id) {
			s = other
		}
	}
	if s == nil {
		cold := l.cold != nil && l.cold.room(0) >= 2*pageSize
		if cold {
			l.sealCold()
		}
		l.mu.Unlock()
		return cold
	}
	s.looked = true
	l.mu.Unlock()
	if err := l.shorten(s); err != nil {
		return l.keep(err)
	}
	l.checkFree()
	l.mu.Lock()
	l.spaceChanged()
	l.mu.Unlock()
	kick(l.prepKick)
	return true
}

// shorten cuts a sealed segment off behind its footer. Only the keeper uses it again, so it stays what it is meanwhile.
func (l *Log) shorten(s *segment) error {
	end := footerEnd(s.file, s.gen, s.end)
	cut := s.taken() - end
	if end == 0 || cut < pageSize {
		return nil
	}
	if err := s.file.Truncate(end); err != nil {
		return fmt.Errorf("shortening %s: %w", segmentName(s.id), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.cut += cut
	l.changed = true
	return nil
}

// footerEnd is where the footer ends that begins at off, 0 if there is none.
func footerEnd(f vfs.File, gen uint64, off int64) int64 {
	var p [headSize]byte
	if n, err := f.ReadAt(p[:], off); n < len(p) && err != io.EOF {
		return 0
	}
	h, _, err := parseHead(p[:])
	if err != nil && err != errShortBuf || h.gen != gen || h.kind != frameFooter || int64(h.off) != off {
		return 0
	}
	return off + h.bytes()
}
