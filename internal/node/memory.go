package node

import (
	"bufio"
	"bytes"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// MemoryLimit is how much memory this process may use, and who says so.
type MemoryLimit struct {
	Bytes  uint64
	Source string
}

// DetectMemoryLimit finds the smallest limit that holds for this process: the
// machine's memory, or that of a control group (version 1 or 2, its own or one
// above it, hard or soft). Bytes is 0 if nothing could be read.
func DetectMemoryLimit() MemoryLimit { return detectMemoryLimit("/") }

// detectMemoryLimit reads the files of proc and sys below root.
func detectMemoryLimit(root string) MemoryLimit {
	best := MemoryLimit{Bytes: machineMemory(root), Source: "machine"}
	consider := func(file string) {
		if n, ok := readLimit(filepath.Join(root, file)); ok && (best.Bytes == 0 || n < best.Bytes) {
			best = MemoryLimit{Bytes: n, Source: file}
		}
	}
	for _, at := range cgroupFolders(root) {
		// From the process's own group up to the root of the tree: each one binds.
		for folder := at.group; ; folder = path.Dir(folder) {
			for _, file := range at.files {
				consider(path.Join(at.mount, folder, file))
			}
			if folder == "/" {
				break
			}
		}
	}
	return best
}

// cgroupFolder is one group of the process, below a mount point.
type cgroupFolder struct {
	mount, group string
	files        []string
}

// cgroupFolders reads /proc/self/cgroup. Inside a container the groups it
// names may not be visible; then only those above them are, and are read.
func cgroupFolders(root string) []cgroupFolder {
	data, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	var list []cgroupFolder
	for line := range strings.Lines(string(data)) {
		// hierarchy:controllers:group, version 2 being hierarchy 0 without controllers
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		group := path.Clean("/" + parts[2])
		switch {
		case parts[0] == "0" && parts[1] == "":
			list = append(list, cgroupFolder{"sys/fs/cgroup", group, []string{"memory.max", "memory.high"}})
		case hasController(parts[1], "memory"):
			list = append(list, cgroupFolder{"sys/fs/cgroup/memory", group, []string{"memory.limit_in_bytes", "memory.soft_limit_in_bytes"}})
		}
	}
	return list
}

func hasController(list, name string) bool {
	for _, c := range strings.Split(list, ",") {
		if c == name {
			return true
		}
	}
	return false
}

// readLimit reads a limit file; "max" and the huge numbers by which version 1
// says "none" are no limit.
func readLimit(file string) (uint64, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(data)), 10, 64)
	if err != nil || n == 0 || n >= 1<<60 {
		return 0, false
	}
	return n, true
}

// machineMemory is MemTotal of /proc/meminfo, 0 where there is none.
func machineMemory(root string) uint64 {
	f, err := os.Open(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 2 && fields[0] == "MemTotal:" {
			kib, _ := strconv.ParseUint(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}
