package node

import (
	"os"
	"path/filepath"
	"testing"
)

// The limit is the smallest of machine and control groups. R263
func TestMemoryLimitIsTheSmallest(t *testing.T) {
	const meminfo = "MemTotal:       8000000 kB\nMemFree: 1 kB\n"
	cases := []struct {
		name   string
		files  map[string]string
		want   uint64
		source string
	}{
		{"machine only", nil, 8000000 << 10, "machine"},
		{"nothing readable", map[string]string{"proc/meminfo": ""}, 0, "machine"},
		{"version 2, own group", map[string]string{
			"proc/self/cgroup":              "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max":  "536870912\n",
			"sys/fs/cgroup/a/b/memory.high": "max\n",
		}, 536870912, "sys/fs/cgroup/a/b/memory.max"},
		{"version 2, a group above", map[string]string{
			"proc/self/cgroup":             "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n",
			"sys/fs/cgroup/a/memory.max":   "1048576\n",
		}, 1048576, "sys/fs/cgroup/a/memory.max"},
		{"version 2, soft limit", map[string]string{
			"proc/self/cgroup":           "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "2097152\n", "sys/fs/cgroup/a/memory.high": "1048576\n",
		}, 1048576, "sys/fs/cgroup/a/memory.high"},
		{"version 2, in a container that sees only its root", map[string]string{
			"proc/self/cgroup": "0::/../../outside\n", "sys/fs/cgroup/memory.max": "1048576\n",
		}, 1048576, "sys/fs/cgroup/memory.max"},
		{"version 1", map[string]string{
			"proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/docker/1\n",
			"sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes":      "1073741824\n",
			"sys/fs/cgroup/memory/docker/1/memory.soft_limit_in_bytes": "9223372036854771712\n",
		}, 1073741824, "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes"},
		{"larger than the machine", map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "99999999999999\n",
		}, 8000000 << 10, "machine"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			files := map[string]string{"proc/meminfo": meminfo}
			for name, text := range c.files {
				files[name] = text
			}
			for name, text := range files {
				file := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got := detectMemoryLimit(root)
			if got.Bytes != c.want || got.Source != c.source {
				t.Errorf("got %+v, want %d from %s", got, c.want, c.source)
			}
		})
	}
}
