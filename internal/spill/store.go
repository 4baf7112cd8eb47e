package spill

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/invariant"
	"holdfast/internal/vfs"
)

// BlockSize is how many bytes of items a block had better have: as many as are
// worth a write, and few enough to be read for one of them.
const BlockSize = 64 << 10

// MaxSpan is how far the first and the last number of a block lie apart at most.
const MaxSpan = 1 << 16

// Options of a store. The zero value of each field means the default in brackets.
type Options struct {
	FileSize  int64         // a file takes no block once it has this many bytes without holes (64 MiB)
	PunchSize int64         // how many dead bytes of a file are worth a hole (an eighth of FileSize)
	Retry     time.Duration // from a failed write to the next try (1 s)
	Clock     clock.Clock
	Logger    *slog.Logger
	// Alarm is called when writes begin to fail, with the reason, and when they
	// succeed again. It runs on the store's goroutine and must not block.
	Alarm func(on bool, why string)
}

// Job is items to be written as one block. It belongs to the store from Put
// until Done is called.
type Job struct {
	Numbers []uint64 // ascending, at most MaxSpan apart
	Items   [][]byte // one for each number
	// Done is called on the store's goroutine when the block is on disk, with the
	// block, or with nil if the job was dropped. It must not block.
	Done func(*Job, *Block)

	s       *Store // since Put
	dropped atomic.Bool
}

// Drop says that nobody needs the items any more of a job that was put. Done is
// called all the same, with a block if the job was already being written.
func (j *Job) Drop() {
	j.dropped.Store(true)
	j.s.kick() // the disk may be full, and the next try far
}

// Reset makes a job that is done ready for its next use; the slices keep their memory.
func (j *Job) Reset() {
	clear(j.Items)
	j.Numbers, j.Items = j.Numbers[:0], j.Items[:0]
	j.dropped.Store(false)
}

// Store writes blocks. A full or failing disk keeps a job waiting, and those
// behind it, until it can be written or is dropped.
type Store struct {
	fs  vfs.FS
	dir string
	o   Options

	mu      sync.Mutex
	jobs    []*Job
	dead    []*Block
	closed  bool
	pausing bool // after a failed write
	wake    chan struct{}
	started bool
	ended   chan struct{}

	// The goroutine's own.
	line     []*Job // jobs, oldest first
	taken    []*Block
	buf      []byte
	files    map[*file]struct{}
	current  *file
	lastFile uint32
	noPunch  bool // the file system makes no holes
	noHoles  bool // the last one could not be made
	failing  bool

	stats counters
}

type counters struct {
	blocks, bytes, files, disk        atomic.Int64
	writes, written, reads, readBytes atomic.Uint64
	holes, failures, lost             atomic.Uint64
}

// Stats is a picture of the store.
type Stats struct {
	Blocks, Files    int64  // there are now
	Bytes, DiskBytes int64  // of the blocks; of the files, without holes
	Writes, Written  uint64 // blocks since the start, and their bytes
	Reads, ReadBytes uint64 // likewise
	Holes, Failures  uint64 // holes made; writes that failed
	Lost             uint64 // items that could not be read
}

// Open returns a store in dir, which it empties. The folder is made when it is needed.
func Open(fs vfs.FS, dir string, o Options) (*Store, error) {
	if o.FileSize == 0 {
		o.FileSize = 64 << 20
	}
	if o.PunchSize == 0 {
		o.PunchSize = o.FileSize / 8
	}
	if o.Retry == 0 {
		o.Retry = time.Second
	}
	if o.Clock == nil {
		o.Clock = clock.System()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if err := sweep(fs, dir); err != nil {
		return nil, fmt.Errorf("spilled bodies of an earlier process: %w", err)
	}
	return &Store{fs: fs, dir: dir, o: o, files: map[*file]struct{}{}, wake: make(chan struct{}, 1), ended: make(chan struct{})}, nil
}

// Start begins to write. A test may call Step instead.
func (s *Store) Start() {
	s.started = true
	go s.run()
}

// Put hands in a job. Jobs are done in the order in which they were put, dropped
// ones too. After Close it is kept and never done.
func (s *Store) Put(j *Job) {
	n := len(j.Numbers)
	if n == 0 || n != len(j.Items) || j.Numbers[n-1]-j.Numbers[0] >= MaxSpan {
		invariant.Failf("spill: a block of %d numbers and %d items", n, len(j.Items))
	}
	j.s = s
	s.mu.Lock()
	s.jobs = append(s.jobs, j)
	s.mu.Unlock()
	s.kick()
}

// bury hands in a block that nobody holds.
func (s *Store) bury(b *Block) {
	s.mu.Lock()
	s.dead = append(s.dead, b)
	s.mu.Unlock()
	s.kick()
}

func (s *Store) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Store) run() {
	defer close(s.ended)
	for {
		s.mu.Lock()
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return
		}
		if !s.Step() {
			<-s.wake
		}
	}
}

// Step gives dead blocks back and writes one block. It reports whether there
// was anything to do.
func (s *Store) Step() bool {
	s.mu.Lock()
	s.line = append(s.line, s.jobs...)
	clear(s.jobs)
	s.jobs = s.jobs[:0]
	s.taken, s.dead = s.dead, s.taken[:0]
	pausing := s.pausing
	s.mu.Unlock()

	for _, b := range s.taken {
		s.giveBack(b)
	}
	room := len(s.taken) > 0 // there may be
	worked := room
	clear(s.taken)
	for len(s.line) > 0 && s.line[0].dropped.Load() {
		j := s.pop()
		j.Done(j, nil)
		worked = true
	}
	if len(s.line) == 0 {
		s.over("nothing is left that has to be spilled")
		return worked
	}
	if pausing && !room {
		return worked
	}
	s.writeNext()
	return true
}

func (s *Store) pop() *Job {
	j := s.line[0]
	s.line[0] = nil
	s.line = s.line[1:]
	return j
}

// writeNext writes the oldest job, if it can.
func (s *Store) writeNext() {
	j := s.line[0]
	var size int
	s.buf, size = encode(s.buf[:0], j)
	f, off, err := s.write(s.buf)
	if err != nil {
		s.failed(err)
		return
	}
	b := &Block{s: s, file: f, off: off, size: int32(size), count: int32(len(j.Items)), first: j.Numbers[0]}
	b.refs.Store(1)
	s.stats.blocks.Add(1)
	s.stats.bytes.Add(int64(b.size))
	s.stats.writes.Add(1)
	s.stats.written.Add(uint64(b.size))
	if cap(s.buf) > 4*BlockSize && len(s.buf) <= 2*BlockSize {
		s.buf = nil
	}
	s.over("bodies are spilled again")
	s.pop()
	j.Done(j, b)
}

// failed notes that the oldest job could not be written. It is tried again
// after a pause, or when space has been given back.
func (s *Store) failed(err error) {
	s.stats.failures.Add(1)
	if !s.failing {
		s.failing = true
		s.o.Logger.Error("bodies cannot be spilled: they stay in memory, and publishers wait", "error", err)
		s.alarm(true, fmt.Sprintf("bodies cannot be spilled: %v", err))
	}
	s.mu.Lock()
	armed := s.pausing
	s.pausing = true
	s.mu.Unlock()
	if !armed {
		s.o.Clock.AfterFunc(s.o.Retry, func() {
			s.mu.Lock()
			s.pausing = false
			s.mu.Unlock()
			s.kick()
		})
	}
}

// over ends the alarm of failed writes.
func (s *Store) over(why string) {
	if s.failing {
		s.failing = false
		s.o.Logger.Info(why)
		s.alarm(false, "")
	}
}

func (s *Store) alarm(on bool, why string) {
	if s.o.Alarm != nil {
		s.o.Alarm(on, why)
	}
}

// Close ends the store and removes its files. Nobody may read or put any more.
// A write that hangs is not waited for longer than limit; the files are then
// removed by the next Open.
func (s *Store) Close(limit time.Duration) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.kick()
	if s.started {
		late, done := clock.After(s.o.Clock, limit)
		defer done()
		select {
		case <-s.ended:
		case <-late:
			return fmt.Errorf("spilled bodies: the disk has not answered for %v", limit)
		}
	}
	for f := range s.files {
		s.remove(f)
	}
	return nil
}

// Stats tells how the store stands.
func (s *Store) Stats() Stats {
	c := &s.stats
	return Stats{
		Blocks: c.blocks.Load(), Files: c.files.Load(), Bytes: c.bytes.Load(), DiskBytes: c.disk.Load(),
		Writes: c.writes.Load(), Written: c.written.Load(), Reads: c.reads.Load(), ReadBytes: c.readBytes.Load(),
		Holes: c.holes.Load(), Failures: c.failures.Load(), Lost: c.lost.Load(),
	}
}
