package perf

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/wire"
)

// options are what the command line says. Which of them a scenario knows, its
// flags decide.
type options struct {
	scenario string
	args     []string // as they were given
	help     bool

	uris     []string
	targets  []target
	declare  []string // URIs of where queues are declared
	declarer []target // the same; all targets where none is named
	insecure bool
	frameMax int

	id       string
	json     bool
	quiet    bool
	interval time.Duration
	pids     []int
	beside   []int

	producers, consumers int
	queue                []string
	pattern              string
	from, to             int
	queueArgs            []string
	autoDelete           bool
	predeclared          bool
	keep                 bool
	exchange, kind, key  string

	size       int
	flags      []string
	properties []string
	confirm    int
	confirmBy  time.Duration
	rate       float64
	batch      int
	prefetch   int
	ackEvery   int
	autoAck    bool
	slow       float64 // consumer rate

	time, warmup time.Duration
	sends        int // per producer
	receives     int // per consumer
	disk         string
	metrics      string // address of the broker's metrics page
	folder       string // of the broker, whose files are counted
	share        float64
	probe        time.Duration

	many     []int // connections or queues to count at
	parallel int
	settle   time.Duration
	what     string // of churn
	messages int    // of audit, recovery
	fill     []int  // of backlog
	drops    int
	idle     time.Duration
	restart  string

	victims  []int // of failover
	signal   string
	strike   string // command instead of a signal
	mend     string
	faultAt  time.Duration
	faultFor time.Duration

	listen string
	fault  string
}

// defaults are PerfTest's where it has the option.
func defaults(scenario string) *options {
	return &options{
		scenario: scenario, uris: []string{"amqp://localhost"}, interval: time.Second,
		producers: 1, consumers: 1, from: -1, to: -1, kind: "direct", size: stampSize, confirm: -1,
		confirmBy: 30 * time.Second, batch: 256, parallel: 8, settle: 3 * time.Second, idle: 5 * time.Second,
		listen: "127.0.0.1:5672",
	}
}

// pidList takes pids, separated by commas or repeated.
func (s *flagSet) pidList(names, help string, to *[]int) {
	s.add(names, "PID,...", help, func(v string) error {
		for part := range strings.SplitSeq(v, ",") {
			n, err := strconv.Atoi(part)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is not a pid", part)
			}
			*to = append(*to, n)
		}
		return nil
	})
}

// commonFlags are of every scenario that speaks to a broker.
func (o *options) commonFlags(s *flagSet) {
	s.list("h uri H uris", "URI,...", "broker, amqp://USER:PASSWORD@HOST:PORT/VHOST or HOST:PORT, guest for a user or password that is missing; producers and then consumers go round several (amqp://localhost)", &o.uris)
	s.list("declare-uri", "URI,...", "brokers on which queues are declared, in turn (as --uri)", &o.declare)
	s.toggle("insecure", "with amqps, accept any certificate", &o.insecure)
	s.count("M framemax", "BYTES", "largest frame to ask for (0, what the broker offers)", &o.frameMax, 0)
	s.text("d id", "NAME", "name of the run, in reports and names of queues (generated)", &o.id)
	s.toggle("json", "print the report as one line of JSON and nothing else", &o.json)
	s.toggle("quiet", "no progress lines", &o.quiet)
	s.seconds("i interval", "SECONDS", "time between progress lines (1)", &o.interval)
	s.pidList("broker-pid", "the broker's processes, for its CPU time, memory and written bytes; descendants are included", &o.pids)
	s.pidList("beside-pid", "other load generators of this run, which do not count as other work", &o.beside)
	s.add("? help", "", "show this", func(string) error { o.help = true; return nil })
}

// queueFlags say where messages go.
func (o *options) queueFlags(s *flagSet) {
	s.list("u queue", "NAME,...", "queues (one, named after the run)", &o.queue)
	s.text("qp queue-pattern", "PATTERN", "queues in sequence, such as perf-%d", &o.pattern)
	s.count("qpf queue-pattern-from", "N", "first number of the pattern", &o.from, 0)
	s.count("qpt queue-pattern-to", "N", "last number of the pattern", &o.to, 0)
	s.list("qa queue-args", "KEY=VALUE,...", "arguments of the queues", &o.queueArgs)
	s.truth("ad auto-delete", "queues that go with their last consumer (false)", &o.autoDelete)
	s.toggle("p predeclared", "the queues and the exchange exist: declare and delete nothing", &o.predeclared)
	s.toggle("keep", "leave queues and exchange behind", &o.keep)
	s.list("f flag", "FLAG,...", "persistent (durable queues, persistent messages) and mandatory", &o.flags)
	s.list("mp message-properties", "KEY=VALUE,...", "properties; what is none becomes a header", &o.properties)
	s.count("s size", "BYTES", "size of a body, 16 or more (16)", &o.size, 0)
}

// loadFlags are of scenarios that publish and consume.
func (o *options) loadFlags(s *flagSet) {
	s.count("x producers", "N", "producers, each with a connection (1)", &o.producers, 0)
	s.count("y consumers", "N", "consumers, each with a connection (1)", &o.consumers, 0)
	o.queueFlags(s)
	s.text("e exchange", "NAME", "exchange to declare and publish to (the default exchange)", &o.exchange)
	s.text("t type", "TYPE", "its type (direct)", &o.kind)
	s.text("k routing-key", "KEY", "routing key, with -e (the queue's name)", &o.key)
	s.number("r rate", "RATE", "messages a second of each producer (unlimited)", &o.rate)
	s.number("R consumer-rate", "RATE", "messages a second of each consumer (unlimited)", &o.slow)
	s.count("c confirm", "N", "most unconfirmed messages of a producer (no confirms)", &o.confirm, -1)
	s.seconds("ct confirm-timeout", "SECONDS", "how long to wait for the last confirms (30)", &o.confirmBy)
	s.count("batch", "N", "most messages in one write (256, and 128 KiB)", &o.batch, 1)
	o.consumeFlags(s)
	s.seconds("z time", "SECONDS", "how long to run (until interrupted)", &o.time)
	s.seconds("warmup", "SECONDS", "time before that which is not measured (0)", &o.warmup)
	s.count("C pmessages", "N", "messages of each producer (no limit)", &o.sends, 0)
	s.count("D cmessages", "N", "messages of each consumer (no limit)", &o.receives, 0)
	s.text("disk", "FOLDER", "measure a bare 4 KiB overwrite with fdatasync there, before and after the run", &o.disk)
	o.metricsFlag(s)
}

// metricsFlag is of scenarios that say how many messages share a sync.
func (o *options) metricsFlag(s *flagSet) {
	s.text("metrics", "URL", "metrics page of a Holdfast node, for the messages that share a sync of the disk", &o.metrics)
}

// consumeFlags say how messages are received.
func (o *options) consumeFlags(s *flagSet) {
	s.toggle("a autoack", "consume without acknowledgements", &o.autoAck)
	s.count("A multi-ack-every", "N", "acknowledge every N messages with one frame (each by itself)", &o.ackEvery, 0)
	s.count("q qos", "N", "prefetch (0, unlimited)", &o.prefetch, 0)
}

// check completes the options and finds what cannot be.
func (o *options) check() error {
	var err error
	if o.targets, err = o.parseTargets(o.uris); err != nil {
		return usagef("--uri: %v", err)
	}
	if o.declarer, err = o.parseTargets(o.declare); err != nil {
		return usagef("--declare-uri: %v", err)
	}
	if len(o.declarer) == 0 {
		o.declarer = o.targets
	}
	if o.frameMax != 0 && o.frameMax < wire.MinFrameMax {
		return usagef("--framemax must be %d or more", wire.MinFrameMax)
	}
	if o.id == "" {
		o.id = "perf-" + strconv.FormatInt(time.Now().UnixMilli()%1e10, 36) + "-" + strconv.Itoa(os.Getpid())
	}
	o.size = max(o.size, stampSize)
	if o.pattern == "" != (o.from < 0) || (o.from < 0) != (o.to < 0) {
		return usagef("--queue-pattern, --queue-pattern-from and --queue-pattern-to go together")
	}
	if o.pattern != "" && (strings.Count(o.pattern, "%") != 1 || !strings.Contains(fmt.Sprintf(o.pattern, 7), "7")) {
		return usagef("--queue-pattern needs one %%d: %s", o.pattern)
	}
	if o.to < o.from {
		return usagef("--queue-pattern-to lies below --queue-pattern-from")
	}
	if o.prefetch > 0 && o.ackEvery > o.prefetch {
		return usagef("--multi-ack-every %d cannot be reached with --qos %d", o.ackEvery, o.prefetch)
	}
	if o.prefetch > 65535 {
		return usagef("--qos must be 65535 or less")
	}
	for _, f := range o.flags {
		if f != "persistent" && f != "mandatory" {
			return usagef("--flag %s: there are persistent and mandatory", f)
		}
	}
	if o.interval <= 0 {
		return usagef("--interval must be more than 0")
	}
	_, err = parseTable(o.queueArgs)
	if err == nil {
		_, err = o.propertySet()
	}
	return err
}

func (o *options) flag(name string) bool {
	for _, f := range o.flags {
		if f == name {
			return true
		}
	}
	return false
}

// parseTargets reads a list of URIs.
func (o *options) parseTargets(uris []string) (all []target, err error) {
	for _, u := range uris {
		t, err := parseTarget(strings.TrimSpace(u))
		if err != nil {
			return nil, err
		}
		t.insecure, t.frameMax = o.insecure, uint32(o.frameMax)
		all = append(all, t)
	}
	return all, nil
}

// target is the broker for the i-th connection: the producers' come first, then the consumers'.
func (o *options) target(i int) target { return o.targets[i%len(o.targets)] }

// queues are the names of the run's queues.
func (o *options) queues() []string {
	switch {
	case o.pattern != "":
		var all []string
		for i := o.from; i <= o.to; i++ {
			all = append(all, fmt.Sprintf(o.pattern, i))
		}
		return all
	case len(o.queue) > 0:
		return o.queue
	}
	return []string{o.id}
}

// topology is what the run declares.
func (o *options) topology() *topology {
	args, _ := parseTable(o.queueArgs)
	return &topology{
		queues: o.queues(), exchange: o.exchange, kind: o.kind, key: o.key,
		durable: o.flag("persistent"), auto: o.autoDelete, args: args,
	}
}

// message is what the producers send, but for the frame size.
func (o *options) message() message {
	set, _ := o.propertySet()
	return message{properties: wire.NewProperties(set), mandatory: o.flag("mandatory"), size: o.size}
}

// propertySet reads --message-properties.
func (o *options) propertySet() (wire.PropertySet, error) {
	set := wire.PropertySet{DeliveryMode: 1}
	if o.flag("persistent") {
		set.DeliveryMode = 2
	}
	headers := wire.Table(nil)
	for _, p := range o.properties {
		key, value, ok := strings.Cut(p, "=")
		if !ok {
			return set, usagef("--message-properties: %q is not KEY=VALUE", p)
		}
		switch key {
		case "contentType":
			set.ContentType = value
		case "contentEncoding":
			set.ContentEncoding = value
		case "priority":
			n, err := strconv.ParseUint(value, 10, 8)
			if err != nil {
				return set, usagef("--message-properties: priority %q", value)
			}
			priority := uint8(n)
			set.Priority = &priority
		case "correlationId":
			set.CorrelationID = value
		case "replyTo":
			set.ReplyTo = value
		case "expiration":
			set.Expiration = value
		case "messageId":
			set.MessageID = value
		case "type":
			set.Type = value
		case "userId":
			set.UserID = value
		case "appId":
			set.AppID = value
		default:
			headers = headers.Append(key, parseValue(value))
		}
	}
	set.Headers = headers
	return set, nil
}

// parseTable reads KEY=VALUE pairs.
func parseTable(pairs []string) (wire.Table, error) {
	var t wire.Table
	for _, p := range pairs {
		key, value, ok := strings.Cut(p, "=")
		if !ok || key == "" || len(key) > 255 {
			return nil, usagef("%q is not KEY=VALUE", p)
		}
		t = t.Append(key, parseValue(value))
	}
	return t, nil
}

// parseValue takes whole numbers and booleans for what they are.
func parseValue(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if text == "true" || text == "false" {
		return text == "true"
	}
	return text
}
