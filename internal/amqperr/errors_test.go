package amqperr

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/datadriven"
)

// all calls every constructor once, by name.
var all = map[string]*Error{
	"LoginRefused":         LoginRefused("PLAIN"),
	"LoginRefusedReason":   LoginRefusedReason("PLAIN", "user 'guest' can only connect via localhost"),
	"UnknownMechanism":     UnknownMechanism("FOO"),
	"MalformedLogin":       MalformedLogin("PLAIN", "no NUL"),
	"VHostNotFound":        VHostNotFound("shop"),
	"VHostRefused":         VHostRefused("shop", "ann"),
	"PermissionRefused":    PermissionRefused("configure", Queue, "/", "q", "ann"),
	"UserIDMismatch":       UserIDMismatch("bob", "ann"),
	"NoQueue":              NoQueue("/", "q"),
	"NoExchange":           NoExchange("/", "x"),
	"NoLastQueue":          NoLastQueue(),
	"QueueUnavailable":     QueueUnavailable("/", "q", "its log is damaged"),
	"QueueLocked":          QueueLocked("/", "q"),
	"GetOfSingleActive":    GetOfSingleActive("/", "q"),
	"QueueInUse":           QueueInUse("/", "q"),
	"QueueNotEmpty":        QueueNotEmpty("/", "q"),
	"ExchangeInUse":        ExchangeInUse("/", "x"),
	"ConsumeExclusive":     ConsumeExclusive("/", "q"),
	"DeliveryTimeout":      DeliveryTimeout(3, time.Second),
	"InequivalentFlag":     InequivalentFlag(Queue, "/", "q", "durable", "true", "false"),
	"InequivalentArg":      InequivalentArg(Queue, "/", "q", "x-message-ttl", "'100' of type 'signedint'", ""),
	"InvalidArg":           InvalidArg(Queue, "/", "q", "x-message-ttl", "must not be negative: -1"),
	"ArgNotForType":        ArgNotForType("/", "q", "x-max-age", "classic"),
	"UnsupportedArg":       UnsupportedArg(Queue, "/", "q", "x-message-ttl"),
	"UnsupportedQueueType": UnsupportedQueueType("/", "q", "foo"),
	"InvalidProperty":      InvalidProperty("/", "q", "non-durable", "quorum"),
	"InvalidConsumerArg":   InvalidConsumerArg("/", "q", "x-priority", "'high' is no number"),
	"UnknownExchangeType":  UnknownExchangeType("foo"),
	"InvalidExchange":      InvalidExchange("Unsupported property: app_id"),
	"InvalidBinding":       InvalidBinding("The binding key must be greater than 0"),
	"InvalidBindingKey":    InvalidBindingKey("#.#.#", "x", "/", "more than two '#'"),
	"InvalidBindingArg":    InvalidBindingArg("x-match", "x", "/", "must be all or any"),
	"ReservedName":         ReservedName(Exchange, "/", "amq.foo"),
	"InvalidName":          InvalidName(Queue, "/", "q", "too long"),
	"DefaultExchange":      DefaultExchange(),
	"PredeclaredExchange":  PredeclaredExchange("/", "amq.direct"),
	"InternalExchange":     InternalExchange("/", "x"),
	"UnknownDeliveryTag":   UnknownDeliveryTag(7),
	"MessageTooLarge":      MessageTooLarge(17, 16),
	"MalformedFrame":       MalformedFrame("wrong end octet 0x00"),
	"FrameTooLarge":        FrameTooLarge(200000, 131072),
	"BodyTooLarge":         BodyTooLarge(1<<40, 1<<29),
	"MalformedMethod":      MalformedMethod("queue.declare", "cut short"),
	"MalformedUTF8":        MalformedUTF8("queue.declare", "queue"),
	"MalformedProperties":  MalformedProperties("cut short"),
	"UnknownMethod":        UnknownMethod(60, 999),
	"UnexpectedMethod":     UnexpectedMethod("connection.open", "running"),
	"ChannelNotOpen":       ChannelNotOpen(3),
	"ChannelAlreadyOpen":   ChannelAlreadyOpen(3),
	"DuringCommit":         DuringCommit(),
	"ChannelOutOfRange":    ChannelOutOfRange(3000, 2047),
	"MisplacedMethod":      MisplacedMethod("connection.close", 3),
	"HeartbeatOnChannel":   HeartbeatOnChannel(1),
	"ExpectedHeader":       ExpectedHeader(60, "method frame"),
	"ExpectedBody":         ExpectedBody("method frame"),
	"ExpectedMethod":       ExpectedMethod("body frame"),
	"BodyOverrun":          BodyOverrun(10, 12),
	"TuneTooLow":           TuneTooLow("frame_max", 4095, 4096),
	"TuneTooHigh":          TuneTooHigh("channel_max", 0, 2047),
	"ConsumerTagInUse":     ConsumerTagInUse("c1"),
	"TooManyConsumers":     TooManyConsumers(3),
	"Unsupported":          Unsupported("immediate=true"),
	"ModeConflict":         ModeConflict("tx", "confirm"),
	"NotTransactional":     NotTransactional(),
	"ReplyConsumerExists":  ReplyConsumerExists(),
	"ReplyConsumerAcks":    ReplyConsumerAcks(),
	"ReplyConsumerMissing": ReplyConsumerMissing(),
	"ReplyQueueBinding":    ReplyQueueBinding(),
	"UnknownFrameType":     UnknownFrameType(5),
	"WrongFrameEnd":        WrongFrameEnd(0),
	"InvalidExpiration":    InvalidExpiration("soon", "not a number of milliseconds"),
	"InvalidCacheTTL":      InvalidCacheTTL("x-cache-ttl", "it is no integer, but longstr"),
	"InvalidDelay":         InvalidDelay("x-delay", "not a number of milliseconds"),
	"InvalidCopies":        InvalidCopies("CC"),
	"Forced":               Forced("closed by operator"),
	"Shutdown":             Shutdown(),
	"VHostDeleted":         VHostDeleted("shop"),
	"UserDeleted":          UserDeleted("ann"),
	"TimedOut":             TimedOut("declare", Queue, "/", "q", 15*time.Second),
	"TransactionRefused":   TransactionRefused(),
	"Overloaded":           Overloaded("too many frames wait for channel 3"),
	"Internal":             Internal("a queue ended unexpectedly"),
}

// constructors reads the package's source: every exported function that returns
// *Error, in the order of the files.
func constructors(t *testing.T, file string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if ok && fn.Recv == nil && fn.Name.IsExported() {
			names = append(names, fn.Name.Name)
		}
	}
	return names
}

// TestGolden prints every kind of mistake; a constructor that is missing from
// the table above shows up as such.
func TestGolden(t *testing.T) {
	datadriven.RunTest(t, "testdata/errors.golden", func(t *testing.T, d *datadriven.TestData) string {
		var b strings.Builder
		for _, name := range constructors(t, d.CmdArgs[0].Key) {
			e := all[name]
			if e == nil {
				t.Errorf("%s is not in the table of this test", name)
				continue
			}
			if !strings.HasPrefix(e.Text, CodeName(e.Code)+" - ") {
				t.Errorf("%s: text %q does not start with the code's name", name, e.Text)
			}
			fmt.Fprintf(&b, "%s: %d %s\n  %s\n", name, e.Code, e.Scope, e.Text)
		}
		return b.String()
	})
}

func TestLongTextIsCutAtACharacter(t *testing.T) {
	e := NoQueue("/", strings.Repeat("é", 200))
	if len(e.Text) > 255 || !utf8.ValidString(e.Text) || !strings.HasSuffix(e.Text, "...") {
		t.Fatalf("%d bytes: %q", len(e.Text), e.Text)
	}
}

// An error that has come from another node is the same as it was there.
func TestTold(t *testing.T) {
	for name, e := range all {
		told := Told(e.Scope, e.Code, e.Text)
		if told.Error() != e.Error() || told.Scope != e.Scope || errors.Is(e, ErrNoQueue) != (name == "NoQueue") || errors.Is(told.ForMethod(60, 20), ErrNoQueue) != (name == "NoQueue") {
			t.Errorf("%s: %+v", name, told)
		}
	}
}

func TestForMethodKeepsTheFirst(t *testing.T) {
	e := NoQueue("/", "q").ForMethod(50, 10).ForMethod(60, 40)
	if e.Class != 50 || e.Method != 10 {
		t.Fatalf("got %d/%d", e.Class, e.Method)
	}
}
