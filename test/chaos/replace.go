package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"holdfast/test/rig"
)

// replace loses a node with its data folder for good: the others forget it, and a new one of its name joins and is given members of the
// queues. Only a node can go that nothing would be lost with: no classic queue lives on it, and every quorum queue has all of its
// members, so that a majority stays that has everything.
func (n *nemesis) replace(_ *rig.Node) (func() error, time.Duration, error) {
	at := n.c.Nodes[0]
	on := n.other(at)
	if why := n.mayGo(at, on); why != "" {
		n.j.act("%s is not replaced: %s", at.Name, why)
		return nothing, 0, nil
	}
	n.j.act("%s is lost for good", at.Name)
	if err := at.Kill(); err != nil {
		return nil, 0, err
	}
	forget := func() (bool, string) {
		_, err := on.Ctl("forget_cluster_node", at.Name, "--timeout", "25")
		if err != nil {
			return false, err.Error()
		}
		return true, ""
	}
	if err := wait(at.Name+" is forgotten", time.Minute, forget); err != nil {
		n.j.fault("%v", err)
		return at.Start, 0, nil
	}
	n.j.act("%s is forgotten", at.Name)
	return func() error {
		if err := os.RemoveAll(at.Data); err != nil {
			return err
		}
		n.j.act("a new %s joins", at.Name)
		if err := at.Start(); err != nil {
			return err
		}
		if err := wait("three nodes vote", time.Minute, func() (bool, string) { return votes(on, 3) }); err != nil {
			n.j.fault("after a new node has joined: %v", err)
		}
		n.ctl(on, "grow", at.Name, "all")
		n.j.count("nodes replaced")
		return nil
	}, n.upTo(0, 5*time.Second), nil
}

// mayGo says why a node may not be lost for good; "": it may.
func (n *nemesis) mayGo(at, on *rig.Node) string {
	out, err := on.Ctl("list_queues", "name", "type", "members", "--formatter", "json")
	if err != nil {
		return err.Error()
	}
	var queues []struct {
		Name, Type string
		Members    []string
	}
	if err := json.Unmarshal([]byte(out), &queues); err != nil {
		return err.Error()
	}
	for _, q := range queues {
		if q.Type != "quorum" {
			if len(q.Members) != 1 || q.Members[0] == at.Name {
				return q.Name + " lives there"
			}
			continue
		}
		out, err := on.Ctl("quorum_status", q.Name, "--formatter", "json")
		if err != nil {
			return err.Error()
		}
		var rows []struct{ Membership string }
		if err := json.Unmarshal([]byte(out), &rows); err != nil {
			return err.Error()
		}
		if len(rows) < len(n.c.Nodes) {
			return fmt.Sprintf("%s has %d members", q.Name, len(rows))
		}
		for _, r := range rows {
			if r.Membership != "voter" {
				return q.Name + " has a member without a vote: " + out
			}
		}
	}
	return ""
}

// votes reports whether so many nodes vote on the catalog, as one of them says.
func votes(on *rig.Node, want int) (bool, string) {
	out, err := on.Ctl("cluster_status", "--formatter", "json")
	if err != nil {
		return false, err.Error()
	}
	var status struct {
		Nodes []struct {
			Name  string
			Voter bool
		}
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		return false, err.Error()
	}
	have := 0
	for _, n := range status.Nodes {
		if n.Voter {
			have++
		}
	}
	return have == want, out
}
