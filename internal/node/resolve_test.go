package node

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"holdfast/internal/config"
)

// A host name with several addresses stands for all of them; one with an address of each family for one node.
func TestExpand(t *testing.T) {
	names := map[string][]string{
		"one": {"10.0.0.1"}, "both": {"::1", "10.0.0.1"}, "many": {"10.0.0.2", "fd00::1", "10.0.0.1"}, "six": {"fd00::1", "fd00::2"},
	}
	ask := func(_ context.Context, host string) ([]string, error) {
		if ips, is := names[host]; is {
			return ips, nil
		}
		return nil, errors.New("no such host")
	}
	for _, c := range []struct {
		list, want []string
		found      bool
	}{
		{[]string{"10.9.9.9:1", "[::1]:2"}, []string{"10.9.9.9:1", "[::1]:2"}, false},
		{[]string{"one:1", "both:1"}, []string{"one:1", "both:1"}, false},
		{[]string{"many:7", "one:1"}, []string{"10.0.0.2:7", "10.0.0.1:7", "one:1"}, true},
		{[]string{"six:7"}, []string{"[fd00::1]:7", "[fd00::2]:7"}, true},
		{[]string{"nobody:7"}, []string{"nobody:7"}, true},
	} {
		if got, found := expand(t.Context(), ask, c.list); !slices.Equal(got, c.want) || found != c.found {
			t.Errorf("%v: %v, %v", c.list, got, found)
		}
	}
	if got := joinList(config.Cluster{Address: "me:25672", Join: []string{"a:1"}, DNS: "all"}); !slices.Equal(got, []string{"a:1", "all:25672"}) {
		t.Errorf("the list is %v", got)
	}
}

// Three nodes find each other by one name, whose addresses come to be known one after another.
func TestClusterByName(t *testing.T) {
	tr := newTrio(t)
	_, port, err := net.SplitHostPort(tr.addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range tr.addrs {
		tr.addrs[i] = net.JoinHostPort([]string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}[i], port)
		l, err := net.Listen("tcp", tr.addrs[i])
		if err != nil {
			t.Skipf("this machine has one loopback address only: %v", err)
		}
		l.Close()
	}
	var asked atomic.Int64
	by := func(_ context.Context, host string) ([]string, error) {
		if host != "all.example" {
			return nil, errors.New("no such host")
		}
		known := min(asked.Add(1)/2, 3)
		if known == 0 {
			return nil, errors.New("no such host")
		}
		return []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}[:known], nil
	}
	var all sync.WaitGroup
	for i := range tr.nodes {
		all.Go(func() {
			o := tr.options(i)
			o.Settings.Cluster.Join, o.Settings.Cluster.DNS, o.Lookup = nil, "all.example", by
			n, err := Start(o)
			if err != nil {
				t.Error(err)
			}
			tr.nodes[i] = n
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	for _, n := range tr.nodes {
		if n.mesh.state.Cluster() != tr.nodes[0].mesh.state.Cluster() { // by two of them and the third joined, or by all
			t.Error("there are two clusters")
		}
	}
	must(open(t, tr.nodes[0]).QueueDeclare("q", true, false, false, false, nil))(t)
	must(open(t, tr.nodes[2]).QueueDeclarePassive("q", true, false, false, false, nil))(t)
}
