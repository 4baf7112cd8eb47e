package mgmt

import (
	"fmt"
	"strings"
	"testing"

	"holdfast/internal/broker"
)

// fakeMarks notes what was set.
type fakeMarks struct{ said string }

func (m *fakeMarks) SetMemoryMark(share float64, bytes uint64) error {
	m.said = fmt.Sprint("memory ", share, " ", bytes)
	return nil
}

func (m *fakeMarks) SetDiskMark(multiple float64, bytes uint64) error {
	m.said = fmt.Sprint("disk ", multiple, " ", bytes)
	if multiple == 9 {
		return fail(broker.Unavailable, "how much memory there is is not known")
	}
	return nil
}

// startAlarmed is a server in a cluster of two, with a process around it.
func startAlarmed(t *testing.T) (*fakeBroker, *fakeMarks, *Options) {
	marks := new(fakeMarks)
	b, o, _ := start(t, func(o *Options) {
		door, err := OpenDoor(o.Settings, &fakeApp{state: AppState{Node: "n1", State: "running"}}, o.Logger)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { door.Close() })
		o.Marks, o.Door = marks, door
		o.Cluster = func() Cluster { return Cluster{Nodes: []ClusterNode{{Name: "n2"}, {Name: "n1", Self: true}}} }
	})
	return b, marks, o
}

// R498: the alarms of all nodes are listed, and checked, in the words of rabbitmq-diagnostics.
func TestAlarmCommands(t *testing.T) {
	b, _, o := startAlarmed(t)
	check := func(what string, code int, want string, args ...string) {
		t.Helper()
		if out, got := run(o, args...); got != code || out != want {
			t.Errorf("%s: %v: code %d:\n%s\nwant %d:\n%s", what, args, got, out, code, want)
		}
	}
	const known, local = "Asking node n1 to report any known resource alarms ...\n", "Asking node n1 to report any local resource alarms ...\n"
	check("none", 0, known+"Node n1 reported no alarms, local or clusterwide\n", "alarms")
	check("none", 0, local+"Node n1 reported no alarms, local or clusterwide\n", "check_alarms")
	check("none", 0, local+"Node n1 reported no local alarms\n", "check_local_alarms")
	check("none, quiet", 0, "", "check_local_alarms", "-q")
	b.elsewhere = []broker.NodeAlarms{{Node: 2, Name: "n2", Kinds: []broker.AlarmKind{broker.AlarmMemory, broker.AlarmDisk}}}
	check("elsewhere", 0, local+"Node n1 reported no local alarms\n", "check_local_alarms")
	const far = "Memory alarm on node n2\nFree disk space alarm on node n2"
	check("elsewhere", 69, local+"Error:\n"+far, "check_alarms")
	check("elsewhere", 0, known+far+"\n", "alarms")
	b.alarms = []broker.Alarm{{Kind: broker.AlarmDisk, Reason: "full"}}
	const own = "Free disk space alarm on node n1"
	check("both", 69, local+"Error:\n"+own+"\n"+far, "check_alarms")
	check("both", 69, local+"Error:\n"+own, "check_local_alarms")
	for _, c := range []struct{ args, want string }{
		{"alarms", `"local":["Free disk space alarm on node n1"]`}, {"alarms", `"message":"Node n1 reported alarms"`},
		{"check_alarms", `"global":["Memory alarm on node n2","Free disk space alarm on node n2"]`},
		{"cluster_status", `"alarms":[{"type":"resource_limit","resource":"disk","node":"n1"},{"type":"resource_limit","resource":"memory","node":"n2"}`},
	} {
		if out, _ := run(o, c.args, "--formatter", "json"); !strings.Contains(out, c.want) {
			t.Errorf("%s: no %s in %s", c.args, c.want, out)
		}
	}
	if out := must(t, o, "cluster_status"); !strings.Contains(out, "Alarms\n\n"+own+"\n"+far+"\n\n") {
		t.Error(out)
	}
}

// R491: the marks are set as rabbitmqctl sets them.
func TestMarkCommands(t *testing.T) {
	_, marks, o := startAlarmed(t)
	for _, c := range []struct {
		args, said, out string
		code            int
	}{
		{"set_vm_memory_high_watermark 0.4", "memory 0.4 0", "Setting memory threshold on n1 to 0.4 ...\n", 0},
		{"set_vm_memory_high_watermark absolute 1GiB", "memory 0 1073741824", "Setting memory threshold on n1 to 1GiB bytes ...\n", 0},
		{"set_disk_free_limit 2GB", "disk 0 2000000000", "Setting disk free limit on n1 to 2GB bytes ...\n", 0},
		{"set_disk_free_limit 0", "disk 0 0", "Setting disk free limit on n1 to 0 bytes ...\n", 0},
		{"set_disk_free_limit mem_relative 1.5", "disk 1.5 0", "Setting disk free limit on n1 to 1.5 times the total RAM ...\n", 0},
		{"set_disk_free_limit mem_relative 9", "disk 9 0", "not known", 69},
		{"set_vm_memory_high_watermark 0", "", "must be above 0", 65},
		{"set_vm_memory_high_watermark 1.1", "", "from 0 to 1", 64},
		{"set_vm_memory_high_watermark NaN", "", "from 0 to 1", 64},
		{"set_vm_memory_high_watermark absolute", "", "not enough arguments", 64},
		{"set_vm_memory_high_watermark absolute much", "", "must be a size", 64},
		{"set_vm_memory_high_watermark 0.4 0.5", "", "too many arguments", 64},
		{"set_disk_free_limit", "", "not enough arguments", 64},
		{"set_disk_free_limit mem_relative", "", "not enough arguments", 64},
		{"set_disk_free_limit mem_relative 1GB", "", "from 0 to 100", 64},
		{"set_disk_free_limit 1GB 2GB", "", "too many arguments", 64},
		{"set_disk_free_limit -- -1", "", "must be a size", 64},
	} {
		marks.said = ""
		out, code := run(o, strings.Fields(c.args)...)
		if code != c.code || marks.said != c.said || !strings.Contains(out, c.out) {
			t.Errorf("%s: code %d, %q was set:\n%s", c.args, code, marks.said, out)
		}
	}
}
