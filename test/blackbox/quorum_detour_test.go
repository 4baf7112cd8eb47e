package blackbox

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/rig"
)

// peer is what a node's metrics say about another: whether the link is "up", whether there is a "detour".
func (m *member) peer(what, other string) bool {
	m.t.Helper()
	return must(m.Series("/metrics"))(m.t)[fmt.Sprintf("holdfast_peer_%s{peer=%q}", what, other)] == 1
}

// R81 R82 R309: two nodes lose the link between them, in whatever way, and a third still hears both: clients of either go on with queues
// of the other, and with declares, by way of the third.
func TestQuorumWithoutALinkToTheLeader(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	w := newWeb(t, 3)
	q := w.quorum(0, "q")
	must(w.node[0].open().QueueDeclare("classic", true, false, false, false, nil))(t)
	w.lead(q, 0)
	ch := w.node[1].confirming()
	in := consume(t, w.node[1].open(), q)
	for i, how := range []struct {
		name string
		part func()
	}{
		{"reset", func() { w.Net.Between("n1", "n2", rig.Way{Cut: true}) }},
		{"dead", func() { w.Net.Between("n1", "n2", rig.Way{Held: true}) }},
		{"dead in one direction", func() { w.Net.Set("n1", "n2", rig.Way{Held: true}) }},
		{"dead in the other direction", func() { w.Net.Set("n2", "n1", rig.Way{Held: true}) }},
	} {
		until(t, "the link", func() bool { return w.node[1].peer("up", "n1") })
		how.part()
		until(t, how.name+": a detour", func() bool { return w.node[1].peer("detour", "n1") })
		for _, queue := range []string{q, "classic"} {
			if !all(publishes(t, ch, "", queue, several(how.name, 50)...), true) {
				t.Errorf("%s: a publish to %s was nacked", how.name, queue)
			}
		}
		for k := range 50 {
			d := next(t, in)
			equal(t, "body", string(d.Body), fmt.Sprintf("%s-%05d", how.name, k))
			ok(t, d.Ack(false))
		}
		must(w.node[1].open().QueueDeclare(fmt.Sprint("more", i), true, false, false, false, amqp.Table{"x-queue-type": "quorum"}))(t)
		w.Net.Heal()
		until(t, how.name+": no detour any more", func() bool { return !w.node[1].peer("detour", "n1") })
	}
	equal(t, "messages of the classic queue", must(w.node[0].open().QueueInspect("classic"))(t).Messages, 200)
}
