package perf

import "testing"

// Files of /proc as they are on Linux.
func TestReadingProc(t *testing.T) {
	s, ok := parseStat("26622 (a name) with) S 4242 26622 26622 0 -1 4194560 1000 0 0 0 150 250 0 0 20 0 9 0 1 2 3\n")
	if !ok || s.parent != 4242 || s.cpu != 4 || s.state != 'S' {
		t.Errorf("stat %+v %v", s, ok)
	}
	if _, ok := parseStat("nonsense"); ok {
		t.Error("nonsense was read")
	}
	text := "Name:\tbeam.smp\nVmRSS:\t   2048 kB\nRssAnon:\t    1024 kB\nThreads:\t7\n"
	if field(text, "RssAnon") != 1<<20 || field(text, "Threads") != 7 || field(text, "RssShmem") != 0 {
		t.Error("a field was not found")
	}
	if used, stolen := parseMachine("cpu  100 10 200 5000 30 4 6 80 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"); used != 3.2 || stolen != 0.8 {
		t.Errorf("machine %v %v", used, stolen)
	}
}
