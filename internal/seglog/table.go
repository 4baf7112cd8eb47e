package seglog

import (
	"container/list"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sort"
	"sync"
)

// Entry tables: where in a segment the items of a run are. While a segment is written they are in memory; after it is
// sealed they go to a footer behind its last frame and come back on demand, a few at a time. They are derived: a damaged
// table is made anew by scanning the segment.
//
//	table := crc u32 | group | first | count | { first - end of the one before | count | offset - offset before }*
//
// Numbers are varints, differences zigzag coded; the CRC covers what follows it.
const (
	tableHeadMax  = 4 + 10 + 10 + 5
	tableEntryMax = 10 + 5 + 5
)

func uvarintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }
func zigzag(v int64) uint64   { return uint64(v<<1) ^ uint64(v>>63) }
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// tableEntrySize is an upper bound of what e adds to the table.
func tableEntrySize(before []entry, e entry) int {
	var prev entry
	if n := len(before); n > 0 {
		prev = before[n-1]
	}
	return uvarintLen(zigzag(int64(e.first-prev.first-uint64(prev.count)))) + 5 + uvarintLen(zigzag(int64(e.off)-int64(prev.off)))
}

// appendTable encodes a run's table.
func appendTable(buf []byte, g GroupID, entries []entry) []byte {
	start := len(buf)
	buf = append(buf, 0, 0, 0, 0)
	buf = binary.AppendUvarint(buf, uint64(g))
	buf = appendEntries(buf, entries)
	le.PutUint32(buf[start:], checksum(buf[start+4:]))
	return buf
}

func appendEntries(buf []byte, entries []entry) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(entries)))
	var end, off uint64
	for _, e := range entries {
		buf = binary.AppendUvarint(buf, zigzag(int64(e.first-end)))
		buf = binary.AppendUvarint(buf, uint64(e.count))
		buf = binary.AppendUvarint(buf, zigzag(int64(uint64(e.off)-off)))
		end, off = e.first+uint64(e.count), uint64(e.off)
	}
	return buf
}

var errTable = errors.New("entry table: damaged")

// parseTable decodes a table of the group.
func parseTable(p []byte, g GroupID) ([]entry, error) {
	if len(p) < 4 || le.Uint32(p) != checksum(p[4:]) {
		return nil, errTable
	}
	id, p, ok := uvarint(p[4:])
	if !ok || GroupID(id) != g {
		return nil, errTable
	}
	entries, rest, err := parseEntries(p)
	if err == nil && len(rest) > 0 {
		err = errTable
	}
	return entries, err
}

func parseEntries(p []byte) ([]entry, []byte, error) {
	count, p, ok := uvarint(p)
	if !ok || count > uint64(len(p)) {
		return nil, nil, errTable
	}
	entries := make([]entry, 0, count)
	var end, off uint64
	for range count {
		df, q, ok1 := uvarint(p)
		n, q, ok2 := uvarint(q)
		do, q, ok3 := uvarint(q)
		if !ok1 || !ok2 || !ok3 || n == 0 || n > 1<<32-1 {
			return nil, nil, errTable
		}
		first := end + uint64(unzigzag(df))
		off += uint64(unzigzag(do))
		if len(entries) > 0 && first < end || first+n < first || off > 1<<32-1 {
			return nil, nil, errTable
		}
		entries = append(entries, entry{first, uint32(n), uint32(off)})
		end, p = first+n, q
	}
	return entries, p, nil
}

// findEntry is the entry that holds id.
func findEntry(entries []entry, id uint64) (entry, bool) {
	i := sort.Search(len(entries), func(i int) bool { return entries[i].first > id }) - 1
	if i < 0 || id-entries[i].first >= uint64(entries[i].count) {
		return entry{}, false
	}
	return entries[i], true
}

// writeFooter puts the tables of a sealed segment behind its frames and takes them out of memory.
func (l *Log) writeFooter(s *segment) error {
	l.mu.Lock()
	runs := append([]*run(nil), s.runs...) // sealed: no run and no entry is added any more
	end := s.end
	l.mu.Unlock()

	list := s.list
	if end+int64(alignPage(s.tableEst+len(list)+2*headSize)) > s.size {
		list = nil
	}
	buf, listLen := openFrame(make([]byte, 0, s.tableEst+len(list)+footerSpare), list)
	at := make([][2]int, len(runs))
	for i, r := range runs {
		start := len(buf)
		buf = appendTable(buf, r.g.id, r.entries)
		at[i] = [2]int{start, len(buf) - start}
	}
	buf = sealFrame(buf, 0, head{
		gen: s.gen, seq: s.lastSeq, synced: s.lastSeq, off: uint32(end), kind: frameFooter,
		records: uint32(len(runs)), listLen: listLen, stamp: l.o.Clock.Now().UnixNano(),
	})
	if end+int64(len(buf)) > s.size {
		l.log.Warn("entry tables do not fit behind the segment and stay in memory", "segment", segmentName(s.id))
		l.mu.Lock()
		s.tablesStay = true
		l.mu.Unlock()
		return nil
	}
	l.io[1].begin(l.o.Clock.Mono())
	_, err := s.file.WriteAt(buf, end)
	if err == nil {
		err = s.file.Datasync()
	}
	l.io[1].end()
	if err != nil {
		return fmt.Errorf("footer of %s: %w", segmentName(s.id), err)
	}
	defer l.letGo(l.hold())
	for i, r := range runs {
		r.tabOff, r.tabLen, r.entries = end+int64(at[i][0]), at[i][1], nil
	}
	s.footer, s.list, l.changed = true, nil, true
	return nil
}

// entriesOf returns the table of a run, from memory, the cache, the footer, or if that is damaged from a scan. No lock held.
func (l *Log) entriesOf(r *run) ([]entry, error) {
	l.mu.Lock()
	entries, s, off, n := r.entries, r.seg, r.tabOff, r.tabLen
	l.mu.Unlock()
	if entries != nil {
		return entries, nil
	}
	if entries, ok := l.tables.get(r); ok {
		return entries, nil
	}
	p := make([]byte, n)
	_, err := s.file.ReadAt(p, off)
	if err == nil {
		entries, err = parseTable(p, r.g.id)
	}
	if err != nil {
		l.log.Warn("entry table is damaged, scanning the segment", "segment", segmentName(s.id), "group", uint64(r.g.id), "error", err)
		if entries, err = l.rebuildTable(r); err != nil {
			return nil, err
		}
	}
	l.tables.put(r, entries)
	return entries, nil
}

// tableCache keeps the tables read last, up to a number of bytes.
type tableCache struct {
	mu    sync.Mutex
	max   int
	bytes int
	byRun map[*run]*list.Element
	lru   list.List // of cachedTable, newest in front
}

type cachedTable struct {
	r       *run
	entries []entry
}

const entryBytes = 16

func (c *tableCache) init(max int) {
	c.max, c.byRun = max, map[*run]*list.Element{}
}

func (c *tableCache) get(r *run) ([]entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byRun[r]
	if e == nil {
		return nil, false
	}
	c.lru.MoveToFront(e)
	return e.Value.(cachedTable).entries, true
}

func (c *tableCache) put(r *run, entries []entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byRun[r] != nil {
		return
	}
	c.byRun[r] = c.lru.PushFront(cachedTable{r, entries})
	c.bytes += len(entries) * entryBytes
	for c.bytes > c.max && c.lru.Len() > 1 {
		c.evict(c.lru.Back())
	}
}

// drop forgets the tables of a segment's runs.
func (c *tableCache) drop(runs []*run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range runs {
		if e := c.byRun[r]; e != nil {
			c.evict(e)
		}
	}
}

func (c *tableCache) evict(e *list.Element) {
	t := c.lru.Remove(e).(cachedTable)
	delete(c.byRun, t.r)
	c.bytes -= len(t.entries) * entryBytes
}
