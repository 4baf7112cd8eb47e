package main

import "testing"

// What an operation costs is divided by the messages it handles.
func TestLine(t *testing.T) {
	have, is := line("replica", "BenchmarkRound/solo/groups=100/messages=1-2  4149  6797 ns/op  100.0 msg/op  170 B/op  3 allocs/op  7 us/sync")
	want := "replica    Round/solo/groups=100/messages=1                           68.0       1.7       0.030  7 us/sync"
	if !is || have != want {
		t.Errorf("%v\n%s\n%s", is, have, want)
	}
	for _, text := range []string{"PASS", "ok  holdfast/internal/replica 0.4s", "", "BenchmarkX-2", "BenchmarkX-2 10 x ns/op"} {
		if _, is := line("wire", text); is {
			t.Errorf("%q is a result", text)
		}
	}
}
