package perf

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

func presetFailover(o *options) {
	presetAudit(o)
	o.producers, o.consumers, o.confirm, o.ackEvery, o.rate, o.idle = 1, 1, 200, 0, 2000, 8*time.Second
	o.queueArgs = []string{"x-queue-type=quorum"}
	o.signal, o.time, o.faultAt, o.faultFor = "KILL", 15*time.Second, 5*time.Second, 5*time.Second
}

// faultFlags say what happens to a node.
func (o *options) faultFlags(s *flagSet) {
	s.pidList("victim-pid", "the node: the processes that get the signal", &o.victims)
	s.text("signal", "SIGNAL", "KILL, TERM, or STOP, which CONT follows after --fault-time (KILL)", &o.signal)
	s.text("fault", "COMMAND", "shell command instead of the signal", &o.strike)
	s.text("mend", "COMMAND", "shell command after --fault-time", &o.mend)
	s.seconds("fault-at", "SECONDS", "when, after the start (5)", &o.faultAt)
	s.seconds("fault-time", "SECONDS", "how long it lasts, where it ends (5)", &o.faultFor)
}

func (o *options) failoverFlags(s *flagSet) {
	o.checkedFlags(s)
	o.faultFlags(s)
	s.seconds("z time", "SECONDS", "how long to publish (15)", &o.time)
	s.seconds("ct confirm-timeout", "SECONDS", "how long to wait for the last confirms (30)", &o.confirmBy)
}

var signals = map[string]syscall.Signal{"KILL": syscall.SIGKILL, "TERM": syscall.SIGTERM, "STOP": syscall.SIGSTOP}

// wound is the fault. mend, which may be nil, ends it.
func (o *options) wound() (strike, mend func() error, err error) {
	shell := func(command string) func() error {
		if command == "" {
			return nil
		}
		return func() error {
			if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", command, err, out)
			}
			return nil
		}
	}
	send := func(signal syscall.Signal) func() error {
		return func() error {
			for _, pid := range o.victims {
				if err := syscall.Kill(pid, signal); err != nil {
					return fmt.Errorf("signal to %d: %w", pid, err)
				}
			}
			return nil
		}
	}
	mend = shell(o.mend)
	if o.strike != "" {
		return shell(o.strike), mend, nil
	}
	signal, known := signals[o.signal]
	switch {
	case !known:
		return nil, nil, usagef("--signal %s: there are KILL, TERM and STOP", o.signal)
	case len(o.victims) == 0:
		return nil, nil, usagef("--victim-pid or --fault has to say what happens to which node")
	case signal == syscall.SIGSTOP && mend == nil:
		mend = send(syscall.SIGCONT)
	}
	return send(signal), mend, nil
}

// survivors are the processes of the broker that the signal does not hit.
func (o *options) survivors() []int {
	return slices.DeleteFunc(slices.Clone(o.pids), func(pid int) bool { return slices.Contains(o.victims, pid) })
}

// errUnconfirmed ends a run whose last publishes get no answer.
var errUnconfirmed = errors.New("publishes were not answered in time")

// runFailover publishes and consumes at a fixed rate while something happens to
// a node, says for how long no confirm and no delivery came, and checks every
// message. Clients that should not be hit connect to other nodes: --uri names
// those, --declare-uri the one that is hit.
func (e *env) runFailover(ctx context.Context) (*Report, error) {
	o := e.o
	strike, mend, err := o.wound()
	if err != nil {
		return nil, err
	}
	if o.faultAt >= o.time || mend != nil && o.faultAt+o.faultFor >= o.time {
		return nil, usagef("--time is over before --fault-at and --fault-time are")
	}
	top := o.topology()
	top.queues = o.auditQueues()
	if err := o.prepare(ctx, top); err != nil {
		return nil, err
	}
	m := newMeter(o.pids, o.beside)
	defer m.stop()
	rest := newMeter(o.survivors(), o.beside)
	defer rest.stop()
	r := e.report()
	l := newLedger(o.producers)
	consumers, stop := e.receivers(ctx, l, top.queues)
	for _, v := range consumers {
		<-v.first
	}
	a := m.read()
	p := e.publishers(ctx, l, top.queues)
	start := time.Now()
	at := func(d time.Duration) { pause(ctx, time.Until(start.Add(d))) }

	at(o.faultAt)
	before, _, delivered := l.state()
	b, c := m.read(), rest.read()
	confirmGap, deliveryGap := l.mark()
	struck := time.Now()
	if err := strike(); err != nil {
		r.failed(err)
	}
	e.say("struck after %d confirmed messages", before)
	if mend != nil {
		at(o.faultAt + o.faultFor)
		r.failed(mend())
	}
	at(o.time - min(o.time-o.faultAt, o.time/5))
	late, _, _ := l.state()
	lateAt := time.Now()
	at(o.time)
	confirmed, _, _ := l.state()
	rate := float64(confirmed-late) / time.Since(lateAt).Seconds()
	l.conclude(now())
	r.failed(p.finish(o.confirmBy))
	d := rest.read()
	e.await(ctx, l)
	stop()
	if err := interrupted(ctx); err != nil {
		return nil, err
	}

	afterConfirm, afterDelivery := l.mark()
	l.verdict(r)
	r.Seconds = round(time.Since(start).Seconds(), 2)
	r.figure("confirm_stall_ms", float64(afterConfirm)/1e6, "ms, the longest time without a confirm since the fault")
	r.figure("confirm_stall_before_ms", float64(confirmGap)/1e6, "ms, the same before it")
	r.figure("delivery_gap_ms", float64(afterDelivery)/1e6, "ms, the longest time without a delivery since the fault")
	r.figure("delivery_gap_before_ms", float64(deliveryGap)/1e6, "ms, the same before it")
	nacks, lost := p.failures()
	r.figure("nacks", float64(nacks), "publishes that the broker refused")
	r.figure("producers_lost", float64(lost), "connections of producers that were lost")
	lost = 0
	for _, v := range consumers {
		v.mu.Lock()
		lost += v.lost
		v.mu.Unlock()
	}
	r.figure("consumers_lost", float64(lost), "consumers that were cancelled or lost their connection")
	r.figure("publishes_failed", float64(nacks)+r.Figures.value("published_again"), "publishes that were refused, or lost with their connection")
	r.figure("confirm_rate_before", float64(before)/struck.Sub(start).Seconds(), "confirmed messages a second before the fault")
	r.figure("confirm_rate_end", rate, "the same at the end")
	if len(o.pids) > 0 {
		costs := rest.costs(c, d, 0)
		r.figure("other_cores_after", costs.Broker.OtherCores, "cores that other work took after the fault; a stopping node counts here")
	}
	costs := m.costs(a, b, delivered)
	r.Costs = &costs
	r.failed(o.cleanUp(ctx, top))
	return r, nil
}

// value is the figure of a name, 0 if there is none.
func (f Figures) value(name string) float64 {
	for _, x := range f {
		if x.Name == name {
			return x.Value
		}
	}
	return 0
}

// publishers are the senders of a run that ends by time.
type publishers struct {
	all     []*sender
	sending sync.WaitGroup
	unhook  func() bool

	mu  sync.Mutex
	err error
}

// publishers starts the senders; finish ends them.
func (e *env) publishers(ctx context.Context, l *ledger, queues []string) *publishers {
	p := &publishers{}
	ctx, cancel := context.WithCancel(ctx)
	for i := range e.o.producers {
		s := newSender(e, l, i, route{"", queues[i%len(queues)]}, 0)
		s.reconnect = true
		p.all = append(p.all, s)
		p.sending.Go(func() {
			if err := s.run(ctx); err != nil {
				p.mu.Lock()
				p.err = err
				p.mu.Unlock()
			}
		})
	}
	stop := context.AfterFunc(ctx, func() { p.stop(errUnconfirmed) })
	p.unhook = func() bool { defer cancel(); return stop() }
	return p
}

func (p *publishers) stop(err error) {
	for _, s := range p.all {
		s.stop(err, true)
	}
}

// finish lets the senders wait for their last confirms, at most so long.
func (p *publishers) finish(most time.Duration) error {
	p.stop(nil)
	done := make(chan struct{})
	go func() { p.sending.Wait(); close(done) }()
	select {
	case <-done:
		p.unhook()
	case <-time.After(most):
		p.unhook()
		p.stop(errUnconfirmed)
		<-done
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// failures are the publishes refused and the connections lost so far.
func (p *publishers) failures() (nacks uint64, lost int) {
	for _, s := range p.all {
		s.mu.Lock()
		nacks += s.nacks
		lost += s.lost
		s.mu.Unlock()
	}
	return nacks, lost
}
