package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/auth"
	"holdfast/internal/broker"
	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/config"
	"holdfast/internal/mgmt"
	"holdfast/internal/node/catgroup"
	"holdfast/internal/node/members"
	"holdfast/internal/queuehost"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/session"
	"holdfast/internal/spill"
	"holdfast/internal/vfs"
)

// catalogGroup is the catalog's group in the log. Queues have the ids that the
// catalog gives them, all of them higher.
const catalogGroup = catgroup.Group

// Options say what a node is started from.
type Options struct {
	Settings *config.Settings
	FS       vfs.FS
	Clock    clock.Clock
	Logger   *slog.Logger
	// Version is what clients and operators are told the broker is.
	Version string
	// ConfigFile is where the settings came from, "" for the defaults.
	ConfigFile string
	// LenientHTTP says that nobody asked for the addresses of health and
	// metrics: one that is taken is a warning.
	LenientHTTP bool
	// Context, if not nil, ends a start that waits for other nodes.
	Context context.Context
	// Waits, if not nil, is told what a start is waiting for. It must not block.
	Waits func(why string)
	// Force, if not nil, has the node go on with the catalog alone, where the majority was lost for good, and is told what came of
	// that; the start then goes on as ever.
	Force func(error)
	// Lookup finds the addresses of a host name; nil: the system does.
	Lookup func(ctx context.Context, host string) ([]string, error)
	// Memory is how much memory there is; the zero value switches the memory alarm off.
	Memory MemoryLimit
	// Levels are the levels of formats that the node knows, for tests; zero: those of this build.
	Levels catalog.Levels
	// Door is the local socket of the process where that outlives the node, which then has no other; so does whoever
	// opened it hold the lock of the data folder. Nil: the node has both for itself.
	Door *mgmt.Door
}

// Node is a running broker.
type Node struct {
	settings *config.Settings
	fs       vfs.FS
	clock    clock.Clock
	log      *slog.Logger

	identity    identity
	levels      levels
	incarnation catalog.Incarnation
	lock        io.Closer
	seglog      *seglog.Log
	spill       *spill.Store
	groups      *replica.Node
	queues      *queuehost.Registry
	catalog     *catalog.Machine
	commands    *replica.SimpleGroup
	mesh        *mesh // nil: the node is alone
	broker      *broker.Broker
	server      *session.Server
	listeners   listeners
	members     *members.Manager
	management  *mgmt.Server
	report      Report
	version     string
	memory      MemoryLimit
	ballast     ballast // held for what it is, never read
	started     time.Time

	alarms   diskAlarms
	marks    marks
	running  atomic.Bool   // the groups have been started
	stopping chan struct{} // closed when Stop or fail begins
	// handedOver is closed when others lead what this node led, and its links are gone.
	handedOver chan struct{}
	handOver   sync.Once
	passing    sync.WaitGroup // who waits for that
	stopOnce   sync.Once
	watching   sync.WaitGroup // goroutines of the node, which end when stopping and the listeners are closed
	stopped    sync.Once      // Stop has done its work
	stopErr    error
	fatal      atomic.Pointer[error] // why the node must end, once it must
	failed     chan struct{}         // closed with it
	removal    removal
	waits      func(why string)              // or nil
	ready      atomic.Pointer[broker.Broker] // for goroutines of the log, which may come before there is one
}

// Start brings a node up and serves clients. It returns an error whose text
// tells the operator what is wrong and what to do.
func Start(o Options) (*Node, error) {
	o.Memory = toldOr(o.Settings, o.Memory)
	n := &Node{
		settings: o.Settings, fs: o.FS, clock: o.Clock, log: o.Logger,
		version: o.Version, memory: o.Memory, started: o.Clock.Now(),
		stopping: make(chan struct{}), handedOver: make(chan struct{}), failed: make(chan struct{}), removal: removal{is: make(chan struct{})}, waits: o.Waits,
	}
	n.levels.known = o.levels()
	n.beginMarks()
	if limit := o.Memory.Bytes; limit > 0 {
		n.ballast = newBallast(limit, o.Settings.MemoryLimit(limit), uint64(debug.SetMemoryLimit(-1)))
	}
	if err := n.start(o); err != nil {
		n.abandon()
		return nil, err
	}
	return n, nil
}

func (n *Node) start(o Options) (err error) {
	began := n.clock.Now()
	dir := n.settings.DataDir
	if err := before(&o); err != nil {
		return err
	}
	if o.Door == nil {
		if n.lock, err = lockData(n.fs, dir); err != nil {
			return err
		}
	}
	fresh := false
	if n.identity, fresh, err = openIdentity(n.fs, dir); err != nil {
		return err
	}
	if err := n.readable(fresh); err != nil {
		return err
	}
	ctx, cancel := n.removal.ends(cmp.Or(o.Context, context.Background()))
	defer cancel()
	switch {
	case n.settings.Cluster.Address != "":
		if err := n.joinMesh(ctx, o.Lookup); err != nil {
			return err
		}
	case n.identity.bound():
		return errors.New("this data folder belongs to a node of a cluster; start it with cluster.address, where the others reach it")
	default:
		n.identity.Starts++
		if err := n.identity.save(n.fs, dir); err != nil {
			return fmt.Errorf("data folder %s: %w", dir, err)
		}
	}
	if err := n.openLog(o); err != nil {
		return err
	}
	if err := n.replay(); err != nil {
		return err
	}
	if err := n.reconcile(); err != nil {
		return err
	}
	n.spill.Start()
	n.groups.Start() // and the log
	n.running.Store(true)
	n.passing.Go(n.passTime)
	if n.mesh != nil {
		if err := n.mesh.lineage.resume(); err != nil {
			return err
		}
		n.mesh.ended.Go(n.mesh.watch)
		if o.Force != nil {
			o.Force(n.forceCatalog(ctx))
		}
		err = n.mesh.enter(ctx)
	} else {
		err = n.begin(fresh)
	}
	if err != nil {
		return err
	}
	if o.Memory.Bytes > 0 {
		n.watching.Go(func() { n.watchMemory(o.Memory) })
	}
	if err := n.listen(); err != nil {
		return err
	}
	if err := n.manage(o); err != nil {
		return err
	}
	n.report = n.makeReport(fresh, n.clock.Now().Sub(began))
	n.report.log(n.log)
	return nil
}

// openLog opens the segment log and makes the empty rooms around it.
func (n *Node) openLog(o Options) (err error) {
	s := n.settings
	dir := path.Join(s.DataDir, logDir)
	if err := n.fs.MkdirAll(dir); err != nil {
		return fmt.Errorf("data folder %s: %w", s.DataDir, err)
	}
	usage, err := n.fs.Usage(s.DataDir)
	if err != nil {
		return fmt.Errorf("data folder %s: %w", s.DataDir, err)
	}
	mark := s.DiskFreeLimit(usage.Total, o.Memory.Bytes)
	n.seglog, err = seglog.Open(n.fs, dir, seglog.Options{
		SegmentMin: int64(s.Storage.SegmentMin), SegmentMax: int64(s.Storage.SegmentMax),
		FrameMax:        int(s.Storage.CommitMax),
		CheckpointBytes: int64(s.Storage.CheckpointBytes), CheckpointEvery: s.Storage.CheckpointInterval,
		HangLimit: s.Storage.HangLimit,
		FreeMark:  mark,
		Clock:     n.clock, Logger: n.log, // it names its room itself
		Events: seglog.Events{
			NeedSnapshot: func(ids []seglog.GroupID) { n.groups.NeedSnapshots(ids) },
			Alarm:        n.logAlarm,
			Fatal:        func(err error) { n.fail(fmt.Errorf("the log cannot be written: %w", err)) },
			Hit: func(h seglog.Hit) {
				n.log.Error("damaged data found while running", "group", uint64(h.Group), "reason", h.Reason)
				n.queues.Hit(h)
			},
		},
	})
	if err != nil {
		return fmt.Errorf("log in %s: %w", dir, err)
	}
	n.spill, err = spill.Open(n.fs, path.Join(s.DataDir, spillDir), spill.Options{
		Clock: n.clock, Logger: n.log.With("room", "spill"),
		Alarm: func(on bool, why string) { n.diskAlarm(&n.alarms.spill, on, why) },
	})
	if err != nil {
		return fmt.Errorf("data folder %s: %w", s.DataDir, err)
	}
	groups := replica.Options{
		Log: n.seglog, Shards: s.ShardCount(), Clock: n.clock, Logger: n.log.With("room", "replica"),
		Overdue: s.PublishTimeout,
		NodeID:  n.identity.number(), Transport: silence{}, Reader: replica.NewReader(n.seglog),
	}
	if m := n.mesh; m != nil {
		groups.Transport, groups.Rest = raftTransport{m}, true // a peer that is silent is told of within a second
	}
	n.groups = replica.Open(groups)
	// What publishers have in flight when the alarm comes must still fit on the disk, as acknowledgements behind it in the log are what
	// frees space, and into memory, beside what is there already.
	credit := nodeCredit(mark, o.Memory.Bytes)
	queues := queuehost.Options{
		Log: n.seglog, Node: n.groups, Clock: n.clock, Logger: n.log.With("room", "queuehost"),
		TailCache:  max(int64(s.Storage.TailCache), 1), // 0 in the file is none, not the default
		Spill:      n.spill,
		NodeCredit: credit, ConnectionCredit: credit / 64, Incomplete: max(2*int64(s.MaxMessageSize), int64(o.Memory.Bytes/8)),
		Level:  n.levels.inUse,
		Prompt: true,
	}
	n.catalog = catalog.New()
	n.catalog.Raising = n.raising
	b := broker.Options{
		Catalog:  n.catalog,
		Settings: s, Clock: n.clock, Logger: n.log.With("room", "broker"),
		Node: n.identity.number(), Others: others{n},
		NewReader: func() *broker.Reader { return queuehost.NewReader(n.seglog.NewReader()) },
	}
	queues.Self, queues.Incarnation, queues.NewReader = n.identity.number(), n.identity.Starts, b.NewReader
	queues.Wait, queues.Leader, queues.Name = s.PublishTimeout, n.led, others{n}.Name
	queues.StallAfter = s.DeliveryStall
	queues.Deleted = func(id seglog.GroupID) bool {
		v := n.catalog.View()
		return id <= seglog.GroupID(v.LastQueue()) && v.QueueByID(catalog.QueueID(id)) == nil
	}
	if m := n.mesh; m != nil {
		queues.Member = func(node uint64) bool { return n.catalog.View().Node(node) != nil }
		queues.Link = queueLink{m}
		n.commands = m.addCatalog()
		b.Commands, b.Self, b.Barrier = m.forward, m.self, m.Barrier
		b.Fresh, b.Stale, b.Suspect = m.touch.fresh, m.touch.stale, m.isLost
		b.Elsewhere, b.ReplyAt = m.keptElsewhere, m.replyAt
		queues.Reply = func(vhost, name []byte) *queuehost.Handle { return n.broker.ReplyQueue(vhost, name) }
		b.Forces = func() int { return len(m.lineage.now()) }
	} else {
		n.commands = n.groups.NewSimpleGroup(catalogGroup, n.catalog)
		b.Commands = commands{n.commands}
	}
	n.queues = queuehost.New(queues)
	b.Queues = n.queues
	n.broker = broker.New(b)
	n.queues.SetOwner(n.broker)
	n.openMembers(func(cmd []byte, done func(any, error)) { b.Commands.Propose(cmd, true, done) })
	n.ready.Store(n.broker)
	return nil
}

// commands is the catalog's group in the broker's words.
type commands struct{ group *replica.SimpleGroup }

// Propose implements broker.Proposer.
func (c commands) Propose(cmd []byte, waitStable bool, done func(result any, err error)) {
	c.group.Propose(cmd, waitStable, func(result any, err error) {
		if errors.Is(err, replica.ErrOverdue) {
			err = broker.ErrOverdue
		}
		done(result, err)
	})
}

// replay reads the log into the catalog and the queues. A catalog that lost
// something cannot be trusted to know which queues there are, so the start
// ends there; a queue that did is quarantined, and everything else starts.
func (n *Node) replay() error {
	for _, hit := range n.seglog.Quarantined() {
		if hit.Group == catalogGroup {
			return &DamagedCatalogError{DataDir: n.settings.DataDir, Reason: hit.Reason}
		}
		n.log.Error("a group is quarantined", "group", uint64(hit.Group), "reason", hit.Reason)
	}
	if err := n.groups.Replay(n.queues.Host); err != nil {
		return fmt.Errorf("log in %s: %w", path.Join(n.settings.DataDir, logDir), err)
	}
	n.catalog.Policies = n.broker.PoliciesChanged // of what is in the log, queues learn when they begin
	return n.Err()
}

// DamagedCatalogError says that the data of the catalog (virtual hosts, users,
// exchanges, queues, bindings) is damaged, and what can be done.
type DamagedCatalogError struct{ DataDir, Reason string }

// Error tells the reason and the way out.
func (e *DamagedCatalogError) Error() string {
	return fmt.Sprintf("the catalog is damaged: %s\n"+
		"Nothing has been changed. The way out, best first:\n"+
		"  1. put back a copy of %s from a backup, or repair the disk's copy, and start again;\n"+
		"  2. look at what is there:        holdfast dump --data %[2]s\n"+
		"     copy out whole messages with: holdfast dump --data %[2]s --salvage FOLDER\n"+
		"     then start on an empty data folder, declare everything again and publish what was copied out.",
		e.Reason, e.DataDir)
}

// begin makes this start known to the catalog and, the first time, fills it.
func (n *Node) begin(fresh bool) error {
	result, err := n.propose(catalog.NewIncarnation(catalog.NodeIDOf(n.identity.ID)))
	if err != nil {
		return err
	}
	n.incarnation = result.Incarnation
	if err := n.tellLevels(n.propose); err != nil {
		return err
	}
	if !n.catalog.View().Bootstrapped() {
		if !fresh {
			n.log.Info("the first start of this data folder ended before it was filled: filling it now")
		}
		if _, err := n.propose(n.defaults()); err != nil {
			return err
		}
		n.levels.fromNew.Store(true)
	}
	if err := n.raiseAlone(); err != nil {
		return err
	}
	n.broker.Begin(n.incarnation)
	return nil
}

// defaults is the command that creates the default virtual host and user.
func (n *Node) defaults() []byte {
	s := n.settings
	d := catalog.Defaults{
		VHost:     s.DefaultVHost,
		Configure: s.DefaultPermissions.Configure, Write: s.DefaultPermissions.Write, Read: s.DefaultPermissions.Read,
	}
	if s.DefaultUser != "" {
		d.User = catalog.User{
			Name: s.DefaultUser, Hash: auth.HashPassword(s.DefaultPass), Algorithm: auth.Algorithm, Tags: s.DefaultUserTags,
		}
	}
	return catalog.Bootstrap(d)
}

// propose has the catalog carry out a command of the start, which is not
// bounded by anything but the log's own watchdog.
func (n *Node) propose(cmd []byte) (*catalog.Result, error) {
	type answer struct {
		result any
		err    error
	}
	answered := make(chan answer, 1)
	n.commands.Propose(cmd, true, func(result any, err error) { answered <- answer{result, err} })
	select {
	case a := <-answered:
		if a.err != nil {
			return nil, fmt.Errorf("catalog: %w", a.err)
		}
		if r := a.result.(*catalog.Result); r.Err != nil {
			return nil, fmt.Errorf("catalog: %w", r.Err)
		} else {
			return r, nil
		}
	case <-n.failed:
		return nil, n.Err()
	}
}

// logAlarm passes on what the log says of the disk.
func (n *Node) logAlarm(kind seglog.AlarmKind, on bool, why string) {
	switch {
	case kind == seglog.AlarmSpace:
		n.diskAlarm(&n.alarms.log, on, why)
	case on:
		n.log.Warn("alarm of the log", "alarm", kind.String(), "reason", why)
	default:
		n.log.Info("alarm of the log is over", "alarm", kind.String(), "reason", why)
	}
}

// diskAlarms are the reasons for the disk's alarm, by who raised it; "" is none.
type diskAlarms struct {
	mu         sync.Mutex
	log, spill string
}

// diskAlarm notes what one of those who write says of the disk. The broker has
// one alarm for all of them.
func (n *Node) diskAlarm(from *string, on bool, why string) {
	a := &n.alarms
	a.mu.Lock()
	defer a.mu.Unlock()
	if *from = ""; on {
		*from = why
	}
	b := n.ready.Load()
	reason := cmp.Or(a.log, a.spill)
	switch {
	case b != nil:
		n.alarm(b, broker.AlarmDisk, reason != "", cmp.Or(reason, why))
	case on:
		n.log.Warn("the disk has no room", "reason", why)
	}
}

// alarm turns an alarm of the broker on or off. When it goes on, the node hands over what it leads, and as long as it is on
// it leads nothing that another one could: publishers of those queues need not wait for it. It does not block.
func (n *Node) alarm(b *broker.Broker, kind broker.AlarmKind, on bool, why string) {
	was := slices.ContainsFunc(b.Alarms(), func(a broker.Alarm) bool { return a.Kind == kind })
	b.SetAlarm(kind, on, why)
	alarmed := len(b.Alarms()) > 0
	n.groups.SetReluctant(alarmed)
	n.queues.SetAlarmed(n.identity.number(), alarmed)
	if on && !was && n.mesh != nil {
		n.groups.Relieve()
	}
}

// Broker is the broker that the node runs.
func (n *Node) Broker() *broker.Broker { return n.broker }

// Log is the node's segment log.
func (n *Node) Log() *seglog.Log { return n.seglog }

// ErrNotListening is returned for an address that the node does not have.
var ErrNotListening = errors.New("node: no such listener")

// At a stop, waitLimit bounds how long connections get to give back what they
// hold, goodbyeLimit how long clients get after that to answer, and spillLimit
// how long the disk gets for what nobody will need.
const (
	waitLimit    = 5 * time.Second
	goodbyeLimit = time.Second
	spillLimit   = time.Second
)
