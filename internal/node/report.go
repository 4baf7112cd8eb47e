package node

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"time"

	"holdfast/internal/config"
)

// Report is what a node says of itself when it has come up.
type Report struct {
	Node        string        // id, from the data folder
	Incarnation uint64        // starts of this node so far
	URLs        []string      // where clients connect
	DataDir     string        // as a whole path
	DiskBytes   int64         // what the data folder takes
	Queues      int           // durable queues brought back
	Orphans     int           // groups kept that the catalog does not know
	Quarantined int           // queues that cannot serve
	Clean       bool          // the last stop was an orderly one
	Fresh       bool          // the data folder was empty
	Took        time.Duration // to come up
	Try         string        // a command that publishes a message
}

// Report is what the node said of itself when it came up.
func (n *Node) Report() Report { return n.report }

func (n *Node) makeReport(fresh bool, took time.Duration) Report {
	r := n.report
	r.Node, r.Incarnation = n.identity.ID, uint64(n.incarnation)
	r.DataDir, r.DiskBytes = n.settings.DataDir, n.seglog.Stats().DiskBytes
	if folder, err := filepath.Abs(r.DataDir); err == nil {
		r.DataDir = folder
	}
	r.Quarantined = len(n.seglog.Quarantined())
	r.Clean, r.Fresh, r.Took = n.seglog.Clean(), fresh, took
	for _, l := range n.listeners.list {
		r.URLs = append(r.URLs, l.url(n.settings.DefaultUser, n.settings.DefaultVHost))
	}
	r.Try = "holdfast ctl --data " + r.DataDir + " publish --declare hello 'hello, world'"
	return r
}

func (r *Report) log(to *slog.Logger) {
	came := "after an orderly stop"
	switch {
	case r.Fresh:
		came = "on a new data folder"
	case !r.Clean:
		came = "after a stop that was not orderly"
	}
	to.Info("ready "+came, "urls", r.URLs, "data", r.DataDir, "disk", size(uint64(r.DiskBytes)),
		"queues", r.Queues, "took", r.Took.Round(time.Millisecond).String(), "try", r.Try)
	if r.Quarantined > 0 {
		to.Error("queues are quarantined: their data is damaged", "count", r.Quarantined,
			"salvage", "holdfast dump --data "+r.DataDir+" --salvage FOLDER")
	}
}

// url is where a client finds the listener, in a form that can be pasted: clients log in as guest by themselves where
// nobody is named, but with a name and no password they are refused, or do not even read it.
func (l *listener) url(user, vhost string) string {
	host, port, _ := net.SplitHostPort(l.Addr().String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "amqp"
	if l.tls {
		scheme = "amqps"
	}
	if user == config.Default().DefaultUser {
		user = ""
	} else {
		user = url.PathEscape(user) + "@"
	}
	return fmt.Sprintf("%s://%s%s/%s", scheme, user, net.JoinHostPort(host, port), url.PathEscape(vhost))
}
