package blackbox

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"holdfast/test/rig"
)

// apart lists the nodes that a node says have another catalog.
func (n *node) apart() []string {
	n.t.Helper()
	var status struct{ Partitions map[string][]string }
	ok(n.t, json.Unmarshal([]byte(must(n.Ctl("cluster_status", "--formatter", "json"))(n.t)), &status))
	var list []string
	for _, names := range status.Partitions {
		list = append(list, names...)
	}
	slices.Sort(list)
	return list
}

// R311: one of three nodes is lost, and the other two do not see each other: the operator has both go on alone. When they see each other
// again they have no part with each other, and say so. One is given up and joins the other anew, and so does the lost one.
func TestQuorumBothSidesWereForced(t *testing.T) {
	t.Parallel()
	heavy(t)
	w := newWeb(t, 3)
	q := w.quorum(0, "q")
	if !all(publishes(t, w.node[0].confirming(), "", q, several("a", 10)...), true) {
		t.Fatal("nacked")
	}
	w.caughtUp(q, 0)
	ok(t, w.node[2].Kill())
	w.Net.Between("n1", "n2", rig.Way{Cut: true})
	for i, queue := range []string{"one", "two"} {
		until(t, "it goes on alone", func() bool { _, err := w.node[i].Ctl("force_boot"); return err == nil })
		must(w.node[i].open().QueueDeclare(queue, true, false, false, false, nil))(t)
	}
	w.Net.Heal()
	until(t, "n1 says so", func() bool { return slices.Equal(w.node[0].apart(), []string{"n2"}) })
	until(t, "n2 says so", func() bool { return slices.Equal(w.node[1].apart(), []string{"n1"}) })
	if text := must(w.node[1].Ctl("cluster_status"))(t); !strings.Contains(text, "Node n2 has another catalog than n1") || !strings.Contains(text, "ctl force_reset") {
		t.Errorf("the status:\n%s", text)
	}
	if v := must(w.node[0].Series("/metrics"))(t)["holdfast_cluster_nodes_apart"]; v != 1 {
		t.Errorf("%v nodes apart", v)
	}
	w.node[0].absent("two")
	w.node[1].absent("one")

	w.node[1].does("stop_app")
	w.node[1].does("force_reset")
	w.node[0].does("forget_cluster_node", "n2")
	w.node[1].does("start_app")
	ok(t, w.node[2].Start())
	for _, m := range w.node {
		m.known("n1", "n2", "n3")
		until(t, m.name+" is of one mind with the others", func() bool { return len(m.apart()) == 0 })
		must(m.open().QueueDeclarePassive("one", true, false, false, false, nil))(t)
		m.absent("two")
	}
	w.node[0].votes(3)
	w.node[0].adds(q, "n2")
	w.caughtUp(q, 1)
	ch := w.node[1].open()
	for _, body := range several("a", 10) {
		equal(t, "body", string(get(t, ch, q, true).Body), body)
	}
	empty(t, ch, q)
}
