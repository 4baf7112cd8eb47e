package vfs

import (
	"errors"
	"strings"
)

// Op is a set of calls a fault may hit.
type Op uint16

// The calls of a disk. OpChange are those that change it or make it durable; they are what Calls counts.
const (
	OpCreate Op = 1 << iota
	OpOpen
	OpRemove
	OpRename
	OpList
	OpSyncDir
	OpRead
	OpWrite
	OpTruncate
	OpSync
	OpDatasync
	OpPunch

	OpAnySync = OpSync | OpDatasync | OpSyncDir
	OpChange  = OpCreate | OpRemove | OpRename | OpWrite | OpTruncate | OpPunch | OpAnySync
	OpAny     = OpChange | OpOpen | OpList | OpRead
)

// Fault is one thing that goes wrong.
type Fault struct {
	Op   Op     // which calls
	Name string // only files whose path contains this
	N    int    // at the N-th matching call from now on (1 and 0 = the next)
	// Forever repeats the fault at every later matching call.
	Forever bool

	// Err is returned (syscall.EIO, syscall.ENOSPC). A sync that fails loses what it should have made durable, while
	// reads still show it: as Linux does.
	Err error
	// Short writes only the first half and says so.
	Short bool
	// Hang makes the call wait until the channel is closed, then goes on without fault (unless Err is set, too).
	Hang <-chan struct{}
}

type armed struct {
	Fault
	seen int
}

var errShort = errors.New("short write")

// Inject arms a fault.
func (m *Mem) Inject(f Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f.N = max(f.N, 1)
	m.faults = append(m.faults, &armed{Fault: f})
}

// ClearFaults disarms all faults.
func (m *Mem) ClearFaults() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = nil
}

// Calls is the number of calls so far that changed the disk or made it durable.
func (m *Mem) Calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// CrashAt switches the machine off at the n-th call (as Calls counts): what this call writes is unsynced, what it should
// have made durable is not, and it and all later calls return ErrCrashed. Then take a CrashClone.
func (m *Mem) CrashAt(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.crashAt = n
}

// Crashed tells whether CrashAt has happened.
func (m *Mem) Crashed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.crashed
}

// applies tells whether the call that got this error still changes what is unsynced: the very call the machine died in.
func (m *Mem) applies(err error) bool { return err == errDying }

var errDying = dying{}

type dying struct{}

func (dying) Error() string        { return ErrCrashed.Error() }
func (dying) Is(target error) bool { return target == ErrCrashed }

// enter counts the call and finds its fault. m.mu is held; it is released while a call hangs.
func (m *Mem) enter(op Op, name string) error {
	if m.crashed {
		return ErrCrashed
	}
	if op&OpChange != 0 {
		m.calls++
		if m.crashAt > 0 && m.calls >= m.crashAt {
			m.crashed = true
			return errDying
		}
	}
	for _, f := range m.faults {
		if f.Op&op == 0 || !strings.Contains(name, f.Name) {
			continue
		}
		f.seen++
		if f.seen < f.N || f.seen > f.N && !f.Forever {
			continue
		}
		if f.Hang != nil {
			m.mu.Unlock()
			<-f.Hang
			m.mu.Lock()
			if m.crashed {
				return ErrCrashed
			}
		}
		if f.Short && op == OpWrite {
			return errShort
		}
		if f.Err != nil {
			return f.Err
		}
	}
	return nil
}
