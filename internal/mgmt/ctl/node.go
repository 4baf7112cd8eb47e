package ctl

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

func nodeCommands() []*command {
	return []*command{status(), ping(), environment(), closeConnection(), closeAllConnections()}
}

func ping() *command {
	return &command{
		use: "ping", short: "Checks that the node is there and serves",
		run: func(r *run, _ []string) error {
			r.say("Will ping the node of %s. Timeout: %g s.", r.data, r.timeout)
			if err := r.call("GET", path("health"), nil); err != nil {
				return exitCode(err, ExitUnavailable)
			}
			return r.result(map[string]any{"status": "ok"}, "Ping succeeded")
		},
	}
}

func environment() *command {
	return &command{
		use: "environment", short: "Prints the settings in force, in the form of a configuration file",
		run: func(r *run, _ []string) error {
			var settings string
			if err := r.client.do(r.ctx, "GET", path("settings"), nil, &settings); err != nil {
				return err
			}
			fmt.Fprint(r.Out, settings)
			return nil
		},
	}
}

func closeConnection() *command {
	return &command{
		use: "close_connection name explanation", short: "Closes one connection; list_connections name tells the names", least: 2, most: 2,
		run: func(r *run, args []string) error {
			r.say("Closing connection %s, reason: %s...", args[0], args[1])
			return exitCode(r.call("DELETE", path("connections", args[0])+"?reason="+url.QueryEscape(args[1]), nil), ExitUnavailable)
		},
	}
}

func closeAllConnections() *command {
	var global bool
	var user string
	return &command{
		use: "close_all_connections explanation", short: "Closes all connections of a virtual host, or of the node", least: 1, most: 1,
		flags: func(c *cobra.Command) {
			c.Flags().BoolVar(&global, "global", false, "across all virtual hosts")
			c.Flags().StringVar(&user, "user", "", "only those of this user")
		},
		run: func(r *run, args []string) error {
			query := url.Values{"reason": {args[0]}, "user": {user}}
			if global {
				r.say("Closing all connections (across all vhosts), reason: %s...", args[0])
			} else {
				r.say("Closing all connections in vhost %s, reason: %s...", r.vhost, args[0])
				query.Set("vhost", r.vhost)
			}
			var answer struct{ Connections int }
			if err := r.client.do(r.ctx, "DELETE", path("connections")+"?"+query.Encode(), nil, &answer); err != nil {
				return err
			}
			return r.result(map[string]any{"connections": answer.Connections}, "Closed %d connections", answer.Connections)
		},
	}
}

// overview is what status shows; the node's answer has these fields.
type overview struct {
	PID       int     `json:"os_pid"`
	OS        string  `json:"os"`
	Uptime    float64 `json:"uptime"` // seconds
	Version   string  `json:"holdfast_version"`
	GoVersion string  `json:"go_version"`
	Node      string  `json:"node_name"`
	Health    string  `json:"health"`

	DataFolder  string   `json:"data_directory"`
	ConfigFiles []string `json:"config_files"`
	Alarms      []struct {
		Kind, Reason, Since string
	} `json:"alarms"`

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

	Connections uint64 `json:"connection_count"`
	Queues      uint64 `json:"queue_count"`
	VHosts      uint64 `json:"virtual_host_count"`
	Quarantined []struct {
		VHost, Name, Reason string
	} `json:"quarantined_queues"`
	Orphans []struct {
		Group  json.Number
		Reason string
	} `json:"orphans"`
	Listeners []struct {
		Interface string
		Port      int
		Protocol  string
		Purpose   string
	} `json:"listeners"`
}

func status() *command {
	return &command{
		use: "status", short: "Displays the status of the node",
		run: func(r *run, _ []string) error {
			var raw json.RawMessage
			if err := r.client.do(r.ctx, "GET", path("overview"), nil, &raw); err != nil {
				return err
			}
			if r.formatter == "json" {
				return writeJSON(r.Out, raw)
			}
			var o overview
			if err := json.Unmarshal(raw, &o); err != nil {
				return failf(ExitSoftware, "Error: %v", err)
			}
			r.say("Status of node %s ...", o.Node)
			_, err := fmt.Fprint(r.Out, o.String())
			return err
		},
	}
}

// String gives the status in sections, in the order and words of rabbitmqctl.
func (o *overview) String() string {
	var b strings.Builder
	section := func(title string) { fmt.Fprintf(&b, "%s%s\n\n", pick(b.Len() == 0, "", "\n"), title) }
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }

	section("Runtime")
	line("OS PID: %d", o.PID)
	line("OS: %s", o.OS)
	line("Uptime (seconds): %.0f", o.Uptime)
	line("Holdfast version: %s", o.Version)
	line("Go version: %s", o.GoVersion)
	line("Node name: %s", o.Node)
	line("Health: %s", o.Health)

	section("Data directory")
	line("Node data directory: %s", o.DataFolder)
	line("Used: %s", gigabytes(o.DiskUsed))

	section("Config files")
	list(line, o.ConfigFiles)

	section("Alarms")
	var alarms []string
	for _, a := range o.Alarms {
		alarms = append(alarms, fmt.Sprintf("%s alarm since %s: %s", a.Kind, a.Since, a.Reason))
	}
	list(line, alarms)

	section("Memory")
	line("Total memory used: %s", gigabytes(o.MemoryUsed))
	line("Memory high watermark: %s", gigabytes(o.MemoryMark))
	line("Memory limit read from: %s", o.MemorySource)

	section("File Descriptors")
	line("Total: %d, limit: %d", o.OpenFiles, o.MaxFiles)

	section("Free Disk Space")
	line("Low free disk space watermark: %s", gigabytes(o.DiskMark))
	line("Free disk space: %s", gigabytes(o.DiskFree))

	section("Log")
	line("Syncs: %d", o.Syncs)
	line("Messages per sync: %.1f", o.MessagesPerSync)

	section("Totals")
	line("Connection count: %d", o.Connections)
	line("Queue count: %d", o.Queues)
	line("Virtual host count: %d", o.VHosts)

	if len(o.Quarantined)+len(o.Orphans) > 0 {
		section("Damaged or unclaimed data")
		for _, q := range o.Quarantined {
			line("Queue '%s' in vhost '%s' is quarantined: %s", clean(q.Name), clean(q.VHost), q.Reason)
		}
		for _, g := range o.Orphans {
			line("Group %s belongs to no queue: %s", g.Group, g.Reason)
		}
	}

	section("Listeners")
	for _, l := range o.Listeners {
		line("Interface: %s, port: %d, protocol: %s, purpose: %s", l.Interface, l.Port, l.Protocol, l.Purpose)
	}
	return b.String()
}

func list(line func(string, ...any), entries []string) {
	if len(entries) == 0 {
		line("(none)")
	}
	for _, entry := range entries {
		line(" * %s", entry)
	}
}

func gigabytes(bytes uint64) string { return fmt.Sprintf("%.4f gb", float64(bytes)/1e9) }
