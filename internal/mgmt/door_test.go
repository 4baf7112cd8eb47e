package mgmt

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"holdfast/internal/broker"
	"holdfast/internal/config"
	"holdfast/internal/metrics"
)

// fakeApp is a process without a node.
type fakeApp struct {
	state AppState
	asked string
	err   error
}

func (a *fakeApp) State() AppState { return a.state }

func (a *fakeApp) did(what string) error {
	a.asked = what
	return a.err
}

func (a *fakeApp) Stop(context.Context) error  { return a.did("stop") }
func (a *fakeApp) Start(context.Context) error { return a.did("start") }
func (a *fakeApp) Reset(_ context.Context, force bool) error {
	if force {
		return a.did("force reset")
	}
	return a.did("reset")
}
func (a *fakeApp) Join(_ context.Context, addr string) (bool, error) {
	return addr == "member:1", a.did("join " + addr)
}
func (a *fakeApp) Forget(_ context.Context, name string, offline bool) error {
	if offline {
		return a.did("forget offline " + name)
	}
	return a.did("forget " + name)
}
func (a *fakeApp) ForceBoot(context.Context) (bool, error) {
	return a.state.State == "stopped", a.did("force boot")
}

// The commands about a process, in the words of rabbitmqctl, while a node runs in it and while none does.
func TestDoor(t *testing.T) {
	app := &fakeApp{state: AppState{Node: "n1", State: "stopped", Reason: "it was reset"}}
	settings := config.Default()
	settings.DataDir = t.TempDir()
	log := slog.New(slog.DiscardHandler)
	door, err := OpenDoor(settings, app, log)
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close()
	o := &Options{Settings: settings}
	check := func(code int, says string, args ...string) {
		t.Helper()
		if out, got := run(o, args...); got != code || !strings.Contains(out, says) {
			t.Errorf("%v: code %d, want %d, and %q in %q", args, got, code, says, out)
		}
	}
	for _, c := range []struct{ args, asked, says string }{
		{"stop_app", "stop", "Stopping the application on node n1 ...\n"},
		{"start_app", "start", "Starting node n1 ...\n"},
		{"reset", "reset", "Resetting node n1 ...\n"},
		{"force_reset", "force reset", "Forcefully resetting node n1 ...\n"},
		{"reset --formatter json", "reset", `{"node":"n1","result":"ok"}`},
		{"join_cluster n2:25672", "join n2:25672", "Clustering node n1 with n2:25672\n"},
		{"join_cluster --disc member:1", "join member:1", "The node is already a member of this cluster\n"},
		{"join_cluster member:1 --formatter json", "join member:1", `{"node":"n1","result":"ok"}`},
		{"forget_cluster_node n2/a", "forget n2/a", "Removing node n2/a from the cluster\n"},
		{"forget_cluster_node --offline n2", "forget offline n2", "Removing node n2 from the cluster\n"},
		{"force_boot", "force boot", "Node n1 will not wait for the others when it is started: use start_app\n"},
		{"force_standalone_khepri_boot --formatter json", "force boot", `{"node":"n1","result":"ok"}`},
		{"forget_cluster_node n2 --formatter json", "forget n2", `{"node":"n1","result":"ok"}`},
	} {
		if check(0, c.says, strings.Fields(c.args)...); app.asked != c.asked {
			t.Errorf("%s: the process was asked to %s", c.args, app.asked)
		}
	}
	check(64, "--ram", "join_cluster", "--ram", "n2:1")
	check(64, "not enough arguments", "forget_cluster_node")

	app.err = &AppError{Running: true, Text: "this command requires the application to be stopped"}
	check(64, "Error: this command requires the application to be stopped", "reset")
	app.err = &broker.AdminError{Kind: broker.Unavailable, Text: "must be stopped"}
	check(69, "must be stopped", "forget_cluster_node", "n2")
	app.err = &broker.AdminError{Kind: broker.NotFound, Text: "not in the cluster"}
	check(69, "not in the cluster", "forget_cluster_node", "n2")
	app.err = &broker.AdminError{Kind: broker.Rejected, Text: "not empty"}
	check(70, "not empty", "join_cluster", "n2:1")

	check(0, "Ping succeeded", "ping") // as rabbitmqctl: the process is there
	check(64, "it is stopped (it was reset). Start it with 'ctl start_app'.", "list_queues")
	app.state = AppState{Node: "n1", State: "starting"}
	check(69, "the node is starting", "status")

	// A node comes and goes.
	start := func() *Server {
		s, err := Start(Options{
			Broker: newFakeBroker(), Settings: settings, Logger: log, Door: door, Metrics: metrics.NewRegistry().Handler(),
			Cluster: func() Cluster { return Cluster{Name: "c"} },
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	settings.HTTPPort, settings.MetricsPort = 0, 0
	for range 2 {
		s := start()
		check(0, "c", "cluster_status")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		check(69, "the node is starting", "cluster_status")
	}
}
