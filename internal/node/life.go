package node

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/mgmt"
)

// Life is a process that serves a data folder: it holds the folder and its local socket from beginning to end, and runs a
// node in it, which an operator may stop, reset and start again, as with rabbitmqctl stop_app, reset and start_app.
type Life struct {
	o     Options
	lock  io.Closer
	door  *mgmt.Door
	ready func(*Node)
	turn  chan struct{} // has one place: taken by whoever changes anything
	fatal chan struct{} // closed when the process must end
	fails sync.Once     // closes fatal
	once  sync.Once     // closes ended
	ended chan struct{} // closed when it is about to end

	mu     sync.Mutex
	node   *Node // nil: none runs
	state  string
	reason string
	cancel context.CancelCauseFunc // of the start under way
	empty  bool                    // nothing that anybody has made is in the folder
	force  func(error)             // the next start goes on alone, and tells this what came of it; nil: it waits for others
	err    error                   // why the process must end
}

// The states of a process.
const (
	lifeStarting = "starting"
	lifeRunning  = "running"
	lifeStopping = "stopping"
	lifeStopped  = "stopped"
)

var (
	errStopAsked = errors.New("it was asked to stop")
	errLifeEnds  = errors.New("the process is stopping")
)

// Begin takes the data folder and starts its node; ready is called for each node that has come up, this first one and
// later ones. A node that the cluster has removed does not come up, but the process stays, so that it can be reset; so it
// does when stop_app ends the start. Any other failure is returned, with all given back.
func Begin(o Options, ready func(*Node)) (*Life, error) {
	if err := before(&o); err != nil {
		return nil, err
	}
	lock, err := lockData(o.FS, o.Settings.DataDir)
	if err != nil {
		return nil, err
	}
	l := &Life{
		o: o, lock: lock, ready: ready, turn: make(chan struct{}, 1), fatal: make(chan struct{}), ended: make(chan struct{}),
		state: lifeStarting,
	}
	l.o.Context = cmp.Or(o.Context, context.Background())
	if l.door, err = mgmt.OpenDoor(o.Settings, l, o.Logger.With("room", "mgmt")); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	l.o.Door = l.door
	l.turn <- struct{}{}
	err = l.run()
	<-l.turn
	if err != nil && !errors.Is(err, ErrRemoved) && !errors.Is(err, errStopAsked) {
		return nil, errors.Join(err, l.door.Close(), lock.Close())
	}
	return l, nil
}

// Done is closed when the process must end by itself: the disk has failed. Err says why.
func (l *Life) Done() <-chan struct{} { return l.fatal }

// Err is why the process must end.
func (l *Life) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// End stops the node and gives the folder back.
func (l *Life) End() error {
	l.once.Do(func() { close(l.ended) })
	l.stopStarting(errLifeEnds)
	l.turn <- struct{}{} // for good
	err := l.halt("the process is stopping")
	return errors.Join(err, l.door.Close(), l.lock.Close())
}

func (l *Life) set(state, reason string, n *Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state, l.reason, l.node = state, reason, n
}

// running is the node that runs, nil if none does.
func (l *Life) running() *Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.node
}

// run starts the node. The turn is the caller's.
func (l *Life) run() error {
	ctx, cancel := context.WithCancelCause(l.o.Context)
	defer cancel(nil)
	l.mu.Lock()
	l.state, l.reason, l.cancel = lifeStarting, "", cancel
	l.mu.Unlock()
	o := l.o
	o.Context, o.Waits, o.Force = ctx, l.waits, l.takeForce()
	n, err := Start(o)
	l.mu.Lock()
	l.cancel = nil
	l.mu.Unlock()
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, ErrRemoved) {
			err = cause
		}
		l.set(lifeStopped, err.Error(), nil)
		if errors.Is(err, ErrRemoved) {
			l.o.Logger.Error("the node does not start", "reason", err)
		}
		return err
	}
	l.set(lifeRunning, "", n)
	if l.ready != nil {
		l.ready(n)
	}
	go l.watch(n)
	return nil
}

// waits takes note of what a start is waiting for.
func (l *Life) waits(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == lifeStarting {
		l.reason = why
	}
}

// watch waits for what ends a node from inside.
func (l *Life) watch(n *Node) {
	select {
	case <-n.Done():
		l.fail(n.Err())
	case <-n.Removed():
		select {
		case l.turn <- struct{}{}:
			if l.running() == n {
				if err := l.halt(ErrRemoved.Error()); err != nil {
					l.o.Logger.Error("the node stopped with an error", "error", err)
				}
			}
			<-l.turn
		case <-n.stopping:
		case <-l.ended:
		}
	case <-n.stopping:
	}
}

// fail says that the process must end. A second node may have been started in it before whoever runs it has noticed, and
// fail as well: the first reason stays.
func (l *Life) fail(why error) {
	l.fails.Do(func() {
		l.mu.Lock()
		l.err = why
		l.mu.Unlock()
		close(l.fatal)
	})
}

// halt stops the node, if one runs. The turn is the caller's.
func (l *Life) halt(why string) error {
	n := l.running()
	if n == nil {
		return nil
	}
	l.set(lifeStopping, why, n)
	empty := n.holds() == ""
	err := n.Stop()
	l.set(lifeStopped, why, nil)
	l.mu.Lock()
	l.empty = empty
	l.mu.Unlock()
	return err
}

// stopStarting ends a start under way.
func (l *Life) stopStarting(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel != nil {
		l.cancel(why)
	}
}

// take takes the turn.
func (l *Life) take(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return refuse(broker.Unavailable, "the node is %s; try again", l.State().State)
	case <-l.ended:
		return refuse(broker.Unavailable, "%v", errLifeEnds)
	}
}

// State implements mgmt.App.
func (l *Life) State() mgmt.AppState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return mgmt.AppState{Node: l.name(), State: l.state, Reason: l.reason}
}

// name is what the node is called; mu is held.
func (l *Life) name() string {
	if l.node != nil {
		return l.node.name()
	}
	if name := l.o.Settings.NodeName; name != "" {
		return name
	}
	if id, err := readIdentity(l.o.FS, l.o.Settings.DataDir); err == nil {
		return id.ID
	}
	return "unknown"
}

// Stop implements mgmt.App.
func (l *Life) Stop(ctx context.Context) error {
	l.stopStarting(errStopAsked)
	if err := l.take(ctx); err != nil {
		return err
	}
	defer func() { <-l.turn }()
	l.o.Logger.Info("stopping the node: the operator has asked")
	if err := l.halt(""); err != nil {
		return refuse(broker.Unavailable, "the node stopped with an error: %v", err)
	}
	return nil
}

// Start implements mgmt.App. A start that takes longer than the caller waits goes on.
func (l *Life) Start(ctx context.Context) error {
	if err := l.take(ctx); err != nil {
		return err
	}
	return l.goOn(ctx)
}

// goOn starts the node, if none runs, and gives the turn back when that is over.
func (l *Life) goOn(ctx context.Context) error {
	if l.running() != nil {
		<-l.turn
		return nil
	}
	started := make(chan error, 1)
	go func() {
		err := l.run()
		<-l.turn
		started <- err
	}()
	select {
	case err := <-started:
		if err != nil {
			return refuse(broker.Unavailable, "the node does not start: %v", err)
		}
		return nil
	case <-ctx.Done():
		return refuse(broker.Unavailable, "the node is still starting; its log says what it waits for")
	}
}

// Forget implements mgmt.App.
func (l *Life) Forget(ctx context.Context, name string, offline bool) error {
	if offline {
		return l.forgetOffline(ctx, name)
	}
	n := l.running()
	if n == nil {
		return &mgmt.AppError{Text: "this command requires the application to be running, to have a majority agree. Start it with 'ctl start_app', or run this on another node."}
	}
	return n.Forget(ctx, name)
}

// Reset implements mgmt.App.
func (l *Life) Reset(ctx context.Context, force bool) error {
	l.stopStarting(errStopAsked)
	if l.running() != nil {
		return &mgmt.AppError{Running: true, Text: "this command requires the application to be stopped. Stop it with 'ctl stop_app'."}
	}
	if err := l.take(ctx); err != nil {
		return err
	}
	defer func() { <-l.turn }()
	if l.running() != nil {
		return &mgmt.AppError{Running: true, Text: "this command requires the application to be stopped. Stop it with 'ctl stop_app'."}
	}
	id, err := l.settled()
	if err == nil && !force {
		err = l.depart(ctx, &id)
	}
	if err != nil {
		return refuse(broker.Unavailable, "%v", err)
	}
	if err := resetFolder(l.o.FS, l.o.Settings.DataDir, newIdentity()); err != nil {
		return refuse(broker.Unavailable, "%v", err)
	}
	l.mu.Lock()
	l.empty, l.reason = true, "it was reset"
	l.mu.Unlock()
	l.o.Logger.Warn("the data folder was emptied: the operator has asked", "force", force, "data", l.o.Settings.DataDir)
	return nil
}

// resetWait bounds a reset's and a join's calls to other nodes, all of them together.
const resetWait = 45 * time.Second
