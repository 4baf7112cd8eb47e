package rig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// stillMost is how long a machine, or its disk, may stand still while tests run that wait for nodes in real time.
	stillMost = 5 * time.Second
	// stillRuns is how often such tests run at most, and stillLast how late the last of these may begin: go test has patience, too.
	stillRuns = 5
	stillLast = 6 * time.Minute
	childEnv  = "HOLDFAST_TEST_RUNS" // set in the process that runs the tests
)

// Run runs the tests of a package in a process of their own, for TestMain, and returns the exit status. If some fail and the
// machine or its disk stood still meanwhile, as a virtual one does for which its host has no time, they run again: what was
// promised within some seconds was broken then, and by nobody here.
func Run(tests func() int) int {
	if os.Getenv(childEnv) != "" {
		return tests()
	}
	still, end, err := watchStill()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer end()
	began := time.Now()
	args := os.Args[1:]
	for run := 1; ; run++ {
		still.Store(0)
		out := &failures{}
		cmd := Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), childEnv+"=1")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, io.MultiWriter(os.Stdout, out), os.Stderr
		cmd.WaitDelay = 10 * time.Second
		err := cmd.Run()
		if err == nil {
			return 0
		}
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
			fmt.Fprintln(os.Stderr, err)
		}
		stood, names := time.Duration(still.Load()), out.names()
		if stood < stillMost || run == stillRuns || time.Since(began) > stillLast {
			return 1
		}
		fmt.Fprintf(os.Stderr, "The machine stood still for %v meanwhile. Once more: %s.\n", stood.Round(time.Second), strings.Join(append(names, "all")[:max(len(names), 1)], ", "))
		if len(names) > 0 {
			args = append(os.Args[1:len(os.Args):len(os.Args)], "-test.run=^("+strings.Join(names, "|")+")$")
		}
	}
}

// watchStill notes the longest time, in ns, for which the machine or its disk stands still, until end is called.
func watchStill() (longest *atomic.Int64, end func(), err error) {
	dir, err := os.MkdirTemp("", "holdfast-still-")
	if err != nil {
		return nil, nil, err
	}
	longest = new(atomic.Int64)
	done := make(chan struct{})
	watch := func(do func()) {
		for {
			began := time.Now()
			do()
			took := int64(time.Since(began))
			for was := longest.Load(); took > was && !longest.CompareAndSwap(was, took); was = longest.Load() {
			}
			select {
			case <-done:
				return
			default:
			}
		}
	}
	go watch(func() { time.Sleep(50 * time.Millisecond) })
	go watch(func() {
		time.Sleep(500 * time.Millisecond)
		if f, err := os.Create(filepath.Join(dir, "x")); err == nil {
			_, _ = f.WriteString("x")
			_ = f.Sync()
			f.Close()
		}
	})
	return longest, func() { close(done); os.RemoveAll(dir) }, nil
}

// failures is what a test process writes, of which the names of the tests that failed are kept.
type failures struct {
	mu   sync.Mutex
	text bytes.Buffer
}

var failed = regexp.MustCompile(`(?m)^\x16?--- FAIL: (Test\w+) `)

func (f *failures) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.Write(b)
}

func (f *failures) names() (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range failed.FindAllSubmatch(f.text.Bytes(), -1) {
		list = append(list, string(m[1]))
	}
	return list
}
