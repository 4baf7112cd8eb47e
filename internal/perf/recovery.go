package perf

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

func presetRecovery(o *options) {
	presetAudit(o)
	o.producers, o.consumers, o.messages, o.confirm, o.idle = 1, 1, 300_000, 1000, 15*time.Second
}

func (o *options) recoveryFlags(s *flagSet) {
	o.auditFlags(s)
	s.text("restart", "COMMAND", "shell command that starts the broker again; without one somebody else has to", &o.restart)
}

// comeback bounds how long the broker may take to be there again.
const comeback = 10 * time.Minute

// runRecovery publishes until enough is confirmed, kills the broker in the
// middle of it, waits until it is back, and checks that everything confirmed is
// there. All times count from the kill.
func (e *env) runRecovery(ctx context.Context) (*Report, error) {
	o := e.o
	if len(o.pids) == 0 {
		return nil, usagef("recovery needs --broker-pid: the processes to kill")
	}
	top := o.topology()
	top.queues = o.auditQueues()
	if err := top.declare(ctx, o.declarer); err != nil {
		return nil, err
	}
	r := e.report()
	l := newLedger(o.producers)
	var sending sync.WaitGroup
	for i := range o.producers {
		s := newSender(e, l, i, route{"", top.queues[i%len(top.queues)]}, 0)
		sending.Go(func() { _ = s.run(ctx) }) // it ends with the broker
	}
	m := newMeter(o.pids, o.beside)
	defer m.stop()
	begun := m.read()
	filled := make(chan struct{})
	go func() {
		defer close(filled)
		for ctx.Err() == nil {
			if n, _, _ := l.state(); n >= uint64(o.messages) {
				return
			}
			pause(ctx, time.Millisecond)
		}
	}()
	e.watch(l, filled)
	if err := interrupted(ctx); err != nil {
		return nil, err
	}
	confirmed, _, _ := l.state()
	full := m.read()
	r.figure("fill_rate", float64(confirmed)/full.at.Sub(begun.at).Seconds(), "confirmed messages a second before the kill")
	costs := m.costs(begun, full, confirmed) // whose processes come later is not known
	r.Costs = &costs
	killed := time.Now()
	if err := kill(o.pids); err != nil {
		return nil, err
	}
	sending.Wait()
	e.say("killed after %d confirmed messages", confirmed)
	if o.restart != "" {
		cmd := exec.Command("sh", "-c", o.restart)
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		go func() { _ = cmd.Wait() }()
	}
	if err := e.back(ctx, r, top, killed); err != nil {
		return nil, err
	}
	_, stop := e.receivers(ctx, l, top.queues)
	draining := now()
	e.await(ctx, l)
	stop()
	l.verdict(r)
	if l.firstDelivery != 0 {
		r.figure("first_message_s", float64(l.firstDelivery-(now()-int64(time.Since(killed))))/1e9, "s from the kill to the first message")
		wall := float64(l.lastDelivery-draining) / 1e9
		r.Received = &Rate{l.delivered, round(float64(l.delivered)/wall, 0)}
	}
	r.failed(top.remove(context.WithoutCancel(ctx), o.targets))
	return r, nil
}

// back waits until the broker shakes hands and knows the first queue.
func (e *env) back(ctx context.Context, r *Report, top *topology, killed time.Time) error {
	shaken := false
	for ; time.Since(killed) < comeback; pause(ctx, 2*time.Millisecond) {
		if err := interrupted(ctx); err != nil {
			return err
		}
		c, err := dial(ctx, e.o.target(0), 4<<10)
		if err != nil {
			continue
		}
		if !shaken {
			shaken = true
			r.figure("handshake_s", time.Since(killed).Seconds(), "s from the kill to the first handshake")
		}
		n, err := top.depth(c)
		if err != nil {
			c.nc.Close()
			continue
		}
		_ = c.close()
		r.figure("queue_s", time.Since(killed).Seconds(), "s from the kill to the first answer about a queue")
		r.figure("recovered", float64(n), "messages in the queues then")
		return nil
	}
	return fmt.Errorf("the broker was not back after %v", comeback)
}

// kill ends processes at once and waits until they are gone.
func kill(pids []int) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("killing %d: %w", pid, err)
		}
	}
	for end := time.Now().Add(callTimeout); ; time.Sleep(time.Millisecond) {
		alive := 0
		for _, pid := range pids {
			if s, ok := readStat(pid); ok && s.state != 'Z' && s.state != 'X' {
				alive = pid
			}
		}
		if alive == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("process %d is still there after SIGKILL", alive)
		}
	}
}
