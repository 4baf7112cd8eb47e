package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"holdfast/internal/clock"
)

// callLimit bounds a call of the forming.
const callLimit = 3 * time.Second

// admitLimit bounds how long a node that asks to join waits for the catalog.
const admitLimit = 10 * time.Second

// DriverOptions are what a Former needs of the world.
type DriverOptions struct {
	Options
	// Call sends a request to an address; ErrSelf if this node itself is there.
	Call func(ctx context.Context, addr string, msg []byte) ([]byte, error)
	// Save writes the state so that it survives a crash.
	Save func(State) error
	// Admit adds a node to the catalog of the cluster that this node is in. The text of its error is told to that node.
	Admit func(ctx context.Context, n Node) error
	// Resolve finds out what the list stands for at the moment; nil if it is always the same. It may take some seconds.
	Resolve func(ctx context.Context) []string
	// Waits, if not nil, is told why the node is in no cluster yet, each time that changes.
	Waits  func(why string)
	Clock  clock.Clock
	Logger *slog.Logger
}

// resolveEvery is how often Resolve is called.
const resolveEvery = 2 * time.Second

// Driver runs a Former: one goroutine a call, one for the caller of Run.
type Driver struct {
	o     DriverOptions
	mu    sync.Mutex
	f     *Former
	err   error         // the state could not be saved
	told  string        // the problem that was logged last
	over  chan struct{} // closed when the node is in a cluster, or err is set
	calls sync.WaitGroup
}

// NewDriver returns the driver of a node that has not begun, or was stopped anywhere. Serve may be called at once.
func NewDriver(o DriverOptions) *Driver {
	d := &Driver{o: o, f: New(o.Options), over: make(chan struct{})}
	if d.f.Done() {
		close(d.over)
	}
	return d
}

// Run returns when the node is in a cluster, the state saved, or when ctx ends. Wait must be called afterwards.
func (d *Driver) Run(ctx context.Context) (State, error) {
	ticker := d.o.Clock.NewTicker(TickEvery)
	defer ticker.Stop()
	if d.o.Resolve != nil {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		d.calls.Go(func() { d.resolve(ctx) })
	}
	for {
		select {
		case <-d.over:
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.f.State(), d.err
		case <-ctx.Done():
			return State{}, context.Cause(ctx)
		case <-ticker.C():
			d.step(ctx, func(now int64) Output { return d.f.Tick(now) })
		}
	}
}

// resolve follows what the list stands for.
func (d *Driver) resolve(ctx context.Context) {
	for {
		expired, done := clock.After(d.o.Clock, resolveEvery)
		select {
		case <-expired:
		case <-ctx.Done():
			done()
			return
		case <-d.over:
			done()
			return
		}
		if list := d.o.Resolve(ctx); ctx.Err() == nil {
			d.step(ctx, func(now int64) Output { return d.f.Relist(now, list) })
		}
	}
}

// Wait returns when no call is under way: they end by themselves in seconds, or with the context given to Run.
func (d *Driver) Wait() { d.calls.Wait() }

// Serve answers another node's call; nil if nothing can be said.
func (d *Driver) Serve(ctx context.Context, msg []byte) []byte {
	out := d.step(ctx, func(now int64) Output { return d.f.Serve(now, msg) })
	if out.Admit == nil {
		return out.Answer
	}
	ctx, cancel := context.WithTimeout(ctx, admitLimit)
	defer cancel()
	err := d.o.Admit(ctx, *out.Admit)
	if err != nil {
		d.o.Logger.Warn("a node asked to join and was refused", "node", out.Admit.Name, "address", out.Admit.Addr, "reason", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.f.Admitted(err)
}

// step runs a step and does what it wants done.
func (d *Driver) step(ctx context.Context, do func(now int64) Output) Output {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return Output{}
	}
	out := do(d.o.Clock.Mono())
	if out.Save {
		if d.err = d.o.Save(d.f.State()); d.err != nil {
			d.end()
			return Output{}
		}
	}
	for _, c := range out.Calls {
		d.calls.Go(func() { d.call(ctx, c) })
	}
	if d.f.Done() {
		d.end()
	} else if problem := d.f.Problem(); problem != d.told {
		if d.told = problem; problem != "" {
			d.o.Logger.Info("not in a cluster yet", "reason", problem)
			if d.o.Waits != nil {
				d.o.Waits(problem)
			}
		}
	}
	return out
}

func (d *Driver) end() {
	select {
	case <-d.over:
	default:
		close(d.over)
	}
}

func (d *Driver) call(ctx context.Context, c Call) {
	limited, cancel := context.WithTimeoutCause(ctx, callLimit, errNoAnswer)
	defer cancel()
	answer, err := d.o.Call(limited, c.To, c.Msg)
	if err != nil && ctx.Err() != nil {
		return // the end of Run
	}
	d.step(ctx, func(now int64) Output { return d.f.Answered(now, c.Tag, answer, err) })
}

var errNoAnswer = errors.New("no answer")
