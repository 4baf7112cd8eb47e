package blackbox

import (
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// policyFor sets a policy for one queue or exchange, which is cleared with the test.
func policyFor(t *testing.T, q, definition string, args ...string) {
	t.Helper()
	ctl(t, append([]string{"set_policy", q, "^" + q + "$", definition}, args...)...)
	t.Cleanup(func() { ctl(t, "clear_policy", q) })
}

// R503 R336: a time to live holds for what comes after it; what is there stays.
func TestTimeToLiveByPolicy(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch, source, grave := buriesIn(t, kind, nil)
		put(t, source, "old")
		old := get(t, ch, source, false)
		policyFor(t, source, `{"message-ttl":1}`)
		eventually(t, "what is new expires", func() bool {
			put(t, source, "new")
			return depth(t, open(t), grave) > 0
		})
		ok(t, old.Nack(false, true))
		settled(t, ch)
		equal(t, "what is old", string(get(t, ch, source, true).Body), "old")
	})
}

// R503 R510: when the length is made shorter the oldest messages go at once.
func TestShorterLengthByPolicy(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		_, source, grave := buriesIn(t, kind, amqp.Table{"x-max-length": 5})
		put(t, source, "1", "2", "3", "4", "5", "6")
		in := consume(t, open(t), grave)
		equal(t, "over the length it was declared with", string(next(t, in).Body), "1")
		policyFor(t, source, `{"max-length":2}`)
		var got []string
		for range 3 {
			m := next(t, in)
			equal(t, "reason", deaths(t, m)[0]["reason"], any("maxlen"))
			got = append(got, string(m.Body))
		}
		if kind == "quorum" && pick(t, "quorum-dead-order", true, false) {
			slices.Sort(got)
		}
		equal(t, "over that of the policy", strings.Join(got, " "), "2 3 4")
		equal(t, "left", emptied(t, source), "5 6")
	})
}

// R503 R597: a limit that a policy brings holds for what is there already, and no longer when it is cleared.
func TestDeliveryLimitByPolicy(t *testing.T) {
	t.Parallel()
	if pick(t, "counted-returns", true, false) {
		t.Skip("every return is counted")
	}
	eachType(t, func(t *testing.T, kind string) {
		ch, source, grave := buriesIn(t, kind, nil)
		rejected := func() {
			must(ch.QueuePurge(source, false))(t)
			put(t, source, "x")
			ok(t, get(t, ch, source, false).Reject(true))
			settled(t, ch)
		}
		ctl(t, "set_policy", source, "^"+source+"$", `{"delivery-limit":0}`)
		eventually(t, "the first failure is the last", func() bool { rejected(); return depth(t, ch, grave) > 0 })
		ctl(t, "clear_policy", source)
		eventually(t, "what failed comes back", func() bool { rejected(); return depth(t, ch, source) == 1 })
	})
}

// R333 R334: of what an operator, a policy and a declaration say the shortest length holds.
func TestShortestLength(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch := open(t)
		wide, narrow := queueWith(t, ch, amqp.Table{"x-queue-type": kind}), queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-max-length": 1})
		n := name(t)
		pattern := "^(" + wide + "|" + narrow + ")$"
		ctl(t, "set_operator_policy", n, pattern, `{"max-length":4}`, "--apply-to", "queues")
		t.Cleanup(func() { ctl(t, "clear_operator_policy", n) })
		holds := func(what, left string) {
			t.Helper()
			eventually(t, what, func() bool {
				must(ch.QueuePurge(wide, false))(t)
				put(t, wide, "1", "2", "3", "4", "5", "6")
				return emptied(t, wide) == left
			})
			put(t, narrow, "1", "2", "3")
			equal(t, "declared with less", emptied(t, narrow), "3")
		}
		holds("the operator's", "3 4 5 6")
		ctl(t, "set_policy", n, pattern, `{"max-length":2}`)
		t.Cleanup(func() { ctl(t, "clear_policy", n) })
		holds("the policy's", "5 6")
		ctl(t, "set_policy", n, pattern, `{"max-length":100}`)
		holds("the operator's again", "3 4 5 6")
	})
}

// R333: of an overflow that is declared and one of a policy a classic queue takes the first, a quorum queue the second.
func TestOverflowOfBoth(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		if kind == "quorum" && pick(t, "quorum-refusal", true, false) {
			t.Skip("it is full later")
		}
		ch := confirming(t)
		q := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-max-length": 1, "x-overflow": "drop-head"})
		policyFor(t, q, `{"overflow":"reject-publish"}`)
		if kind == "classic" {
			put(t, q, "1", "2")
			equal(t, "left", emptied(t, q), "2")
			return
		}
		eventually(t, "a publish is refused", func() bool {
			must(ch.QueuePurge(q, false))(t)
			put(t, q, "1")
			return !acked(t, ch, "", q, amqp.Publishing{Body: []byte("2")})
		})
	})
}

// R504: a policy is for queues of a type, and for those that are exclusive or that the broker names, too.
func TestWhatPoliciesAreFor(t *testing.T) {
	t.Parallel()
	ch := open(t)
	classic, quorum := queue(t, ch), queueWith(t, ch, quorumArgs)
	own := must(ch.QueueDeclare("", false, false, true, false, nil))(t).Name
	n := name(t)
	for _, q := range []string{classic, quorum} {
		equal(t, "at first", cell(t, q, "policy", "list_queues"), "")
	}
	ctl(t, "set_policy", n, "^"+strings.ReplaceAll(own, "+", `\+`)+"$", `{"max-length":1}`)
	t.Cleanup(func() { ctl(t, "clear_policy", n) })
	equal(t, "of a queue that the broker named", cell(t, own, "policy", "list_queues"), n)
	put(t, own, "1", "2")
	equal(t, "length", depth(t, ch, own), 1)
	if pick(t, "policy-types", true, false) {
		return // it has them for all types alone
	}
	ctl(t, "set_policy", n+".q", "^("+classic+"|"+quorum+")$", `{"max-length":1}`, "--apply-to", "quorum_queues")
	t.Cleanup(func() { ctl(t, "clear_policy", n+".q") })
	equal(t, "of a quorum queue", cell(t, quorum, "policy", "list_queues"), n+".q")
	equal(t, "of a classic queue", cell(t, classic, "policy", "list_queues"), "")
}

// R500: a routing key for dead letters needs an exchange in the same declaration, whatever policies say.
func TestDeadLetterKeyBesidePolicy(t *testing.T) {
	t.Parallel()
	q := name(t)
	policyFor(t, q, `{"dead-letter-exchange":""}`)
	_, err := open(t).QueueDeclare(q, true, false, false, false, amqp.Table{"x-dead-letter-routing-key": "k"})
	refused(t, err, 406)
}

// R333: exchange and key of dead letters may come from a policy, and from both.
// R255
func TestDeadLetterByPolicy(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch := open(t)
		grave := queue(t, ch)
		source := queueWith(t, ch, amqp.Table{"x-queue-type": kind})
		policyFor(t, source, `{"dead-letter-exchange":"","dead-letter-routing-key":"`+grave+`"}`)
		in := consume(t, ch, source)
		eventually(t, "a rejected message is a dead letter", func() bool {
			put(t, source, "x")
			ok(t, next(t, in).Reject(false))
			settled(t, ch)
			return depth(t, open(t), grave) > 0
		})
		equal(t, "reason", deaths(t, get(t, ch, grave, true))[0]["reason"], any("rejected"))
	})
}
