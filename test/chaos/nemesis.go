package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"holdfast/test/rig"
)

// nemesis does things to a cluster, and takes them back. Its methods are for one goroutine.
type nemesis struct {
	j       *journal
	c       *rig.Cluster
	r       *rand.Rand
	quorum  []string
	classic []string
	small   *disk
	only    map[string]bool // kinds of harm; empty: all
	down    map[*rig.Node]bool
}

// harm is one thing that can be done. It returns what takes it back, and how long it lasts.
type harm struct {
	name   string
	weight int
	do     func(n *nemesis, at *rig.Node) (undo func() error, lasts time.Duration, err error)
}

func (n *nemesis) upTo(least, most time.Duration) time.Duration {
	return least + time.Duration(n.r.Float64()*float64(most-least))
}

func (n *nemesis) other(than *rig.Node) *rig.Node {
	for {
		if o := n.c.Nodes[n.r.IntN(len(n.c.Nodes))]; o != than {
			return o
		}
	}
}

func nothing() error { return nil }

var harms = []harm{
	{"kill", 10, func(n *nemesis, at *rig.Node) (func() error, time.Duration, error) {
		n.j.act("kill -9 %s", at.Name)
		return func() error { n.j.act("start %s", at.Name); return at.Start() }, n.upTo(0, 6*time.Second), at.Kill()
	}},
	{"term", 8, func(n *nemesis, at *rig.Node) (func() error, time.Duration, error) {
		n.j.act("stop %s", at.Name)
		err := at.Stop()
		return func() error { n.j.act("start %s", at.Name); return at.Start() }, n.upTo(0, 3*time.Second), err
	}},
	{"pause", 8, func(n *nemesis, at *rig.Node) (func() error, time.Duration, error) {
		n.j.act("SIGSTOP %s", at.Name)
		n.j.stands(at.Name, true)
		return func() error {
			n.j.act("SIGCONT %s", at.Name)
			err := at.Resume()
			n.j.stands(at.Name, false)
			return err
		}, n.upTo(200*time.Millisecond, 8*time.Second), at.Pause()
	}},
	{"cut", 6, func(n *nemesis, at *rig.Node) (func() error, time.Duration, error) {
		n.j.act("cut %s off, with resets", at.Name)
		n.c.Isolate(at, rig.Way{Cut: true})
		return n.heal, n.upTo(500*time.Millisecond, 12*time.Second), nil
	}},
	{"hold", 8, func(n *nemesis, at *rig.Node) (func() error, time.Duration, error) {
		n.j.act("cut %s off, without a word", at.Name)
		n.c.Isolate(at, rig.Way{Held: true})
		return n.heal, n.upTo(500*time.Millisecond, 20*time.Second), nil
	}},
	{"one-way", 8, func(n *nemesis, at *rig.Node) (func() error, time.Duration, error) {
		out := n.r.IntN(2) == 0
		n.j.act("hold what %s %s", at.Name, map[bool]string{true: "sends", false: "is sent"}[out])
		for _, o := range n.c.Nodes {
			if o == at {
				continue
			}
			from, to := at, o
			if !out {
				from, to = o, at
			}
			n.c.Net.Set(from.Name, to.Name, rig.Way{Held: true})
		}
		return n.heal, n.upTo(500*time.Millisecond, 12*time.Second), nil
	}},
	{"link", 8, func(n *nemesis, at *rig.Node) (func() error, time.Duration, error) {
		to := n.other(at)
		w := rig.Way{Held: n.r.IntN(2) == 0}
		w.Cut = !w.Held
		both := n.r.IntN(2) == 0
		n.j.act("link from %s to %s: %+v, both ways: %v", at.Name, to.Name, w, both)
		n.c.Net.Set(at.Name, to.Name, w)
		if both {
			n.c.Net.Set(to.Name, at.Name, w)
		}
		return n.heal, n.upTo(500*time.Millisecond, 15*time.Second), nil
	}},
	{"slow", 5, func(n *nemesis, at *rig.Node) (func() error, time.Duration, error) {
		w := rig.Way{Delay: n.upTo(time.Millisecond, 300*time.Millisecond), Rate: 100_000}
		n.j.act("slow ways from and to %s: %+v", at.Name, w)
		n.c.Isolate(at, w)
		return n.heal, n.upTo(time.Second, 10*time.Second), nil
	}},
	{"flap", 5, func(n *nemesis, at *rig.Node) (func() error, time.Duration, error) {
		n.j.act("cut %s off again and again", at.Name)
		for range 3 + n.r.IntN(6) {
			n.c.Isolate(at, rig.Way{Cut: true})
			time.Sleep(n.upTo(10*time.Millisecond, 900*time.Millisecond))
			n.c.Isolate(at, rig.Way{})
			time.Sleep(n.upTo(10*time.Millisecond, 900*time.Millisecond))
		}
		return n.heal, 0, nil
	}},
	{"majority", 2, func(n *nemesis, at *rig.Node) (func() error, time.Duration, error) {
		n.j.act("every node on its own")
		for _, o := range n.c.Nodes {
			n.c.Isolate(o, rig.Way{Held: true})
		}
		return n.heal, n.upTo(2*time.Second, 25*time.Second), nil
	}},
	{"two down", 2, func(n *nemesis, at *rig.Node) (func() error, time.Duration, error) {
		and := n.other(at)
		n.j.act("kill -9 %s and %s", at.Name, and.Name)
		err := at.Kill()
		if err == nil {
			err = and.Kill()
		}
		return func() error {
			n.j.act("start %s and %s", at.Name, and.Name)
			return n.launch(at, and)
		}, n.upTo(time.Second, 20*time.Second), err
	}},
	{"all down", 2, func(n *nemesis, at *rig.Node) (func() error, time.Duration, error) {
		n.j.act("kill -9 everything")
		for _, o := range n.c.Nodes {
			if err := o.Kill(); err != nil {
				return nothing, 0, err
			}
		}
		return func() error { n.j.act("start everything"); return n.launch(n.c.Nodes...) }, n.upTo(0, 3*time.Second), nil
	}},
	{"full disk", 5, func(n *nemesis, _ *rig.Node) (func() error, time.Duration, error) {
		if n.small.node == nil {
			return nothing, 0, nil
		}
		n.j.act("fill the disk of %s", n.small.node.Name)
		err := n.small.fill()
		return func() error {
			n.j.act("there is room again on %s", n.small.node.Name)
			return n.small.empty()
		}, n.upTo(time.Second, 10*time.Second), err
	}},
	{"replace", 3, (*nemesis).replace},
	{"member", 6, func(n *nemesis, at *rig.Node) (func() error, time.Duration, error) {
		if n.r.IntN(3) == 0 {
			n.ctl(n.other(at), "shrink", at.Name)
			return func() error { n.ctl(n.other(at), "grow", at.Name, "all"); return nil }, n.upTo(0, 5*time.Second), nil
		}
		q := n.quorum[n.r.IntN(len(n.quorum))]
		n.ctl(n.other(at), "delete_member", q, at.Name)
		return func() error { n.ctl(n.other(at), "add_member", q, at.Name); return nil }, n.upTo(0, 5*time.Second), nil
	}},
	{"transfer", 8, func(n *nemesis, at *rig.Node) (func() error, time.Duration, error) {
		switch n.r.IntN(5) {
		case 0:
			n.ctl(at, "rebalance", "all")
		case 1:
			n.ctl(at, "drain")
			return func() error { n.ctl(at, "revive"); return nil }, n.upTo(0, 4*time.Second), nil
		default:
			for _, q := range n.quorum {
				if n.r.IntN(2) == 0 {
					n.ctl(n.other(at), "transfer_leadership", q, at.Name)
				}
			}
		}
		return nothing, 0, nil
	}},
}

func (n *nemesis) heal() error {
	n.j.act("the network is well again")
	n.c.Net.Heal()
	return nil
}

// launch starts several nodes at once.
func (n *nemesis) launch(nodes ...*rig.Node) error {
	for _, o := range nodes {
		if err := o.Launch(); err != nil {
			return err
		}
	}
	for _, o := range nodes {
		if err := o.Ready(); err != nil {
			return fmt.Errorf("%s: %w", o.Name, err)
		}
	}
	return nil
}

// ctl gives an order, which may fail: others may be down.
func (n *nemesis) ctl(at *rig.Node, args ...string) {
	if n.down[at] {
		n.j.act("%s: %s: it is down or stands still", at.Name, strings.Join(args, " "))
		return
	}
	out, err := at.Ctl(append(args, "--timeout", "25")...)
	text := "ok"
	if err != nil {
		text = strings.ReplaceAll(err.Error(), "\n", " ")
	}
	if strings.Contains(out, "error") {
		text += " " + strings.ReplaceAll(out, "\n", " ")
	}
	n.j.count("orders")
	if err != nil {
		n.j.count("orders refused")
	}
	n.j.act("%s: ctl %s: %s", at.Name, strings.Join(args, " "), text)
}

// run does one thing after the other until the end, and then takes everything back.
func (n *nemesis) run(ctx context.Context) error {
	var pool []harm
	for _, h := range harms {
		if len(n.only) > 0 && !n.only[h.name] {
			continue
		}
		for range h.weight {
			pool = append(pool, h)
		}
	}
	if len(pool) == 0 { // a run to see that all is well without harm
		<-ctx.Done()
	}
	for ctx.Err() == nil {
		h := pool[n.r.IntN(len(pool))]
		at := n.c.Nodes[n.r.IntN(len(n.c.Nodes))]
		switch {
		case h.name == "replace":
			at = n.c.Nodes[0]
		case h.name == "full disk" && n.small.node != nil:
			at = n.small.node
		}
		n.j.count("harm: " + h.name)
		undo, lasts, err := h.do(n, at)
		if err != nil {
			return fmt.Errorf("%s %s: %w", h.name, at.Name, err)
		}
		n.down[at] = true
		also := nothing
		if n.r.IntN(4) == 0 && h.name != "member" && h.name != "transfer" { // orders meanwhile
			m := harms[len(harms)-1-n.r.IntN(2)]
			if len(n.only) == 0 || n.only[m.name] {
				back, _, err := m.do(n, n.other(at))
				if err == nil {
					also = back
				}
			}
		}
		pause(ctx, lasts)
		n.down[at] = false
		if err := undo(); err != nil {
			return fmt.Errorf("after %s of %s: %w", h.name, at.Name, err)
		}
		if err := also(); err != nil {
			return fmt.Errorf("after %s of %s: %w", h.name, at.Name, err)
		}
		pause(ctx, n.upTo(500*time.Millisecond, 7*time.Second))
	}
	return nil
}
