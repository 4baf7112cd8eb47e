package blackbox

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// replier is the pseudo queue of direct replies.
const replier = "amq.rabbitmq.reply-to"

// R569 R571 R572: on three nodes whoever asks gets the answer, wherever the one is connected who gives it. What comes when the asking one
// has left is confirmed, and not returned.
func TestClusterDirectReplies(t *testing.T) {
	t.Parallel()
	w := newWeb(t, 3)
	ask := w.node[0].open()
	must(ask.QueueDeclare("questions", true, false, false, false, nil))(t)
	big := strings.Repeat("large", 300_000)
	for from := range 3 {
		for at := range 3 {
			asking, serving := w.node[from].open(), w.node[at].open()
			answers := must(asking.Consume(replier, "", true, false, false, false, nil))(t)
			questions := must(serving.Consume("questions", "server", true, false, false, false, nil))(t)
			ok(t, serving.Confirm(false))
			returns := serving.NotifyReturn(make(chan amqp.Return, 9))
			var name string
			for i, body := range []string{"small", big, "last"} {
				ok(t, asking.Publish("", "questions", false, false, amqp.Publishing{ReplyTo: replier, CorrelationId: fmt.Sprint(i), Body: []byte(body)}))
				q := next(t, questions)
				name = q.ReplyTo
				d := must(serving.PublishWithDeferredConfirm("", name, true, false, amqp.Publishing{CorrelationId: q.CorrelationId, Body: q.Body}))(t)
				if !d.Wait() {
					t.Errorf("an answer from node %d to node %d is refused", at, from)
				}
				if a := next(t, answers); string(a.Body) != body || a.CorrelationId != fmt.Sprint(i) {
					t.Errorf("node %d got %d bytes of %s from node %d", from, len(a.Body), a.CorrelationId, at)
				}
			}
			until(t, "the consumer is there", func() bool { // a node that is slow to say so counts as one that does not know
				_, err := w.node[at].open().QueueDeclarePassive(name, false, false, false, false, nil)
				return err == nil
			})
			ok(t, asking.Close())
			d := must(serving.PublishWithDeferredConfirm("", name, true, false, amqp.Publishing{Body: []byte("too late")}))(t)
			if !d.Wait() {
				t.Errorf("an answer from node %d that is too late for node %d is refused", at, from)
			}
			if len(returns) > 0 {
				t.Errorf("an answer from node %d is returned: %+v", at, <-returns)
			}
			ok(t, serving.Cancel("server", false))
			_, err := serving.QueueDeclarePassive(name, false, false, false, false, nil)
			refused(t, err, 404)
		}
	}
}

// R570: an answer on its way to a node that is gone does not keep its publisher waiting.
func TestClusterDirectReplyToANodeThatIsGone(t *testing.T) {
	t.Parallel()
	w := newWeb(t, 3)
	asking, serving := w.node[1].open(), w.node[0].open()
	must(asking.Consume(replier, "", true, false, false, false, nil))(t)
	must(serving.QueueDeclare("questions", true, false, false, false, nil))(t)
	ok(t, asking.Publish("", "questions", false, false, amqp.Publishing{ReplyTo: replier}))
	name := next(t, must(serving.Consume("questions", "", true, false, false, false, nil))(t)).ReplyTo
	ok(t, serving.Confirm(false))
	answer := func() {
		t.Helper()
		d := must(serving.PublishWithDeferredConfirm("", name, true, false, amqp.Publishing{Body: []byte("answer")}))(t)
		if !d.Wait() {
			t.Error("the answer is refused")
		}
	}
	answer()
	ok(t, w.node[1].Kill())
	answer() // the link may not be broken yet
	until(t, "the node is down", func() bool { return len(w.node[0].cluster().Running) == 2 })
	answer()
	_, err := serving.QueueDeclarePassive(name, false, false, false, false, nil)
	refused(t, err, 404)
}
