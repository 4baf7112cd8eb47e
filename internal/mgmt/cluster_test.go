package mgmt

import (
	"strings"
	"testing"
)

// cluster_status says who is in the cluster and how each node stands.
func TestClusterStatus(t *testing.T) {
	_, o, _ := start(t, func(o *Options) {
		o.Cluster = func() Cluster {
			return Cluster{
				Name: "c", DiskNodes: []string{"n1", "n2"}, RunningNodes: []string{"n1"},
				Versions: map[string]map[string]string{"n1": {"holdfast_version": "1"}},
				Nodes: []ClusterNode{
					{Name: "n1", State: "up", Voter: true, Leader: true, Self: true},
					{Name: "n2", Address: "h:1", State: "suspect", Reason: "lost its link", Voter: true},
				},
			}
		}
	})
	out := must(t, o, "cluster_status")
	for _, want := range []string{"Cluster status of node n1", "Disk Nodes\n\nn1\nn2\n", "Running Nodes\n\nn1\n",
		"Node: n2, address: h:1, state: suspect (lost its link), votes\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
	if out := must(t, o, "cluster_status", "--formatter", "json"); !strings.Contains(out, `"running_nodes":["n1"]`) {
		t.Error(out)
	}
}
