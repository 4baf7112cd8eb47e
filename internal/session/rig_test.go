package session

import (
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/auth"
	"holdfast/internal/broker"
	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/config"
	"holdfast/internal/queuehost"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/spill"
	"holdfast/internal/vfs"
)

// rig is a server over the real broker, real queues and a log in memory, on a
// port of the loopback interface.
type rig struct {
	t       testing.TB
	broker  *broker.Broker
	server  *Server
	addr    string
	propose func(cmd []byte)
	clock   *clock.Manual // nil: the system's clock
	readers atomic.Int64  // made so far
	disk    *vfs.Mem      // not nil: bodies that memory has no room for go there
	spill   *spill.Store
	queues  *queuehost.Registry

	nodeCredit, incomplete int64       // 0: what is set by default
	queueClock             clock.Clock // nil: the system's
}

type rigOption func(*config.Settings, *Options, *rig)

// manualClock gives the sessions a clock that the test moves.
func manualClock(_ *config.Settings, o *Options, r *rig) {
	r.clock = clock.NewManual(time.Unix(1_700_000_000, 0))
	o.Clock = r.clock
}

func newRig(t testing.TB, options ...rigOption) *rig {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	if os.Getenv("HOLDFAST_TEST_LOG") != "" {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	settings := config.Default()
	r := &rig{t: t}
	o := Options{
		Settings: settings, Clock: clock.System(), Logger: logger, Version: "test",
		LoginDelay: time.Millisecond, SilentDelay: time.Millisecond, CloseTimeout: 3 * time.Second,
	}
	for _, option := range options {
		option(settings, &o, r)
	}
	log, err := seglog.Open(vfs.NewMem(), "log", seglog.Options{
		SegmentMin: 1 << 20, SegmentMax: 4 << 20, Logger: logger, Clock: clock.System(),
	})
	if err != nil {
		t.Fatal(err)
	}
	groups := replica.Open(replica.Options{Log: log, Shards: 2, Logger: logger})
	machine := catalog.New()
	commands := groups.NewSimpleGroup(1, machine)
	if r.disk != nil {
		if r.spill, err = spill.Open(r.disk, "spill", spill.Options{Logger: logger}); err != nil {
			t.Fatal(err)
		}
		r.spill.Start()
	}
	queues := queuehost.New(queuehost.Options{
		Log: log, Node: groups, Logger: logger, TailCache: int64(settings.Storage.TailCache), Spill: r.spill,
		Level: func() uint16 { return 2 }, NodeCredit: r.nodeCredit, Incomplete: r.incomplete, Clock: r.queueClock,
	})
	b := broker.New(broker.Options{
		Catalog: machine, Commands: commands, Queues: queues, Settings: settings, Clock: clock.System(), Logger: logger,
		NewReader: func() *broker.Reader { r.readers.Add(1); return queuehost.NewReader(log.NewReader()) },
	})
	queues.SetOwner(b)
	r.queues = queues
	if err := groups.Replay(queues.Host); err != nil {
		t.Fatal(err)
	}
	groups.Start()
	r.broker = b
	r.propose = func(cmd []byte) {
		t.Helper()
		done := make(chan any, 1)
		commands.Propose(cmd, false, func(result any, err error) {
			if err != nil {
				done <- err
			} else {
				done <- result
			}
		})
		switch result := (<-done).(type) {
		case error:
			t.Fatal(result)
		case *catalog.Result:
			if result.Err != nil {
				t.Fatal(result.Err)
			}
			if result.Incarnation != 0 {
				b.Begin(result.Incarnation)
			}
		}
	}
	r.propose(catalog.NewIncarnation(1))
	r.propose(catalog.Bootstrap(catalog.Defaults{
		VHost: "/", Configure: ".*", Write: ".*", Read: ".*",
		User: catalog.User{Name: "guest", Hash: auth.HashPassword("guest"), Algorithm: auth.Algorithm},
	}))

	o.Broker = b
	r.server = NewServer(o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	go r.server.Serve(l)
	t.Cleanup(func() {
		l.Close()
		b.Stop(5 * time.Second)
		r.server.Close(0)
		if err := groups.Close(false); err != nil {
			t.Error(err)
		}
		if err := log.Close(false); err != nil {
			t.Error(err)
		}
		if r.spill != nil {
			if err := r.spill.Close(patience); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

// addUser and allowAll are the commands for a user who may log in from anywhere,
// with guest's password.
func addUser(name string) []byte {
	return catalog.AddUser(catalog.User{Name: name, Hash: auth.HashPassword("guest"), Algorithm: auth.Algorithm})
}

func allowAll(name string) []byte {
	return catalog.SetPermissions(catalog.Permission{User: name, VHost: "/", Configure: ".*", Write: ".*", Read: ".*"})
}
