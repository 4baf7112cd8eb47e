package mgmt

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"holdfast/internal/broker"
)

// Facts are what the node knows of itself.
type Facts struct {
	Node, Version string
	Uptime        time.Duration
	Listeners     []Listener // of clients

	MemoryUsed, MemoryMark       uint64
	MemorySource                 string // who says how much memory there is
	OpenFiles, MaxFiles          uint64
	DiskUsed, DiskFree, DiskMark uint64
	Syncs, SyncedMessages        uint64 // of the log, since the start
}

// Listener is one address on which the node serves.
type Listener struct {
	Interface string `json:"interface"`
	Port      int    `json:"port"`
	Protocol  string `json:"protocol"`
	Purpose   string `json:"purpose"`
}

// ListenerAt describes the listener of an address.
func ListenerAt(at net.Addr, protocol, purpose string) Listener {
	host, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return Listener{at.String(), 0, protocol, purpose}
	}
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		host = "[" + host + "]"
	}
	n, _ := strconv.Atoi(port)
	return Listener{host, n, protocol, purpose}
}

// overview is the answer about the node as a whole.
type overview struct {
	PID       int     `json:"os_pid"`
	OS        string  `json:"os"`
	Uptime    float64 `json:"uptime"`
	Version   string  `json:"holdfast_version"`
	GoVersion string  `json:"go_version"`
	Node      string  `json:"node_name"`
	Health    string  `json:"health"`

	DataFolder  string         `json:"data_directory"`
	ConfigFiles []string       `json:"config_files"`
	Alarms      []broker.Alarm `json:"alarms"`

	MemoryUsed   uint64 `json:"memory_used"`
	MemoryMark   uint64 `json:"memory_high_watermark_limit"`
	MemorySource string `json:"memory_source"`
	OpenFiles    uint64 `json:"open_files"`
	MaxFiles     uint64 `json:"max_files"`
	DiskUsed     uint64 `json:"disk_used"`
	DiskFree     uint64 `json:"disk_free"`
	DiskMark     uint64 `json:"disk_free_limit"`

	Syncs           uint64  `json:"log_syncs"`
	MessagesPerSync float64 `json:"log_messages_per_sync"`

	Connections int                 `json:"connection_count"`
	Queues      int                 `json:"queue_count"`
	VHosts      int                 `json:"virtual_host_count"`
	Quarantined []quarantined       `json:"quarantined_queues"`
	Orphans     []broker.OrphanInfo `json:"orphans"`
	Listeners   []Listener          `json:"listeners"`
}

type quarantined struct {
	VHost  string `json:"vhost"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

func (s *Server) overview(http.ResponseWriter, *http.Request) (any, error) {
	b, f := s.options.Broker, s.options.Facts()
	o := overview{
		PID: os.Getpid(), OS: runtime.GOOS, Uptime: f.Uptime.Seconds(), Version: f.Version, GoVersion: runtime.Version(), Node: f.Node, Health: "ok",
		DataFolder: s.options.Settings.DataDir, ConfigFiles: []string{}, Alarms: b.Alarms(),
		MemoryUsed: f.MemoryUsed, MemoryMark: f.MemoryMark, MemorySource: f.MemorySource, OpenFiles: f.OpenFiles, MaxFiles: f.MaxFiles,
		DiskUsed: f.DiskUsed, DiskFree: f.DiskFree, DiskMark: f.DiskMark,
		Syncs:       f.Syncs,
		Connections: len(b.ListConnections()), Orphans: b.ListOrphans(), Quarantined: []quarantined{}, Listeners: f.Listeners,
	}
	if folder, err := filepath.Abs(o.DataFolder); err == nil {
		o.DataFolder = folder // who asks may be in another folder than the node
	}
	if f.Syncs > 0 {
		o.MessagesPerSync = float64(f.SyncedMessages) / float64(f.Syncs)
	}
	if err := b.Health(); err != nil {
		o.Health = err.Error()
	}
	if s.options.ConfigFile != "" {
		o.ConfigFiles = append(o.ConfigFiles, s.options.ConfigFile)
	}
	var damaged []broker.QueueInfo
	o.VHosts = len(b.ListVHosts())
	o.Queues, damaged = b.CountQueues()
	for _, q := range damaged {
		o.Quarantined = append(o.Quarantined, quarantined{q.VHost, q.Name, q.Reason})
	}
	for _, at := range s.public {
		o.Listeners = append(o.Listeners, ListenerAt(at, "http", "health and metrics"))
	}
	return o, nil
}

func (s *Server) health(http.ResponseWriter, *http.Request) (any, error) {
	// ping asks whether the node serves. An alarm is not a failure of that kind: consumers are served.
	return struct {
		Status string `json:"status"`
	}{"ok"}, nil
}

func (s *Server) settings(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	s.options.Settings.Write(w) // an error means that the client has gone
}

func (s *Server) closeConnection(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, about("connection", s.options.Broker.CloseConnection(r.PathValue("connection"), reason(r)))
}

func (s *Server) closeAllConnections(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	vhost := query.Get("vhost")
	if vhost != "" && !s.hasVHost(vhost) {
		return nil, noVHost(vhost)
	}
	n := s.options.Broker.CloseAllConnections(vhost, query.Get("user"), reason(r))
	return struct {
		Connections int `json:"connections"`
	}{n}, nil
}

// reason is what a client is told whose connection is closed.
func reason(r *http.Request) string {
	if text := r.URL.Query().Get("reason"); text != "" {
		return fmt.Sprintf("closed by the operator: %s", text)
	}
	return "closed by the operator"
}
