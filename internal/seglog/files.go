package seglog

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"holdfast/internal/vfs"
)

// fileOnDisk is a segment file as Open finds it.
type fileOnDisk struct {
	id      uint32
	file    vfs.File
	size    int64
	ok      bool // the header frame is whole
	head    head
	header  segmentHeader
	claimed bool // named by the checkpoint or part of the chain
	wiped   bool // the header is zeros, as recycling leaves it
	damaged bool // the header is lost, but frames behind it say that it was durable
}

// openFiles opens all segment files and reads their headers past the page cache.
func (l *Log) openFiles(names []string) (map[uint32]*fileOnDisk, error) {
	files := map[uint32]*fileOnDisk{}
	buf := vfs.AlignedBuffer(pageSize)
	for _, name := range names {
		if strings.HasSuffix(name, ".tmp") {
			l.leftovers = append(l.leftovers, name)
			continue
		}
		var id uint32
		if n, _ := fmt.Sscanf(name, "%08x.seg", &id); n != 1 || name != segmentName(id) || id == 0 {
			continue
		}
		f := &fileOnDisk{id: id}
		var err error
		if f.file, err = l.fs.Open(l.path(name)); err != nil {
			return nil, err
		}
		if f.size, err = f.file.Size(); err != nil {
			return nil, err
		}
		f.size &^= pageSize - 1
		files[id] = f
		l.nextID = max(l.nextID, id+1)
		direct, err := l.fs.OpenDirect(l.path(name))
		if err != nil {
			return nil, err
		}
		f.readHeader(direct, buf)
		direct.Close()
		l.gen = max(l.gen, f.head.gen)
	}
	return files, nil
}

func (f *fileOnDisk) readHeader(direct vfs.File, buf []byte) {
	r := &frameReader{file: direct, size: f.size, buf: buf[:0]}
	if f.size >= pageSize {
		// Only the first page for most; a header with a long list reads on by itself.
		if n, _ := direct.ReadAt(buf, 0); n == pageSize {
			r.buf = buf
			f.wiped = bytes.Equal(buf, zeros[:pageSize])
		}
	}
	h, _, ok := r.head(0, 0)
	if !ok || h.kind != frameHeader {
		return
	}
	body, whole := r.body(0, h)
	if !whole {
		return
	}
	header, err := parseSegmentHeader(body)
	if err != nil {
		return
	}
	f.ok, f.head, f.header = true, h, header
}

// usable tells whether an older checkpoint still describes the files: nothing it names was used again since.
func (rc *recovery) usable(c *loaded) bool {
	for _, s := range c.segs {
		f := rc.files[s.id]
		if f == nil || !f.ok || f.head.gen != s.gen {
			return false
		}
	}
	if w := &rc.sc.witness; w.head.seq > c.cut.seq && w.checkpoint < rc.unread {
		if f := rc.files[w.header.id]; f == nil || !f.ok || f.head.gen != w.head.gen {
			return false // lost, or given up after a newer one
		}
	}
	last, lastGen := c.cut.seq, c.lastGen
	if s := c.segs[c.cut.id]; s != nil {
		lastGen = s.gen
	}
	for _, f := range rc.sorted() {
		if f.ok && f.head.gen > c.gen && c.segs[f.id] == nil {
			if f.header.kind == segmentCold {
				return false // it may hold the only copies
			}
			if f.head.seq > last {
				if f.header.prevGen != lastGen {
					return false
				}
				lastGen = f.head.gen
			}
		}
	}
	return true
}

// sorted lists the files in order of first sequence.
func (rc *recovery) sorted() []*fileOnDisk {
	out := make([]*fileOnDisk, 0, len(rc.files))
	for _, f := range rc.files {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b *fileOnDisk) int {
		if a.head.seq != b.head.seq {
			if a.head.seq < b.head.seq {
				return -1
			}
			return 1
		}
		return int(a.id) - int(b.id)
	})
	return out
}

// probe looks whether a file without a whole header nevertheless holds frames that were durable after the cut: then its
// header is damaged, and the file is part of the log. A torn header on a segment never used is simply free.
func (rc *recovery) probe(f *fileOnDisk) {
	const deep = 64 << 10
	if rc.vouched(f) {
		return
	}
	if f.wiped && !rc.newest {
		return // without the newest cut, what a recycled segment still holds cannot be told from what counts
	}
	direct, err := rc.l.fs.OpenDirect(rc.l.path(segmentName(f.id)))
	if err != nil {
		return
	}
	defer direct.Close()
	r := &frameReader{file: direct, size: min(f.size, deep)}
	for off := int64(pageSize); off < r.size; off += pageSize {
		h, _, err := parseHead(r.at(off, int(min(r.size-off, deep))))
		if err != nil || int64(h.off) != off || h.kind != frameData || h.seq <= rc.cut.seq || h.gen <= rc.gen {
			continue
		}
		whole := &frameReader{file: direct, size: f.size}
		if whole.maxSynced(off, h.gen) < h.seq-1 {
			return // the header's own write was not durable either
		}
		f.damaged = true
		f.head = head{gen: h.gen, seq: h.seq - 1}
		f.header = segmentHeader{kind: segmentHot, prevLast: h.seq - 2}
		rc.l.gen = max(rc.l.gen, h.gen)
		return
	}
}
