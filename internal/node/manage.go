package node

import (
	"os"
	"syscall"

	"holdfast/internal/metrics"
	"holdfast/internal/mgmt"
)

// manage opens the management side: the local socket, health and metrics.
func (n *Node) manage(o Options) error {
	registry := metrics.NewRegistry()
	registry.Serve(n.values)
	server, err := mgmt.Start(mgmt.Options{
		Broker: n.broker, Settings: n.settings, ConfigFile: o.ConfigFile, Lenient: o.LenientHTTP,
		Facts: n.facts, Cluster: n.cluster, Quorum: n.members, Marks: n, Stale: n.stale, Metrics: registry.Handler(), Objects: n.objects(),
		Logger: n.log.With("room", "mgmt"), Door: o.Door,
	})
	if err != nil {
		return err
	}
	n.management = server
	return nil
}

// closeManagement is harmless where manage was never called.
func (n *Node) closeManagement() error {
	if n.management == nil {
		return nil
	}
	return n.management.Close()
}

// Management is where health and metrics are served.
func (n *Node) Management() *mgmt.Server { return n.management }

// facts are what the node tells of itself when it is asked for its status.
func (n *Node) facts() mgmt.Facts {
	m, log := n.machine(), n.seglog.Stats()
	f := mgmt.Facts{
		Node: n.name(), Version: n.version, Uptime: n.clock.Now().Sub(n.started),
		MemoryUsed: m.ResidentBytes, MemoryMark: m.MemoryLimitBytes, MemorySource: n.memory.Source,
		OpenFiles: m.OpenFiles, MaxFiles: m.MaxFiles,
		DiskUsed: m.DiskUsedBytes, DiskFree: m.DiskFreeBytes, DiskMark: m.DiskLimitBytes,
		Syncs: log.Syncs, SyncedMessages: log.Items,
	}
	for _, l := range n.listeners.list {
		protocol, purpose := "amqp", "AMQP 0-9-1"
		if l.tls {
			protocol, purpose = "amqp/ssl", "AMQP 0-9-1 over TLS"
		}
		f.Listeners = append(f.Listeners, mgmt.ListenerAt(l.Addr(), protocol, purpose))
	}
	return f
}

// machine is what the node runs on.
func (n *Node) machine() metrics.Machine {
	m := metrics.Machine{
		ResidentBytes: n.heldMemory(), MemoryLimitBytes: n.marks.memory.Load(), DiskLimitBytes: n.seglog.FreeMark(),
		DiskUsedBytes: uint64(n.seglog.Stats().DiskBytes),
	}
	if usage, err := n.fs.Usage(n.settings.DataDir); err == nil {
		m.DiskFreeBytes = usage.Free
	}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		m.OpenFiles = uint64(len(open))
	}
	m.MaxFiles = maxFiles()
	return m
}

// maxFiles is how many files, sockets included, this process may have open; 0
// if that is not known.
func maxFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur)
}

// ownFiles bounds what of the open files is kept back for the node's own.
const ownFiles = 4096

// connectionLimit is how many clients may be connected when so many files may
// be open: a part is kept back for the log, which must be able to go on
// however many clients come. 0 is no limit.
func connectionLimit(files uint64) int {
	if files == 0 || files > 1<<40 {
		return 0
	}
	return int(max(files-min(max(files/4, 32), ownFiles, files), 1))
}
