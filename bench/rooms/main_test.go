package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRooms(t *testing.T) {
	const traces = `File: holdfast
Type: cpu
-----------+-------------------------------------------------------
     600ms   internal/runtime/syscall.Syscall6
             syscall.RawSyscall6
             syscall.write
             net.(*conn).Write
             holdfast/internal/session.(*outbox).write
-----------+-------------------------------------------------------
     200ms   runtime.memmove
             holdfast/internal/wire.AppendContent (inline)
             holdfast/internal/session.(*conn).run
-----------+-------------------------------------------------------
     100ms   runtime.scanobject
             runtime.gcDrain
             runtime.gcBgMarkWorker
-----------+-------------------------------------------------------
     100ms   holdfast/internal/queue.(*Machine).Apply
             holdfast/internal/queuehost.(*host).Apply
`
	totals, err := read(strings.NewReader(traces))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	print(&out, totals)
	for _, want := range []string{"60.0 %  system calls: socket write   600ms", "20.0 %  wire (copying)", "10.0 %  runtime: collector", "10.0 %  queue "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
