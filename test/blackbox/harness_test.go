package blackbox

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/raw"
	"holdfast/test/rig"
)

const (
	urlEnv    = "HOLDFAST_TEST_URL"
	brokerEnv = "HOLDFAST_TEST_BROKER"
	ctlEnv    = "HOLDFAST_TEST_CTL"
)

// target is the broker all tests but the restart tests share.
var target struct {
	url    string
	rabbit bool
	binary string      // "" when the broker is somebody else's
	own    *rig.Broker // nil when the broker is somebody else's
}

// run keeps names of this run apart from those of another on the same broker.
var run = fmt.Sprintf("%x", time.Now().UnixNano()&0xffffff)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "32") // the tests wait for the broker more than they work
	if *longToo {
		_ = flag.Set("test.parallel", "6") // but those that take very long have several brokers each, and much to write
	}
	os.Exit(withTarget(m))
}

func withTarget(m *testing.M) int {
	if url := os.Getenv(urlEnv); url != "" {
		target.url, target.rabbit = url, os.Getenv(brokerEnv) == "rabbitmq"
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "holdfast-blackbox-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if target.binary, err = rig.Binary(dir); err == nil {
		target.own, err = rig.New(target.binary, dir)
	}
	if err == nil {
		err = target.own.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	target.url = target.own.URL()
	code := m.Run()
	if err := target.own.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code != 0 {
		fmt.Fprintf(os.Stderr, "end of the broker's log:\n%s\n", target.own.Tail())
	}
	return code
}

// pick is the expected value where the two brokers differ; the id stands in the
// table of differences.
func pick[T any](t *testing.T, id string, rabbitmq, holdfast T) T {
	t.Helper()
	for _, d := range Differences {
		if d.ID == id {
			if target.rabbit {
				return rabbitmq
			}
			return holdfast
		}
	}
	t.Fatalf("no difference %q in the table", id)
	return holdfast
}

// ctl runs an administrator's command on the target; the test is left out where
// there is no way to run one.
func ctl(t *testing.T, args ...string) string {
	t.Helper()
	if target.own != nil {
		out, err := target.own.Ctl(args...)
		ok(t, err)
		return out
	}
	line := strings.Fields(os.Getenv(ctlEnv))
	if len(line) == 0 {
		t.Skipf("%s names no command", ctlEnv)
	}
	out, err := exec.Command(line[0], append(line[1:], args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		ok(t, err)
		return v
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

var names atomic.Int64

// name is a name nobody else uses.
func name(t *testing.T) string {
	short := strings.Map(func(r rune) rune {
		if strings.ContainsRune(" /#'\"", r) {
			return '-'
		}
		return r
	}, t.Name())
	return fmt.Sprintf("%s.%s.%d", short, run, names.Add(1))
}

// patient is how clients connect that do not end because the machine stands still for a while: the library's own heartbeat
// lets a connection end after 15 s of silence.
var patient = amqp.Config{Heartbeat: time.Minute, Locale: "en_US"}

// dial is a connection of an ordinary client, closed with the test.
func dial(t *testing.T) *amqp.Connection { return dialURL(t, target.url) }

func dialURL(t *testing.T, url string) *amqp.Connection {
	t.Helper()
	c, err := amqp.DialConfig(url, patient)
	ok(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// open is a channel on a connection of its own.
func open(t *testing.T) *amqp.Channel { t.Helper(); return channel(t, dial(t)) }

func channel(t *testing.T, c *amqp.Connection) *amqp.Channel {
	t.Helper()
	return must(c.Channel())(t)
}

// confirming is a channel in confirm mode.
func confirming(t *testing.T) *amqp.Channel {
	t.Helper()
	ch := open(t)
	ok(t, ch.Confirm(false))
	return ch
}

// queue declares a durable queue that is removed with the test.
func queue(t *testing.T, ch *amqp.Channel) string { t.Helper(); return queueWith(t, ch, nil) }

func queueWith(t *testing.T, ch *amqp.Channel, args amqp.Table) string {
	t.Helper()
	q := must(ch.QueueDeclare(name(t), true, false, false, false, args))(t)
	removeQueue(t, q.Name)
	return q.Name
}

// queueOf is queue of a type.
func queueOf(t *testing.T, ch *amqp.Channel, kind string) string {
	t.Helper()
	return queueWith(t, ch, amqp.Table{"x-queue-type": kind})
}

// removeQueue removes a queue when the test ends.
func removeQueue(t *testing.T, queues ...string) {
	t.Cleanup(func() {
		c, err := amqp.Dial(target.url)
		if err != nil {
			return
		}
		defer c.Close()
		for _, q := range queues {
			if ch, err := c.Channel(); err == nil {
				_, _ = ch.QueueDelete(q, false, false, false)
			}
		}
	})
}

// exchange declares an exchange that is removed with the test.
func exchange(t *testing.T, ch *amqp.Channel, kind string, args amqp.Table) string {
	t.Helper()
	x := name(t)
	ok(t, ch.ExchangeDeclare(x, kind, false, false, false, false, args))
	t.Cleanup(func() {
		c, err := amqp.Dial(target.url)
		if err != nil {
			return
		}
		defer c.Close()
		if ch, err := c.Channel(); err == nil {
			_ = ch.ExchangeDelete(x, false, false)
		}
	})
	return x
}

// send publishes a body; put does the same to a queue by the default exchange.
func send(t *testing.T, ch *amqp.Channel, exchange, key string, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		ok(t, ch.PublishWithContext(context.Background(), exchange, key, false, false,
			amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)}))
	}
}

// put publishes confirmed messages to a queue from a channel of its own, so
// that they are there when it returns.
func put(t *testing.T, queue string, bodies ...string) {
	t.Helper()
	route(t, "", queue, bodies...)
}

// route is put to an exchange.
func route(t *testing.T, exchange, key string, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		publish(t, exchange, key, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)})
	}
}

var publisher struct {
	lock chan struct{}
	ch   *amqp.Channel
}

func init() { publisher.lock = make(chan struct{}, 1) }

// publish sends one message and waits for its confirm, on a channel that all
// tests share; it must not be used for messages that break a channel.
func publish(t *testing.T, exchange, key string, m amqp.Publishing) {
	t.Helper()
	publisher.lock <- struct{}{}
	defer func() { <-publisher.lock }()
	if publisher.ch == nil || publisher.ch.IsClosed() {
		c, err := amqp.DialConfig(target.url, patient)
		ok(t, err)
		publisher.ch = must(c.Channel())(t)
		ok(t, publisher.ch.Confirm(false))
	}
	ctx, cancel := context.WithTimeout(context.Background(), raw.Wait)
	defer cancel()
	d, err := publisher.ch.PublishWithDeferredConfirmWithContext(ctx, exchange, key, false, false, m)
	ok(t, err)
	acked, err := d.WaitContext(ctx)
	ok(t, err)
	if !acked {
		t.Fatalf("publish to exchange %q key %q was nacked", exchange, key)
	}
}

// next is the next delivery within the bound of the tests.
func next(t *testing.T, in <-chan amqp.Delivery) amqp.Delivery {
	t.Helper()
	select {
	case d, open := <-in:
		if !open {
			t.Fatal("the consumer ended")
		}
		return d
	case <-time.After(raw.Wait):
		t.Fatal("no delivery")
	}
	panic("unreachable")
}

// bodies reads n deliveries and gives their bodies.
func bodies(t *testing.T, in <-chan amqp.Delivery, n int) []string {
	t.Helper()
	var out []string
	for range n {
		out = append(out, string(next(t, in).Body))
	}
	return out
}

// settled makes sure that everything sent before on the channel has been dealt
// with: a synchronous method comes back.
func settled(t *testing.T, ch *amqp.Channel) {
	t.Helper()
	ok(t, ch.Qos(0, 0, false))
}

// quiet asserts that nothing more has been delivered once the broker answered
// another method on the channel.
func quiet(t *testing.T, ch *amqp.Channel, in <-chan amqp.Delivery) {
	t.Helper()
	settled(t, ch)
	select {
	case d := <-in:
		t.Fatalf("unexpected delivery %q", d.Body)
	case <-time.After(50 * time.Millisecond):
	}
}

// consume subscribes with manual ack.
func consume(t *testing.T, ch *amqp.Channel, q string) <-chan amqp.Delivery {
	t.Helper()
	return must(ch.Consume(q, "", false, false, false, false, nil))(t)
}

// depth is the number of ready messages by passive declare.
func depth(t *testing.T, ch *amqp.Channel, q string) int {
	t.Helper()
	return must(ch.QueueDeclarePassive(q, true, false, false, false, nil))(t).Messages
}

// eventually waits until a condition holds that the broker reaches without a
// further request.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(raw.Wait); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// get fetches one message, which must be there.
func get(t *testing.T, ch *amqp.Channel, q string, autoAck bool) amqp.Delivery {
	t.Helper()
	d, there, err := ch.Get(q, autoAck)
	ok(t, err)
	if !there {
		t.Fatalf("queue %s is empty", q)
	}
	return d
}

// empty asserts that a queue has no ready message.
func empty(t *testing.T, ch *amqp.Channel, q string) {
	t.Helper()
	d, there, err := ch.Get(q, true)
	ok(t, err)
	if there {
		t.Fatalf("queue %s still has %q", q, d.Body)
	}
}

// words is the constant name that starts the reply text of each code.
var words = map[int]string{
	311: "CONTENT_TOO_LARGE", 312: "NO_ROUTE", 313: "NO_CONSUMERS", 320: "CONNECTION_FORCED",
	402: "INVALID_PATH", 403: "ACCESS_REFUSED", 404: "NOT_FOUND", 405: "RESOURCE_LOCKED", 406: "PRECONDITION_FAILED",
	501: "FRAME_ERROR", 502: "SYNTAX_ERROR", 503: "COMMAND_INVALID", 504: "CHANNEL_ERROR", 505: "UNEXPECTED_FRAME",
	530: "NOT_ALLOWED", 540: "NOT_IMPLEMENTED", 541: "INTERNAL_ERROR",
}

// refused asserts that an operation failed with this code.
func refused(t *testing.T, err error, code int) {
	t.Helper()
	var e *amqp.Error
	if !errors.As(err, &e) {
		t.Fatalf("wanted error %d, got %v", code, err)
	}
	if e.Code != code {
		t.Fatalf("wanted error %d, got %d %s", code, e.Code, e.Reason)
	}
	if w := words[code]; !strings.HasPrefix(e.Reason, w) {
		t.Fatalf("the text of %d does not begin with %s: %q", code, w, e.Reason)
	}
}

// closing watches for the end of a channel; the code is read with refused.
func closing(ch *amqp.Channel) func(t *testing.T) error {
	c := ch.NotifyClose(make(chan *amqp.Error, 1))
	return func(t *testing.T) error {
		t.Helper()
		select {
		case e := <-c:
			if e == nil {
				return errors.New("closed without an error")
			}
			return e
		case <-time.After(raw.Wait):
			return errors.New("the channel stays open")
		}
	}
}

// socket is a raw connection with nothing sent yet.
func socket(t *testing.T) *raw.Conn {
	t.Helper()
	c := must(raw.Dial(target.url))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// frames is a raw connection with channel 1 open.
func frames(t *testing.T) *raw.Conn {
	t.Helper()
	c := socket(t)
	ok(t, c.Handshake("/"))
	ok(t, c.OpenChannel(1))
	return c
}

// connFault and chanFault are what a mistake is expected to close.
type scope int

const (
	connFault scope = iota
	chanFault
)

// Codes that are none.
const (
	anyCode   = -iota // whatever code closes
	syntax            // 501 or 502
	dropped           // the socket is closed without a frame
	unnoticed         // the broker sees no mistake: not tried
)

// faults reads until the broker closes channel 1 or the connection and checks
// scope and code; then it answers and checks that the rest lives on or ends.
func faults(t *testing.T, c *raw.Conn, s scope, code int) {
	t.Helper()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("wanted close %d, got %v", code, err)
		}
		switch {
		case f.Is(raw.ConnectionClose):
			checkClose(t, f, code)
			equal(t, "scope: connection", s, connFault)
			ok(t, c.Send(0, raw.ConnectionCloseOk))
			ok(t, c.Closed())
			return
		case f.Is(raw.ChannelClose):
			checkClose(t, f, code)
			equal(t, "scope: channel", s, chanFault)
			ok(t, c.Send(f.Channel, raw.ChannelCloseOk))
			ok(t, c.OpenChannel(f.Channel))
			return
		}
	}
}

func checkClose(t *testing.T, f raw.Frame, code int) {
	t.Helper()
	a := f.Args()
	got, text := int(a.U16()), a.Str()
	if code == anyCode || code == syntax && (got == 501 || got == 502) {
		return
	}
	if got != code {
		t.Fatalf("closed with %d %s, wanted %d", got, text, code)
	}
	if !strings.HasPrefix(text, words[code]) {
		t.Fatalf("the text of %d does not begin with %s: %q", code, words[code], text)
	}
}
