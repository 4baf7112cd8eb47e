package harness

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// Result is one run, as a line of a file of results.
type Result struct {
	Scenario  string         `json:"scenario"`
	Broker    string         `json:"broker"`
	Commit    string         `json:"commit,omitempty"`
	Round     int            `json:"round"`
	Sync      string         `json:"sync"`
	Machine   Machine        `json:"machine"`
	Other     float64        `json:"other_cores"` // most of the machine that other work took in any part of the run
	Client    float64        `json:"client_cores"`
	Disturbed bool           `json:"disturbed"` // other work took more than the limit: does not count
	Error     string         `json:"error,omitempty"`
	Report    map[string]any `json:"report,omitempty"`
}

// counts says whether the run may stand for the broker.
func (r Result) counts() bool { return !r.Disturbed && r.Error == "" }

// Machine is where a result comes from.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory string `json:"memory"`
	System string `json:"system"`
	Disk   string `json:"disk"` // file system and device of the data folders
}

// ThisMachine describes the machine; dir is where data folders are made.
func ThisMachine(dir string) Machine {
	m := Machine{Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, CPU: "unknown", Memory: "unknown", Disk: "unknown"}
	after := func(file, key string) string {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
				return strings.TrimSpace(value)
			}
		}
		return "unknown"
	}
	m.CPU, m.Memory = after("/proc/cpuinfo", "model name"), after("/proc/meminfo", "MemTotal")
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += " " + strings.TrimSpace(string(release))
	}
	m.Disk = diskOf(dir)
	return m
}

// diskOf finds the mount that holds a folder.
func diskOf(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "unknown"
	}
	text, _ := os.ReadFile("/proc/mounts")
	longest, found := -1, "unknown"
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 3 || len(f[1]) <= longest {
			continue
		}
		if f[1] == "/" || dir == f[1] || strings.HasPrefix(dir, f[1]+"/") {
			longest, found = len(f[1]), f[2]+" on "+f[0]
		}
	}
	return found
}

// write appends the result to a file.
func (r Result) write(f *os.File) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	return err
}

// filesOpen raises the limit of open files, which the brokers inherit.
func filesOpen() {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) == nil {
		l.Cur = l.Max
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
	}
}
