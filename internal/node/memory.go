package node

import (
	"bufio"
	"bytes"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"holdfast/internal/config"
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

// overrideKey is the setting that says how much memory there is.
const overrideKey = "total_memory_available_override_value"

// toldOr returns what the settings say of the memory there is, or else what was found.
func toldOr(s *config.Settings, found MemoryLimit) MemoryLimit {
	if s.MemoryTotal > 0 {
		return MemoryLimit{Bytes: uint64(s.MemoryTotal), Source: overrideKey}
	}
	return found
}

// detectMemoryLimit reads the files of proc and sys below root.
func detectMemoryLimit(root string) MemoryLimit {
	best := MemoryLimit{Bytes: machineMemory(root), Source: "machine"}
	consider := func(n uint64, ok bool, source string) {
		if ok && (best.Bytes == 0 || n < best.Bytes) {
			best = MemoryLimit{Bytes: n, Source: source}
		}
	}
	for _, at := range cgroupFolders(root) {
		// From the process's own group up to the root of the tree: each one binds.
		for folder := at.group; ; folder = path.Dir(folder) {
			for _, name := range at.files {
				file := path.Join(at.mount, folder, name)
				n, ok := readLimit(filepath.Join(root, file))
				consider(n, ok, file)
			}
			if at.stat { // groups above those that can be seen bind, too
				file := path.Join(at.mount, folder, "memory.stat")
				n, ok := readStat(filepath.Join(root, file), "hierarchical_memory_limit")
				consider(n, ok, file+" (hierarchical_memory_limit)")
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
	stat         bool // memory.stat knows of limits
}

// cgroupFolders reads /proc/self/cgroup. Inside a container the groups it
// names may not be visible; then only those above them are, and are read.
func cgroupFolders(root string) []cgroupFolder {
	data, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	mounts := cgroupMounts(root)
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
			at := cgroupFolder{mount: "sys/fs/cgroup", group: group, files: []string{"memory.max", "memory.high"}}
			list = append(list, at.mounted(mounts, "cgroup2")...)
		case hasController(parts[1], "memory"):
			at := cgroupFolder{
				mount: "sys/fs/cgroup/memory", group: group, files: []string{"memory.limit_in_bytes", "memory.soft_limit_in_bytes"}, stat: true,
			}
			list = append(list, at.mounted(mounts, "cgroup")...)
		}
	}
	return list
}

// mounted returns the group as it is found where its hierarchy is mounted, which may show only a part of it: in a container often that
// below the container's own group. Where no such mount is known, it is looked for in the usual place.
func (at cgroupFolder) mounted(mounts []cgroupMount, kind string) []cgroupFolder {
	var list []cgroupFolder
	for _, m := range mounts {
		if m.kind != kind || kind == "cgroup" && !hasController(m.options, "memory") {
			continue
		}
		here := at
		here.mount = m.point
		if rest, below := strings.CutPrefix(at.group, m.root); below && (m.root == "/" || rest == "" || rest[0] == '/') {
			here.group = path.Clean("/" + rest)
		}
		list = append(list, here)
	}
	if list == nil {
		list = append(list, at)
	}
	return list
}

// cgroupMount is a hierarchy of control groups that is mounted: the group that is seen at the mount point.
type cgroupMount struct {
	kind, root, point, options string
}

// cgroupMounts reads /proc/self/mountinfo.
func cgroupMounts(root string) (list []cgroupMount) {
	data, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		// id parent device root point options [more ...] - kind source options
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-")
		if dash < 5 || len(fields) < dash+4 || fields[dash+1] != "cgroup" && fields[dash+1] != "cgroup2" {
			continue
		}
		list = append(list, cgroupMount{kind: fields[dash+1], root: fields[3], point: strings.TrimPrefix(fields[4], "/"), options: fields[dash+3]})
	}
	return list
}

func hasController(list, name string) bool { return slices.Contains(strings.Split(list, ","), name) }

// readLimit reads a limit file; "max" and the huge numbers by which version 1
// says "none" are no limit.
func readLimit(file string) (uint64, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	return parseLimit(bytes.TrimSpace(data))
}

// readStat reads one line of a file with names and numbers.
func readStat(file, name string) (uint64, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(data) {
		if fields := bytes.Fields(line); len(fields) == 2 && string(fields[0]) == name {
			return parseLimit(fields[1])
		}
	}
	return 0, false
}

func parseLimit(text []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(text), 10, 64)
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
