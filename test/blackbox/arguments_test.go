package blackbox

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// R500 R595 T21 T23 T27: the values that arguments take, and those that they do not. Nothing is left out for not being there yet.
func TestQueueArguments(t *testing.T) {
	t.Parallel()
	const classic, quorum, both = "c", "q", "cq"
	for _, c := range []struct {
		types string
		args  amqp.Table
		code  int // 0: it is declared
	}{
		{both, amqp.Table{"x-message-ttl": int32(-1)}, 406},
		{both, amqp.Table{"x-message-ttl": int64(1 << 53)}, 406},
		{both, amqp.Table{"x-message-ttl": 1.5}, 406},
		{both, amqp.Table{"x-message-ttl": "100"}, 406},
		{both, amqp.Table{"x-message-ttl": int32(0)}, 0},
		{both, amqp.Table{"x-message-ttl": int64(315_360_000_000)}, 0},
		{both, amqp.Table{"x-message-ttl": int64(315_360_000_001)}, 406},
		{both, amqp.Table{"x-expires": int32(0)}, 406},
		{both, amqp.Table{"x-expires": int32(-1)}, 406},
		{both, amqp.Table{"x-expires": "100"}, 406},
		{both, amqp.Table{"x-expires": int32(1)}, 0},
		{classic, amqp.Table{"x-max-priority": int32(300)}, 406},
		{classic, amqp.Table{"x-max-priority": int32(-1)}, 406},
		{classic, amqp.Table{"x-max-priority": int32(0)}, 0},
		{classic, amqp.Table{"x-max-priority": int32(255)}, 0},
		{quorum, amqp.Table{"x-max-priority": int32(5)}, 406},
		{both, amqp.Table{"x-dead-letter-routing-key": "k"}, 406},
		{both, amqp.Table{"x-dead-letter-routing-key": int32(1), "x-dead-letter-exchange": ""}, 406},
		{both, amqp.Table{"x-dead-letter-exchange": int32(1)}, 406},
		{both, amqp.Table{"x-dead-letter-exchange": "not-there"}, 0},
		{quorum, amqp.Table{"x-dead-letter-strategy": "at-least-once"}, 0},
		{quorum, amqp.Table{"x-dead-letter-strategy": "sometimes"}, 406},
		{classic, amqp.Table{"x-dead-letter-strategy": "at-most-once"}, pick(t, "classic-limits", 406, 0)},
		{both, amqp.Table{"x-overflow": "x"}, 406},
		{both, amqp.Table{"x-overflow": int32(1)}, 406},
		{both, amqp.Table{"x-overflow": "drop-head"}, 0},
		{both, amqp.Table{"x-overflow": "reject-publish"}, 0},
		{both, amqp.Table{"x-overflow": "reject-publish-dlx"}, 0},
		{both, amqp.Table{"x-max-length": int32(-1)}, 406},
		{both, amqp.Table{"x-max-length": "1"}, 406},
		{both, amqp.Table{"x-max-length": int32(0)}, 0},
		{both, amqp.Table{"x-max-length-bytes": int32(-1)}, 406},
		{both, amqp.Table{"x-max-length-bytes": int64(1 << 40)}, 0},
		{both, amqp.Table{"x-single-active-consumer": "true"}, 406},
		{both, amqp.Table{"x-single-active-consumer": int32(1)}, 406},
		{both, amqp.Table{"x-single-active-consumer": false}, 0},
		{both, amqp.Table{"x-single-active-consumer": true}, 0},
		{quorum, amqp.Table{"x-delivery-limit": int32(5)}, 0},
		{quorum, amqp.Table{"x-delivery-limit": int32(-1)}, 0},
		{quorum, amqp.Table{"x-delivery-limit": "5"}, pick(t, "delivery-limit-value", 0, 406)},
		{classic, amqp.Table{"x-delivery-limit": int32(5)}, pick(t, "classic-limits", 406, 0)},
		{both, amqp.Table{"x-delayed-retry-type": "all", "x-delayed-retry-min": int32(10), "x-delayed-retry-max": int32(100)}, 0},
		{both, amqp.Table{"x-delayed-retry-type": "never"}, pick(t, "delayed-retry", 0, 406)},
		{both, amqp.Table{"x-delayed-retry-min": int32(0)}, pick(t, "delayed-retry", 0, 406)},
		{both, amqp.Table{"x-delayed-retry-max": "1"}, pick(t, "delayed-retry", 0, 406)},
		{both, amqp.Table{"x-delayed-retry-type": "all", "x-delayed-retry-min": int32(2000), "x-delayed-retry-max": int32(100)}, pick(t, "delayed-retry", 0, 406)},
		{both, amqp.Table{"x-delayed-retry-type": "all"}, 0},
		{quorum, amqp.Table{"x-consumer-timeout": int32(60_000)}, 0},
		{classic, amqp.Table{"x-consumer-timeout": int32(60_000)}, 0},
		{quorum, amqp.Table{"x-consumer-timeout": int32(-1)}, pick(t, "timeout-arguments", 0, 406)},
		{quorum, amqp.Table{"x-consumer-disconnected-timeout": int32(60_000)}, 0},
		{quorum, amqp.Table{"x-consumer-disconnected-timeout": int32(-1)}, pick(t, "timeout-arguments", 0, 406)},
		{quorum, amqp.Table{"x-max-in-memory-length": int32(10), "x-max-in-memory-bytes": int32(10)}, 0},
		{classic, amqp.Table{"x-max-in-memory-length": int32(10)}, 406},
		{classic, amqp.Table{"x-queue-mode": "lazy", "x-queue-version": int32(2)}, 0},
		{quorum, amqp.Table{"x-queue-mode": "lazy"}, 406},
		{classic, amqp.Table{"x-queue-version": int32(3)}, 406},
		{quorum, amqp.Table{"x-quorum-initial-group-size": int32(1)}, 0},
		{quorum, amqp.Table{"x-quorum-initial-group-size": int32(0)}, 406},
		{quorum, amqp.Table{"x-queue-leader-locator": "balanced"}, 0},
		{quorum, amqp.Table{"x-queue-leader-locator": "anywhere"}, 406},
		{both, amqp.Table{"x-max-age": "1h"}, 406},
		{quorum, amqp.Table{"x-member-placement-tag": "a"}, 0},
		{both, amqp.Table{"x-unheard-of": "anything"}, 0},
	} {
		for kind, letter := range map[string]string{"classic": classic, "quorum": quorum} {
			if !strings.Contains(c.types, letter) {
				continue
			}
			args := amqp.Table{"x-queue-type": kind}
			for k, v := range c.args {
				args[k] = v
			}
			ch, q := open(t), name(t)
			_, err := ch.QueueDeclare(q, true, false, false, false, args)
			if c.code != 0 {
				if e, is := err.(*amqp.Error); !is || e.Code != c.code || !strings.HasPrefix(e.Reason, words[c.code]) {
					t.Errorf("%v: %v, wanted %d", args, err, c.code)
				}
				continue
			}
			if err != nil {
				t.Errorf("%v: %v", args, err)
				continue
			}
			if _, err := ch.QueueDelete(q, false, false, false); err != nil && args["x-expires"] == nil {
				t.Error(err)
			}
		}
	}
}

// R501 T26: what a queue was declared with is compared by value, whatever the width of a number, and policies play no part.
func TestEqualArguments(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		with := func(args amqp.Table) amqp.Table {
			args["x-queue-type"] = kind
			return args
		}
		q := queueWith(t, open(t), with(amqp.Table{"x-message-ttl": int32(100), "x-dead-letter-exchange": "dlx"}))
		ctl(t, "set_policy", q, "^"+q+"$", `{"message-ttl":50,"max-length":7}`)
		t.Cleanup(func() { ctl(t, "clear_policy", q) })
		for _, ttl := range []any{int8(100), int16(100), int32(100), int64(100), byte(100)} {
			_, err := open(t).QueueDeclare(q, true, false, false, false, with(amqp.Table{"x-message-ttl": ttl, "x-dead-letter-exchange": "dlx"}))
			if err != nil {
				t.Errorf("%T: %v", ttl, err)
			}
		}
		_, err := open(t).QueueDeclare(q, true, false, false, false, with(amqp.Table{"x-message-ttl": int32(100), "x-dead-letter-exchange": "dlx", "x-foo": 1}))
		ok(t, err)
		for what, c := range map[string]struct {
			args amqp.Table
			says string
		}{
			"a float":      {amqp.Table{"x-message-ttl": float64(100), "x-dead-letter-exchange": "dlx"}, "inequivalent arg 'x-message-ttl'"},
			"another one":  {amqp.Table{"x-message-ttl": int32(101), "x-dead-letter-exchange": "dlx"}, "received '101' but current is '100'"},
			"without":      {amqp.Table{"x-dead-letter-exchange": "dlx"}, "received none but current is the value '100' of type"},
			"one too many": {amqp.Table{"x-message-ttl": int32(100), "x-dead-letter-exchange": "dlx", "x-max-length": int32(7)}, "but current is none"},
			"other case":   {amqp.Table{"x-message-ttl": int32(100), "x-dead-letter-exchange": "DLX"}, "received 'DLX' but current is 'dlx'"},
		} {
			_, err := open(t).QueueDeclare(q, true, false, false, false, with(c.args))
			refused(t, err, 406)
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// R391: who declares a queue with a dead-letter exchange may read from the queue and write to the exchange, which need not be there.
func TestDeadLetterPermissions(t *testing.T) {
	t.Parallel()
	user := name(t)
	ctl(t, "add_user", user, "secret")
	t.Cleanup(func() { ctl(t, "delete_user", user) })
	ctl(t, "set_permissions", "-p", "/", user, ".*", "^may-be-written", ".*read$")
	c := dialURL(t, as(t, user, "secret", "/"))
	for _, d := range []struct {
		queue, dlx string
		code       int
	}{{".read", "may-be-written", 0}, {".read", "may-not", 403}, {".not", "may-be-written", 403}} {
		q := name(t) + d.queue
		removeQueue(t, q)
		ch := channel(t, c)
		_, err := ch.QueueDeclare(q, true, false, false, false, amqp.Table{"x-dead-letter-exchange": d.dlx})
		if d.code == 0 {
			ok(t, err)
			continue
		}
		refused(t, err, d.code)
	}
}
