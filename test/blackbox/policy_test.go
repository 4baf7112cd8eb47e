package blackbox

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// ctlFails runs an administrator's command that is to be refused, and returns what it says.
func ctlFails(t *testing.T, args ...string) string {
	t.Helper()
	if target.own != nil {
		out, err := target.own.Ctl(args...)
		if err == nil {
			t.Fatalf("ctl %v: %s", args, out)
		}
		return out + err.Error()
	}
	line := strings.Fields(os.Getenv(ctlEnv))
	if len(line) == 0 {
		t.Skipf("%s names no command", ctlEnv)
	}
	out, err := exec.Command(line[0], append(line[1:], args...)...).CombinedOutput()
	if err == nil {
		t.Fatalf("ctl %v: %s", args, out)
	}
	return string(out)
}

// cell is a column of the row of a listing that begins with a name.
func cell(t *testing.T, name, column string, args ...string) string {
	t.Helper()
	out := ctl(t, append(append([]string{"-q"}, args...), "name", column)...)
	for line := range strings.Lines(out) {
		if fields := strings.Split(strings.TrimRight(line, "\n"), "\t"); fields[0] == name {
			return fields[1]
		}
	}
	t.Fatalf("%s is not listed:\n%s", name, out)
	return ""
}

// R330 R335: the policy of the highest priority holds for what is there already, and the next one as soon as it is cleared.
func TestPolicies(t *testing.T) {
	t.Parallel()
	ch := open(t)
	q := queue(t, ch)
	holds := func() string { return cell(t, q, "policy", "list_queues") }
	equal(t, "the policy at first", holds(), "")
	ctl(t, "set_policy", q+"-low", q, `{"max-length":1000}`, "--priority", "1", "--apply-to", "queues")
	equal(t, "the policy", holds(), q+"-low")
	ctl(t, "set_policy", q+"-high", "^"+q+"$", `{"max-length":1001}`, "--priority", "2")
	equal(t, "the policy of a higher priority", holds(), q+"-high")
	ctl(t, "set_policy", q+"-others", ".", `{"max-length":7}`, "--priority", "3", "--apply-to", "exchanges")
	equal(t, "beside one for exchanges", holds(), q+"-high")
	ctl(t, "clear_policy", q+"-others")
	row := ""
	for line := range strings.Lines(ctl(t, "-q", "list_policies")) {
		if strings.Contains(line, q+"-high") {
			row = line
		}
	}
	equal(t, "the policy in the list", row, "/\t"+q+"-high\t^"+q+"$\tall\t{\"max-length\":1001}\t2\n")
	ctl(t, "set_policy", q+"-limit", q, `{"delivery-limit":100}`, "--priority", "4")
	equal(t, "one with a delivery limit", holds(), pick(t, "policy-classic", q+"-high", q+"-limit"))
	ctl(t, "clear_policy", q+"-limit")
	ctl(t, "clear_policy", q+"-high")
	equal(t, "the policy that is left", holds(), q+"-low")
	ctl(t, "clear_policy", q+"-low")
	equal(t, "the policy when all are gone", holds(), "")
}

// R331 R332: what no policy can say is refused, and nothing is set.
func TestPoliciesThatAreRefused(t *testing.T) {
	t.Parallel()
	n := name(t)
	for _, c := range []struct{ pattern, definition, says string }{
		{".", `{"max-length":-1}`, "Validation failed\n\n-1 is not a valid maximum length\n"},
		{".", `{"max-length":"5"}`, `<<"5">> is not a valid maximum length`},
		{".", `{"foo":"bar","max-length":5}`, `[{<<"foo">>,<<"bar">>}] are not recognised policy settings`},
		{".", `{}`, "no policy provided"},
		{".", `{"max-length":`, pick(t, "policy-json", "JSON decoding error", "Could not parse JSON document")},
		{"(", `{"max-length":5}`, "pattern should be regular expression but is invalid"},
	} {
		if out := ctlFails(t, "set_policy", n, c.pattern, c.definition); !strings.Contains(out, c.says) {
			t.Errorf("%s for %s: %s", c.definition, c.pattern, out)
		}
	}
	if out := ctlFails(t, "set_operator_policy", n, ".", `{"dead-letter-exchange":"x"}`); !strings.Contains(out, `[{<<"dead-letter-exchange">>,<<"x">>}] are not recognised policy settings`) {
		t.Errorf("an operator's: %s", out)
	}
	if out := ctlFails(t, "clear_policy", n); !strings.Contains(out, "Parameter does not exist") {
		t.Errorf("clearing what is not there: %s", out)
	}
	if out := ctlFails(t, "list_policies", "-p", n); !strings.Contains(out, "Virtual host '"+n+"' does not exist") {
		t.Errorf("a virtual host that is not there: %s", out)
	}
}

// R332: look-ahead is Perl's.
func TestPolicyPatterns(t *testing.T) {
	t.Parallel()
	n := name(t)
	if pick(t, "policy-pattern", true, false) {
		ctl(t, "set_policy", n, n+"(?=x)", `{"max-length":5}`)
		ctl(t, "clear_policy", n)
		return
	}
	if out := ctlFails(t, "set_policy", n, n+"(?=x)", `{"max-length":5}`); !strings.Contains(out, "look-ahead is not supported: (?=") {
		t.Error(out)
	}
}

// R337: an alternate exchange that a policy names, on an exchange that is in use.
func TestAlternateExchangeByPolicy(t *testing.T) {
	t.Parallel()
	ch := confirming(t)
	x, other := exchange(t, ch, "direct", nil), exchange(t, ch, "fanout", nil)
	q := queue(t, ch)
	ok(t, ch.QueueBind(q, "", other, false, nil))
	returned := ch.NotifyReturn(make(chan amqp.Return, 10))
	sent := func(what string, want int) {
		t.Helper()
		c, err := ch.PublishWithDeferredConfirm(x, "nobody's", true, false, amqp.Publishing{Body: []byte(what)})
		ok(t, err)
		if !c.Wait() {
			t.Fatalf("%s: nacked", what)
		}
		got := 1
		select {
		case <-returned: // comes before the confirm
			got = 0
		default:
		}
		equal(t, what, got, want)
	}
	sent("without a policy", 0)
	ctl(t, "set_policy", x, "^"+x+"$", `{"alternate-exchange":"`+other+`"}`, "--apply-to", "exchanges")
	equal(t, "the policy of the exchange", cell(t, x, "policy", "list_exchanges"), x)
	sent("with a policy", 1)
	equal(t, "messages", depth(t, ch, q), 1)
	ctl(t, "clear_policy", x)
	sent("without it once more", 0)
}

// R333: a limit of bytes that a policy brings holds for what is in the queue already: the oldest messages are dropped at once.
func TestLimitOfBytesByPolicy(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch := confirming(t)
		q := queueWith(t, ch, amqp.Table{"x-queue-type": kind})
		text := strings.Repeat("x", 996)
		var sent []*amqp.DeferredConfirmation
		for i := range 1000 {
			m := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: fmt.Appendf(nil, "%04d%s", i, text)}
			sent = append(sent, must(ch.PublishWithDeferredConfirm("", q, false, false, m))(t))
		}
		for _, c := range sent {
			if !c.Wait() {
				t.Fatal("a nack")
			}
		}
		equal(t, "messages", depth(t, ch, q), 1000)
		ctl(t, "set_policy", q, "^"+q+"$", `{"max-length-bytes":100000}`, "--apply-to", "queues")
		// RabbitMQ's quorum queues count properties, too.
		eventually(t, "a drop", func() bool { n := depth(t, ch, q); return n <= 100 && n > 70 })
		n := depth(t, ch, q)
		equal(t, "the oldest one", string(get(t, ch, q, true).Body[:4]), fmt.Sprintf("%04d", 1000-n))
		ctl(t, "clear_policy", q)
	})
}
