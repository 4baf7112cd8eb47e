package blackbox

import (
	"testing"

	"holdfast/test/rig"
)

// R302: the link between two nodes is gone, in both directions, and each still has the third. Who publishes and consumes on one of them, the
// leader being the other, goes on.
func TestQuorumLinkOfTwoIsCut(t *testing.T) {
	t.Parallel()
	long(t)
	for what, way := range map[string]rig.Way{"reset": {Cut: true}, "silent": {Held: true}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWeb(t, 3)
			q := w.quorum(1, "q")
			d, s := w.node[0].drip(q, "d", 100), w.node[0].sip(q, nil)
			d.flows(100)
			w.Net.Between("n1", "n2", way)
			d.flows(300)
			w.Net.Heal()
			d.flows(100)
			sent, _, nacks := d.end()
			if nacks != 0 {
				t.Errorf("%d of %d publishes were nacked", nacks, sent)
			}
			until(t, "the queue is drained", func() bool { return w.node[w.leading(q, 2)].listing(q).Messages == 0 })
			audit(t, "d", d, s)
		})
	}
}
