package vfs

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// SectorSize is what a Mem disk writes whole or not at all.
const SectorSize = 512

// Mem is a disk in memory. Of every file it knows the durable image and which sectors were written since; of every
// directory the durable names and the changes since. CrashClone makes the disk a power cut would leave behind.
type Mem struct {
	mu       sync.Mutex
	names    map[string]*node // as the running system sees them
	durable  map[string]*node // as they are on the platter
	dirs     map[string]bool
	pending  []nameOp // changes of names not yet synced, oldest first
	locked   map[string]bool
	capacity int64 // bytes; 0 = unlimited
	garbage  float64
	faults   []*armed
	crashAt  int
	calls    int // calls that change the disk or make it durable
	crashed  bool
}

// nameOp is a change of names: old removed, new (if any) pointing to the node.
type nameOp struct {
	dir      string
	old, new string
	node     *node
}

// node is a file's content. A sector that differs from the durable image and is not dirty is a ghost: its sync failed, the
// system believes it clean, the platter never saw it.
type node struct {
	cur, durable []byte
	dirty        map[int64]struct{}
	sizeDirty    bool
	holes        map[int64]struct{} // punched blocks of PunchAlign bytes
}

// ErrCrashed is what every call returns after the call given to CrashAt.
var ErrCrashed = errors.New("the machine is off")

// NewMem returns an empty disk.
func NewMem() *Mem {
	return &Mem{
		names: map[string]*node{}, durable: map[string]*node{},
		dirs: map[string]bool{".": true, "/": true}, locked: map[string]bool{},
	}
}

var _ FS = (*Mem)(nil)

// Create makes a new, empty file.
func (m *Mem) Create(name string) (File, error) {
	name = path.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpCreate, name); err != nil && !m.applies(err) {
		return nil, &fs.PathError{Op: "create", Path: name, Err: err}
	} else if err != nil {
		m.create(name)
		return nil, &fs.PathError{Op: "create", Path: name, Err: err}
	}
	if !m.dirs[path.Dir(name)] {
		return nil, &fs.PathError{Op: "create", Path: name, Err: syscall.ENOENT}
	}
	if m.names[name] != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: syscall.EEXIST}
	}
	return &memFile{m: m, n: m.create(name), name: name}, nil
}

func (m *Mem) create(name string) *node {
	n := &node{dirty: map[int64]struct{}{}}
	if m.names[name] == nil {
		m.names[name] = n
		m.pending = append(m.pending, nameOp{dir: path.Dir(name), new: name, node: n})
	}
	return n
}

// Open opens an existing file.
func (m *Mem) Open(name string) (File, error) { return m.open(name, false) }

// OpenDirect opens an existing file; reads see what the platter holds.
func (m *Mem) OpenDirect(name string) (File, error) { return m.open(name, true) }

func (m *Mem) open(name string, direct bool) (File, error) {
	name = path.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpOpen, name); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	n := m.names[name]
	if n == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
	}
	return &memFile{m: m, n: n, name: name, direct: direct}, nil
}

// Remove deletes a file; those who have it open go on using it.
func (m *Mem) Remove(name string) error {
	name = path.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.enter(OpRemove, name)
	if err == nil && m.names[name] == nil {
		err = syscall.ENOENT
	}
	if err == nil || m.applies(err) {
		delete(m.names, name)
		m.pending = append(m.pending, nameOp{dir: path.Dir(name), old: name})
	}
	if err != nil {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

// Rename replaces new by old.
func (m *Mem) Rename(old, new string) error {
	old, new = path.Clean(old), path.Clean(new)
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.enter(OpRename, old)
	n := m.names[old]
	if err == nil && n == nil {
		err = syscall.ENOENT
	}
	if n != nil && (err == nil || m.applies(err)) {
		delete(m.names, old)
		m.names[new] = n
		m.pending = append(m.pending, nameOp{dir: path.Dir(new), old: old, new: new, node: n})
	}
	if err != nil {
		return &fs.PathError{Op: "rename", Path: old, Err: err}
	}
	return nil
}

// MkdirAll makes a directory. Directories are durable at once.
func (m *Mem) MkdirAll(name string) error {
	name = path.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.crashed {
		return &fs.PathError{Op: "mkdir", Path: name, Err: ErrCrashed}
	}
	for ; !m.dirs[name]; name = path.Dir(name) {
		m.dirs[name] = true
	}
	return nil
}

// List returns the names of the files and directories in dir.
func (m *Mem) List(dir string) ([]string, error) {
	dir = path.Clean(dir)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpList, dir); err != nil {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: err}
	}
	if !m.dirs[dir] {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: syscall.ENOENT}
	}
	var out []string
	for name := range m.names {
		if path.Dir(name) == dir {
			out = append(out, path.Base(name))
		}
	}
	for name := range m.dirs {
		if path.Dir(name) == dir && name != dir {
			out = append(out, path.Base(name))
		}
	}
	slices.Sort(out)
	return out, nil
}

// SyncDir makes the names in dir durable.
func (m *Mem) SyncDir(dir string) error {
	dir = path.Clean(dir)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpSyncDir, dir); err != nil {
		return &fs.PathError{Op: "syncdir", Path: dir, Err: err}
	}
	rest := m.pending[:0]
	for _, op := range m.pending {
		if op.dir == dir {
			op.apply(m.durable)
		} else {
			rest = append(rest, op)
		}
	}
	m.pending = rest
	return nil
}

func (op nameOp) apply(names map[string]*node) {
	if op.old != "" {
		delete(names, op.old)
	}
	if op.new != "" {
		names[op.new] = op.node
	}
}

// Lock takes the lock of a name; it ends with Close, or with the clone.
func (m *Mem) Lock(name string) (io.Closer, error) {
	name = path.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked[name] {
		return nil, &fs.PathError{Op: "lock", Path: name, Err: ErrLocked}
	}
	m.locked[name] = true
	return memLock{m, name}, nil
}

type memLock struct {
	m    *Mem
	name string
}

func (l memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.locked, l.name)
	return nil
}

// Usage tells how full the disk is; without a capacity it is 1 TiB large.
func (m *Mem) Usage(string) (Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.crashed {
		return Usage{}, ErrCrashed
	}
	total := m.capacity
	if total == 0 {
		total = 1 << 40
	}
	free := total - m.used()
	return Usage{Free: uint64(max(free, 0)), Total: uint64(total)}, nil
}

func (m *Mem) used() int64 {
	var sum int64
	for _, n := range m.names {
		sum += int64(len(n.cur)) - int64(len(n.holes))*PunchAlign
	}
	return sum
}

// SetCapacity limits the sum of all file sizes; 0 is no limit. More fails with ENOSPC.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = bytes
}

// Used is the sum of all file sizes, without holes.
func (m *Mem) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used()
}

// SetGarbage makes CrashClone turn an unsynced sector that is neither old nor new into garbage with probability p.
func (m *Mem) SetGarbage(p float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.garbage = p
}

// CrashClone returns the disk as a power cut now may leave it: of each unsynced sector the old or the new content, of the
// unsynced changes of names a prefix per directory. One draw in four keeps nothing unsynced, one in four everything. The
// clone has no faults and no locks; the original is untouched.
func (m *Mem) CrashClone(rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	keep := rng.Float64()*2 - 0.5 // below 0: nothing; above 1: everything
	c := NewMem()
	c.dirs = maps.Clone(m.dirs)
	c.capacity, c.garbage = m.capacity, m.garbage
	names := maps.Clone(m.durable)
	stopped := map[string]bool{}
	for _, op := range m.pending {
		if stopped[op.dir] || rng.Float64() >= keep {
			stopped[op.dir] = true
			continue
		}
		op.apply(names)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		image := names[name].crash(rng, keep, m.garbage)
		n := &node{cur: image, durable: slices.Clone(image), dirty: map[int64]struct{}{}}
		c.names[name], c.durable[name] = n, n
	}
	return c
}

// KillClone returns the disk as another process finds it after the one using it was killed: what was written is there, and
// what of it was not synced is still not. Locks and faults are gone.
func (m *Mem) KillClone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMem()
	c.dirs = maps.Clone(m.dirs)
	c.capacity, c.garbage = m.capacity, m.garbage
	copies := map[*node]*node{}
	copyOf := func(n *node) *node {
		if n == nil {
			return nil
		}
		if copies[n] == nil {
			copies[n] = &node{
				cur: slices.Clone(n.cur), durable: slices.Clone(n.durable), dirty: maps.Clone(n.dirty), sizeDirty: n.sizeDirty,
				holes: maps.Clone(n.holes),
			}
		}
		return copies[n]
	}
	for name, n := range m.names {
		c.names[name] = copyOf(n)
	}
	for name, n := range m.durable {
		c.durable[name] = copyOf(n)
	}
	for _, op := range m.pending {
		op.node = copyOf(op.node)
		c.pending = append(c.pending, op)
	}
	return c
}

// Clone returns a copy of the disk as if everything had been synced: an orderly stop of the machine.
func (m *Mem) Clone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMem()
	c.dirs = maps.Clone(m.dirs)
	c.capacity, c.garbage = m.capacity, m.garbage
	for name, n := range m.names {
		cn := &node{cur: slices.Clone(n.cur), durable: slices.Clone(n.cur), dirty: map[int64]struct{}{}}
		c.names[name], c.durable[name] = cn, cn
	}
	return c
}

func (n *node) crash(rng *rand.Rand, keep, garbage float64) []byte {
	size := len(n.durable)
	if n.sizeDirty && rng.Float64() < keep {
		size = len(n.cur)
	}
	out := make([]byte, size)
	copy(out, n.durable)
	for _, s := range slices.Sorted(maps.Keys(n.dirty)) {
		lo := s * SectorSize
		if lo >= int64(size) {
			continue
		}
		hi := min(lo+SectorSize, int64(size))
		switch {
		case rng.Float64() < keep:
			clear(out[lo:hi])
			if lo < int64(len(n.cur)) {
				copy(out[lo:hi], n.cur[lo:])
			}
		case garbage > 0 && rng.Float64() < garbage:
			for i := lo; i < hi; i++ {
				out[i] = byte(rng.Uint32())
			}
		}
	}
	return out
}

// Flip inverts one bit of a file, on the platter and in the cache.
func (m *Mem) Flip(name string, off int64, bit uint) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.names[path.Clean(name)]
	if n == nil || off >= int64(len(n.cur)) {
		return &fs.PathError{Op: "flip", Path: name, Err: syscall.ENOENT}
	}
	n.cur[off] ^= 1 << (bit & 7)
	if off < int64(len(n.durable)) {
		n.durable[off] ^= 1 << (bit & 7)
	}
	return nil
}

// Names returns all files, sorted, whose path has the prefix.
func (m *Mem) Names(prefix string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for name := range m.names {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
