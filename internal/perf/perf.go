package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"
)

// ErrFault is returned after a report whose verdict is a broken promise.
var ErrFault = errors.New("the broker broke a promise; see the report")

// env is what a scenario runs with.
type env struct {
	o      *options
	out    io.Writer
	broker string
}

// scenario is one thing that can be measured.
type scenario struct {
	name, what string
	preset     func(*options)
	flags      func(*options, *flagSet)
	run        func(*env, context.Context) (*Report, error)
	local      bool // needs no broker
}

func scenarios() []scenario {
	return []scenario{
		{"throughput", "publish and consume, as fast as it goes or at --rate (also without a name)",
			func(*options) {}, (*options).loadFlags, (*env).runLoad, false},
		{"latency", "the same at a fixed rate: 5,000/s where --rate says nothing else",
			func(o *options) { o.rate, o.size = 5000, 100 }, (*options).loadFlags, (*env).runLoad, false},
		{"fanout", "one producer to a fanout exchange with 10 queues and a consumer for each, or as --queue-pattern says",
			presetFanout, (*options).loadFlags, (*env).runFanout, false},
		{"backlog", "fill a queue with --messages, then drain it: memory for each message and both rates",
			presetBacklog, (*options).backlogFlags, (*env).runBacklog, false},
		{"delay", "--messages that wait for years, and --rate messages a second that come due for --time: memory of each, and how late they come",
			presetDelay, (*options).delayFlags, (*env).runDelay, false},
		{"connections", "open --number idle connections with a channel: rate, memory of each, CPU at rest",
			func(o *options) { o.many = []int{1000} }, (*options).manyFlags, (*env).runConnections, false},
		{"queues", "declare --number queues: the same for queues",
			func(o *options) { o.many, o.parallel = []int{1000}, 16 }, (*options).manyQueueFlags, (*env).runQueues, false},
		{"churn", "open and close connections, channels or exclusive queues over and over",
			func(o *options) { o.what, o.parallel, o.time = "connection", 4, 5*time.Second }, (*options).churnFlags, (*env).runChurn, false},
		{"topology", "declare and bind, close a connection with very many exclusive queues, or delete a queue with very many bindings",
			presetUpheaval, (*options).upheavalFlags, (*env).runUpheaval, false},
		{"soak", "a long run at half the highest rate, or at --rate, with figures for each quarter of the time",
			presetSoak, (*options).soakFlags, (*env).runSoak, false},
		{"audit", "numbered messages: nothing confirmed is lost, order holds, what comes twice is marked as redelivered",
			presetAudit, (*options).auditFlags, (*env).runAudit, false},
		{"recovery", "kill the broker with SIGKILL under load; when it is back, the same checks and how long it took",
			presetRecovery, (*options).recoveryFlags, (*env).runRecovery, false},
		{"failover", "a node is killed, stopped or cut off while others serve the clients: how long they notice it, and the same checks",
			presetFailover, (*options).failoverFlags, (*env).runFailover, false},
		{"takeover", "--number queues, and a node is killed: how long until all of them answer again",
			presetTakeover, (*options).takeoverFlags, (*env).runTakeover, false},
		{"echo", "serve as a fake broker that confirms and bounces everything: the floor of this machine",
			func(*options) {}, (*options).echoFlags, (*env).runEcho, true},
		{"disk", "a bare 4 KiB overwrite with fdatasync: the floor of this disk",
			func(o *options) { o.time = 5 * time.Second }, (*options).diskFlags, (*env).runDisk, true},
	}
}

// Main is the command: the arguments after `holdfast perf`. A command line that
// makes no sense is a *UsageError; ErrFault is a run whose checks failed. It
// returns when the run is over or ctx is done.
func Main(ctx context.Context, args []string, out io.Writer) error {
	name := "throughput"
	if len(args) > 0 && len(args[0]) > 0 && args[0][0] != '-' {
		name, args = args[0], args[1:]
	} else if len(args) > 0 && (args[0] == "--help" || args[0] == "-help" || args[0] == "-?") {
		overview(out)
		return nil
	}
	for _, s := range scenarios() {
		if s.name == name {
			return s.main(ctx, args, out)
		}
	}
	return usagef("no scenario is called %q; --help lists them", name)
}

func overview(out io.Writer) {
	fmt.Fprint(out, `Puts load on an AMQP 0-9-1 broker and says how fast it was and what it cost.
The options are named as RabbitMQ's PerfTest has them.

Usage:
  holdfast perf [SCENARIO] [OPTIONS]
  holdfast perf SCENARIO --help

Scenarios:
`)
	for _, s := range scenarios() {
		fmt.Fprintf(out, "  %-12s %s\n", s.name, s.what)
	}
	fmt.Fprintln(out, "\nOptions of throughput:")
	s := scenarios()[0]
	_, set := s.options()
	set.help(out)
}

// options are the scenario's, with the flags that set them.
func (s scenario) options() (*options, *flagSet) {
	o, set := defaults(s.name), &flagSet{}
	s.preset(o)
	s.flags(o, set)
	if s.local {
		set.toggle("json", "print the report as one line of JSON", &o.json)
		set.add("? help", "", "show this", func(string) error { o.help = true; return nil })
	} else {
		o.commonFlags(set)
	}
	return o, set
}

func (s scenario) main(ctx context.Context, args []string, out io.Writer) error {
	o, set := s.options()
	o.args = args
	if err := set.parse(args); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	if o.help {
		fmt.Fprintf(out, "%s: %s\n\n", s.name, s.what)
		set.help(out)
		return nil
	}
	e := &env{o: o, out: out}
	if !s.local {
		c, err := dial(ctx, o.target(0), 4<<10)
		if err != nil {
			return err
		}
		e.broker = c.broker
		if err := c.close(); err != nil {
			return err
		}
	}
	r, err := s.run(e, ctx)
	if err != nil || r == nil {
		return err
	}
	if o.json {
		err = r.json(out)
	} else {
		r.table(out)
	}
	switch {
	case err != nil:
		return err
	case r.Verdict == fault:
		return ErrFault
	case len(r.Errors) > 0:
		return errors.New("the run had errors; see the report")
	}
	return nil
}

// report begins the report of a run.
func (e *env) report() *Report {
	return &Report{
		Scenario: e.o.scenario, ID: e.o.id, Time: time.Now().UTC().Format(time.RFC3339), Broker: e.broker,
		Args: withoutPasswords(e.o.args),
	}
}

var password = regexp.MustCompile(`(//[^:/@]*):[^@]*@`)

// withoutPasswords is the arguments as a report may show them.
func withoutPasswords(args []string) []string {
	shown := make([]string, len(args))
	for i, a := range args {
		shown[i] = password.ReplaceAllString(a, "$1:...@")
	}
	return shown
}

// say prints a line of progress.
func (e *env) say(format string, args ...any) {
	if !e.o.json && !e.o.quiet {
		fmt.Fprintf(e.out, format+"\n", args...)
	}
}

// pause waits, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
