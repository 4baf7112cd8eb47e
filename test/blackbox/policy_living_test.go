package blackbox

import (
	"fmt"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// R659 R450 R503: a delay that a policy brings is for what comes from then on; what is there stays ready. Without the policy what comes is
// ready at once, and what waits goes on waiting.
func TestDeliveryDelayByPolicy(t *testing.T) {
	t.Parallel()
	if pick(t, "delivery-delay", true, false) {
		t.Skip("RabbitMQ has no such setting")
	}
	eachType(t, func(t *testing.T, kind string) {
		ch := open(t)
		q := queueWith(t, ch, amqp.Table{"x-queue-type": kind})
		put(t, q, "old")
		ctl(t, "set_policy", q, "^"+q+"$", `{"delivery-delay":3600000}`)
		delayed := func() string { return cell(t, q, "messages_delayed", "list_queues") }
		eventually(t, "what is new waits", func() bool { put(t, q, "new"); return delayed() != "0" })
		d := get(t, ch, q, false)
		equal(t, "what was there", string(d.Body), "old")
		must(ch.QueuePurge(q, false))(t)
		put(t, q, "waits")
		ok(t, d.Nack(false, true))
		equal(t, "what comes back", string(get(t, ch, q, true).Body), "old")
		ctl(t, "clear_policy", q)
		eventually(t, "what is new does not wait", func() bool { put(t, q, "newer"); return depth(t, ch, q) > 0 })
		equal(t, "the first that is ready", string(get(t, ch, q, true).Body), "newer")
		if delayed() == "0" {
			t.Error("what waited is ready since the policy is gone")
		}
	})
}

// R659 R401 R503: a consumer timeout that a policy brings is for consumers that come from then on, whatever messages are there; and no longer
// when it is gone.
func TestConsumerTimeoutByPolicy(t *testing.T) {
	t.Parallel()
	if pick(t, "timeout-arguments", true, false) {
		t.Skip("RabbitMQ 3.10 has no such setting")
	}
	eachType(t, func(t *testing.T, kind string) {
		q := queueWith(t, open(t), amqp.Table{"x-queue-type": kind})
		holds := func(q string, args amqp.Table) (amqp.Delivery, <-chan string) {
			ch := open(t)
			ok(t, ch.Qos(1, 0, false))
			cancelled := ch.NotifyCancel(make(chan string, 1))
			return next(t, must(ch.Consume(q, "holds", false, false, false, false, args))(t)), cancelled
		}
		put(t, q, "first")
		first, firstEnds := holds(q, nil)
		ctl(t, "set_policy", q, "^"+q+"$", `{"consumer-timeout":100}`)
		eventually(t, "a new consumer is cancelled", func() bool {
			put(t, q, "x")
			d, ends := holds(q, nil)
			select {
			case <-ends:
				return true
			case <-time.After(2 * time.Second): // it came before the queue had heard of the policy
				ok(t, d.Ack(false))
				return false
			}
		})
		ctl(t, "clear_policy", q)
		control := timed(t, open(t), kind)
		eventually(t, "a new consumer is not cancelled", func() bool {
			put(t, q, "x")
			d, ends := holds(q, nil)
			for range 2 { // others that began to hold later are, twice
				put(t, control, "x")
				_, ends := holds(control, nil)
				comes(t, "cancellation", ends)
			}
			select {
			case <-ends:
				return false
			default:
				ok(t, d.Ack(false))
				return true
			}
		})
		select {
		case <-firstEnds:
			t.Error("the consumer that was there before the policy is cancelled")
		default:
		}
		ok(t, first.Ack(false))
	})
}

// R659 R388 R503: with at-least-once by a policy letters that lead nowhere are held, those of messages that were there before among them; without
// it they are dropped again, and so is what was held.
func TestDeadLetterStrategyByPolicy(t *testing.T) {
	t.Parallel()
	if pick(t, "dead-letter-counts", true, false) {
		t.Skip("RabbitMQ does not tell")
	}
	eachType(t, func(t *testing.T, kind string) {
		ch := open(t)
		q := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": name(t)})
		held := func() string { return cell(t, q, "messages_dlx", "list_queues") }
		dies := func() {
			t.Helper()
			ok(t, get(t, ch, q, false).Reject(false))
			settled(t, ch)
		}
		put(t, q, "1", "2", "3")
		dies()
		eventually(t, "it is dropped", func() bool { return held() == "0" })
		ctl(t, "set_policy", q, "^"+q+"$", `{"dead-letter-strategy":"at-least-once"}`)
		dies() // it may be before the queue has heard of the policy
		eventually(t, "one is held", func() bool {
			put(t, q, "x")
			dies()
			return held() != "0"
		})
		before := held()
		dies()
		eventually(t, "one more is", func() bool { return held() != before })
		ctl(t, "clear_policy", q)
		eventually(t, "none is held", func() bool { return held() == "0" })
		put(t, q, "x")
		for depth(t, ch, q) > 0 {
			dies()
		}
		eventually(t, "none is held", func() bool { return held() == "0" })
	})
}

// R659 R140: where a leader is to be is asked when a queue is declared: a policy moves no queue that is there, with what is in it.
func TestClusterLeaderLocatorByPolicy(t *testing.T) {
	t.Parallel()
	w := newWeb(t, 3)
	for _, kind := range []string{"classic", "quorum"} {
		ch := w.node[0].open()
		declare := func(what string, n int) (list []string) {
			for i := range n {
				q := fmt.Sprintf("%s-%s-%d", kind, what, i)
				must(ch.QueueDeclare(q, true, false, false, false, amqp.Table{"x-queue-type": kind}))(t)
				publishes(t, w.node[0].confirming(), "", q, "x")
				list = append(list, q)
			}
			return list
		}
		leaders := func(list []string) (all []string) {
			for _, q := range list {
				all = append(all, w.node[0].listing(q).Leader)
			}
			slices.Sort(all)
			return slices.Compact(all)
		}
		there := declare("there", 4)
		equal(t, kind+": without a policy", fmt.Sprint(leaders(there)), "[n1]")
		w.node[0].does("set_policy", "spread", "^"+kind, `{"queue-leader-locator":"balanced"}`)
		spread := declare("spread", 4)
		if n := len(leaders(spread)); n < 2 {
			t.Errorf("%s: with a balanced policy all are on %v", kind, leaders(spread))
		}
		equal(t, kind+": those that were there", fmt.Sprint(leaders(there)), "[n1]")
		w.node[0].does("clear_policy", "spread")
		equal(t, kind+": after the policy", fmt.Sprint(leaders(declare("later", 4))), "[n1]")
		for _, q := range append(there, spread...) {
			equal(t, q, string(get(t, ch, q, true).Body), "x")
		}
	}
}

// R659 R143: a queue grows to the size that a policy asks for, with what is in it; without the policy it does not grow, and keeps the members
// that it has.
func TestClusterTargetGroupSizeByPolicy(t *testing.T) {
	t.Parallel()
	w := newWeb(t, 3)
	alone := amqp.Table{"x-queue-type": "quorum", "x-quorum-initial-group-size": 1}
	for _, q := range []string{"grows", "stays"} {
		must(w.node[0].open().QueueDeclare(q, true, false, false, false, alone))(t)
		publishes(t, w.node[0].confirming(), "", q, several(q, 20)...)
	}
	voters := func(q string) (n int) {
		for _, m := range w.node[0].members(q) {
			if m.Membership == "voter" {
				n++
			}
		}
		return n
	}
	target := func(on bool) {
		if on {
			w.node[0].does("set_policy", "size", "^(grows|control)$", `{"target-group-size":3}`)
		} else {
			w.node[0].does("clear_policy", "size")
		}
	}
	equal(t, "members", len(w.node[0].listing("grows").Members), 1)
	target(true)
	until(t, "it has three members that vote", func() bool { return voters("grows") == 3 })
	equal(t, "members of the other one", len(w.node[0].listing("stays").Members), 1)
	ok(t, w.node[0].Kill())
	for i, body := range several("grows", 20) {
		equal(t, fmt.Sprint("message ", i, " without the first node"), string(get(t, w.node[1].open(), "grows", true).Body), body)
	}
	ok(t, w.node[0].Start())
	until(t, "all are online", func() bool { return len(w.node[0].listing("grows").Online) == 3 })

	target(false)
	w.node[0].does("set_policy", "other", "^control$", `{"target-group-size":3}`)
	leader := w.leading("grows", 0)
	other := w.node[(leader+1)%3].name
	w.node[0].does("delete_member", "grows", other)
	must(w.node[leader].open().QueueDeclare("control", true, false, false, false, alone))(t)
	until(t, "another one that is led there has grown meanwhile", func() bool { return voters("control") == 3 })
	equal(t, "members without the policy", len(w.node[0].listing("grows").Members), 2)
}
