package node

import (
	"os"
	"path/filepath"
	"testing"

	"holdfast/internal/config"
)

// The settings may say how much memory there is, and then nothing else does. R490
func TestMemoryAsTold(t *testing.T) {
	found := MemoryLimit{Bytes: 1 << 30, Source: "machine"}
	s := config.Default()
	if got := toldOr(s, found); got != found {
		t.Errorf("%+v without a setting", got)
	}
	s.MemoryTotal = 2 * config.GiB
	if got := toldOr(s, found); got.Bytes != 2<<30 || got.Source != "total_memory_available_override_value" {
		t.Errorf("%+v with a setting", got)
	}
}

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
		{"version 1, a limit above what can be seen", map[string]string{
			"proc/self/cgroup":                           "4:memory:/docker/1\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n",
			"sys/fs/cgroup/memory/memory.stat":           "cache 1\nhierarchical_memory_limit 536870912\nhierarchical_memsw_limit 1\n",
		}, 536870912, "sys/fs/cgroup/memory/memory.stat (hierarchical_memory_limit)"},
		{"version 1, a group of a container's own, below what is mounted", map[string]string{
			"proc/self/cgroup":                               "4:memory:/docker/1/sub\n",
			"proc/self/mountinfo":                            "35 31 0:32 /docker/1 /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     "1073741824\n",
			"sys/fs/cgroup/memory/sub/memory.limit_in_bytes": "536870912\n",
		}, 536870912, "sys/fs/cgroup/memory/sub/memory.limit_in_bytes"},
		{"version 1, none at all", map[string]string{
			"proc/self/cgroup":                           "4:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/memory.stat":           "hierarchical_memory_limit 9223372036854771712\n",
		}, 8000000 << 10, "machine"},
		{"both versions, memory in the second, mounted elsewhere", map[string]string{
			"proc/self/cgroup": "9:name=systemd:/x\n0::/x\n",
			"proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n" +
				"40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime shared:9 - cgroup cgroup rw,name=systemd\n" +
				"41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:10 - cgroup2 cgroup2 rw\n",
			"sys/fs/cgroup/unified/x/memory.max": "1048576\n",
			"sys/fs/cgroup/systemd/x/memory.max": "1\n",
		}, 1048576, "sys/fs/cgroup/unified/x/memory.max"},
		{"both versions, the smaller one", map[string]string{
			"proc/self/cgroup":                                  "4:memory:/a\n0::/b\n",
			"sys/fs/cgroup/b/memory.high":                       "2097152\n",
			"sys/fs/cgroup/memory/a/memory.soft_limit_in_bytes": "1048576\n",
		}, 1048576, "sys/fs/cgroup/memory/a/memory.soft_limit_in_bytes"},
		{"lines that are nothing", map[string]string{
			"proc/self/cgroup": "x\n0::/a\n", "proc/self/mountinfo": "cgroup\n1 2 3 - cgroup2\n\n", "sys/fs/cgroup/a/memory.max": "-1\n",
		}, 8000000 << 10, "machine"},
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
