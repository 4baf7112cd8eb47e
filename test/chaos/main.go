// Command chaos runs a cluster of three brokers, has clients publish and consume on all of them, and does to it
// whatever happens to clusters: kill -9, restarts, processes that stand still, cut, held and slow links, a full disk, members of queues
// that come and go, nodes that are lost for good and replaced, leaders that move. Then it lets everything heal, and checks what the clients saw.
//
//	go run ./test/chaos -minutes 30 -seed 7
//
// What must hold: a confirmed publish comes out of every queue that it was routed to; what is handed out a second time says
// redelivered; the first deliveries of a channel's publishes to one consumer come in the order of publishing; bodies are
// whole; nothing comes that nobody has published; every publish and every request is answered within a bound; in the end
// every queue is drained, and every consumer gets its share. A letter of a message that died comes to where it is to go, though it may
// come more than once; what is delayed does not come before its time; of what is published again to a queue
// or an exchange without duplicates one comes, or one at a time; what is sent back to where it died arrives there. What a client publishes again, after a nack or a lost
// connection, is another publish, and counted apart.
//
// It never judges what a client was not told: a publish without an answer may be there or not.
//
// That the audit notices what must not be, -plant shows: with a mistake in the books the run has to end with a fault.
//
// Map of the files: main.go begins and judges; clients.go publishes and consumes; special.go has queues that do more than keep messages; nemesis.go does harm, replace.go loses a node for good,
// disk.go is a small disk to be filled; journal.go is what the clients know, with the faults that are found in it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/rig"
)

var verbose bool

type options struct {
	minutes         float64
	seed            uint64
	rate            float64
	quorum, classic int
	dir, only       string
	big, special    bool
	disk            int
	plant           string
}

func main() {
	var o options
	flag.Float64Var(&o.minutes, "minutes", 10, "how long harm is done")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64(), "seed of the random choices")
	flag.Float64Var(&o.rate, "rate", 120, "publishes per second, all together")
	flag.IntVar(&o.quorum, "quorum", 4, "quorum queues")
	flag.IntVar(&o.classic, "classic", 2, "classic queues")
	flag.StringVar(&o.dir, "dir", "", "folder for data and logs; it is kept")
	flag.StringVar(&o.only, "only", "", "kinds of harm, with commas between them; all of them unless given")
	flag.BoolVar(&o.big, "big", true, "publish messages of 16 MiB, too")
	flag.BoolVar(&o.special, "special", true, "have queues with dead letters that go out and come back, times to live, limits, delays and deduplication, too")
	flag.IntVar(&o.disk, "disk", 600, "MiB of the disk of one node, which is filled now and then; 0: none is. It takes the right to mount one")
	flag.StringVar(&o.plant, "plant", "", "a mistake in the books, which has to be noticed: lost, twice")
	flag.BoolVar(&verbose, "v", false, "say everything that is done")
	flag.Parse()
	fmt.Printf("chaos: seed %d, %v minutes\n", o.seed, o.minutes)
	if err := run(o); err != nil {
		fmt.Fprintf(os.Stderr, "chaos: seed %d: %v\n", o.seed, err)
		os.Exit(1)
	}
}

func run(o options) (err error) {
	dir := o.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "holdfast-chaos-"); err != nil {
			return err
		}
		defer func() {
			if err == nil {
				err = os.RemoveAll(dir)
			} else {
				fmt.Fprintln(os.Stderr, "data, logs and the story are kept in", dir)
			}
		}()
	}
	binary, err := rig.Binary(dir)
	if err != nil {
		return err
	}
	c, err := rig.NewCluster(binary, dir, 3)
	if err != nil {
		return err
	}
	defer c.Close()
	small, err := smallDisk(c, dir, o.disk)
	if err != nil {
		return err
	}
	defer small.unmount()
	if err := c.Start(); err != nil {
		return err
	}
	j := newJournal()
	j.plant = o.plant
	defer func() {
		if err != nil {
			_ = os.WriteFile(filepath.Join(dir, "story"), []byte(strings.Join(j.nemesis, "\n")+"\n\n"+strings.Join(j.faults, "\n")+"\n"), 0o644)
		}
	}()
	return drive(o, c, j, small)
}

// drive declares, starts clients and nemesis, and judges.
func drive(o options, c *rig.Cluster, j *journal, small *disk) error {
	quorum, classic, err := declare(o, c)
	if err != nil {
		return err
	}
	quiet, beQuiet := context.WithCancel(context.Background())
	defer beQuiet()
	stop, end := context.WithCancel(context.Background())
	defer end()
	r := rand.New(rand.NewPCG(o.seed, 1))
	seed := func() *rand.Rand { return rand.New(rand.NewPCG(r.Uint64(), r.Uint64())) }
	all := append(append([]string{}, quorum...), classic...)
	cl := &clients{j: j, nodes: c.Nodes, quiet: quiet, stop: stop, live: map[string]*reader{}, seen: map[string]int{}, outstanding: map[string]int{}}
	go j.watch(stop)
	cl.gap = time.Duration(float64(time.Second) * float64(2*len(all)+1) / o.rate)
	var names []string
	for i, q := range all {
		for k := range 2 {
			at, s := (i+k)%3, seed()
			cl.publish.Go(func() { cl.publisher(fmt.Sprintf("p.%s.%d", q, k), place{key: q, queues: []string{q}}, at, s) })
		}
		for k := range 3 {
			name, s := fmt.Sprintf("c.%s.%d", q, k), seed()
			names = append(names, name)
			cl.consume.Go(func() { cl.consumer(name, q, k, s) })
		}
		s := seed()
		cl.consume.Go(func() { cl.getter("g."+q, q, (i+2)%3, s) })
	}
	if len(classic) > 0 && len(quorum) > 0 {
		s := seed()
		cl.publish.Go(func() { cl.publisher("p.both", place{exchange: "both", queues: []string{quorum[0], classic[0]}}, 1, s) })
	}
	if o.big {
		for i, q := range []string{all[0], all[len(all)-1]} {
			s := seed()
			cl.publish.Go(func() { cl.publisher(big+"."+q, place{key: q, queues: []string{q}}, i+1, s) })
		}
	}

	var special []string
	if o.special {
		if special, err = cl.special(c, seed); err != nil {
			return err
		}
	}

	harm, enough := context.WithTimeout(context.Background(), time.Duration(o.minutes*float64(time.Minute)))
	defer enough()
	n := &nemesis{j: j, c: c, r: rand.New(rand.NewPCG(o.seed, 2)), quorum: append(quorum, quorumOf(special)...), classic: classic, only: map[string]bool{}, down: map[*rig.Node]bool{}, small: small}
	for kind := range strings.SplitSeq(o.only, ",") {
		if kind != "" {
			n.only[kind] = true
		}
	}
	done := make(chan error, 1)
	go func() { done <- n.run(harm) }()
	minute := time.NewTicker(time.Minute)
	defer minute.Stop()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("the cluster could not be driven on: %w", err)
			}
			running = false
		case <-minute.C:
			fmt.Printf("%v: %s\n", j.now(), j.line())
		}
	}
	return judge(c, j, cl, all, special, names, beQuiet, end)
}

// judge lets everything heal and looks at what came out.
func judge(c *rig.Cluster, j *journal, cl *clients, all, special, names []string, beQuiet, end context.CancelFunc) error {
	j.act("no more harm")
	c.Net.Heal()
	if err := wait("the nodes see each other", time.Minute, func() (bool, string) { return together(c) }); err != nil {
		j.fault("%v", err)
	}
	for _, n := range c.Nodes { // whatever was taken away is given back
		if out, err := c.Nodes[0].Ctl("grow", n.Name, "all", "--errors-only"); err != nil {
			j.act("growing on %s: %v %s", n.Name, err, out)
		}
	}
	beQuiet()
	finished := make(chan struct{})
	go func() { cl.publish.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-time.After(2 * time.Minute):
		j.fault("publishers cannot get confirmed what is left, two minutes after everything was well again")
	}
	time.Sleep(mostDelay) // what was published last may be due only then
	if err := wait("the queues are drained", 2*time.Minute, func() (bool, string) { return drained(c, append(special, all...)) }); err != nil {
		j.fault("%v", err)
	}
	stuck(c, j, cl, all, special, names)
	end()
	cl.consume.Wait()
	fmt.Printf("%v: %s\n", j.now(), j.line())
	missing, queues := j.missing()
	fmt.Printf("confirmed and never delivered: %d %v; messages that came again because the client published them again: %d\n", len(missing), queues, j.repeated())
	for i, m := range missing {
		if i < 10 {
			fmt.Print(m)
		}
	}
	if len(missing) > 0 {
		j.fault("%d confirmed publishes are lost: %v", len(missing), queues)
	}
	for _, n := range c.Nodes {
		if err := n.Stop(); err != nil {
			j.fault("%s: %v", n.Name, err)
		}
	}
	if faults := j.counts["faults"]; faults > 0 {
		return fmt.Errorf("%d faults:\n%s", faults, strings.Join(j.faults, "\n"))
	}
	fmt.Println("chaos: no fault found")
	return nil
}

// declare makes the queues: quorum queues led by one node after the other, classic ones on different nodes.
func declare(o options, c *rig.Cluster) (quorum, classic []string, err error) {
	for i := range o.quorum + o.classic {
		conn, err := amqp.Dial(c.Nodes[i%3].URL())
		if err != nil {
			return nil, nil, err
		}
		ch, err := conn.Channel()
		if err != nil {
			return nil, nil, err
		}
		name, args := fmt.Sprintf("quorum-%d", i+1), amqp.Table{"x-queue-type": "quorum"}
		if i >= o.quorum {
			name, args = fmt.Sprintf("classic-%d", i+1-o.quorum), nil
			classic = append(classic, name)
		} else {
			quorum = append(quorum, name)
		}
		if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
			return nil, nil, fmt.Errorf("declaring %s: %w", name, err)
		}
		if i == 0 || i == o.quorum { // the first of each kind
			err = ch.ExchangeDeclare("both", "fanout", true, false, false, false, nil)
			if err == nil {
				err = ch.QueueBind(name, "", "both", false, nil)
			}
			if err != nil {
				return nil, nil, err
			}
		}
		conn.Close()
	}
	return quorum, classic, nil
}

// wait waits until something holds; what is missing is in the error otherwise.
func wait(what string, most time.Duration, holds func() (bool, string)) error {
	var why string
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		var is bool
		if is, why = holds(); is {
			return nil
		}
	}
	return errors.New("not within " + most.String() + ": " + what + ": " + why)
}

// together says whether all nodes see all others.
func together(c *rig.Cluster) (bool, string) {
	for _, n := range c.Nodes {
		out, err := n.Ctl("cluster_status", "--formatter", "json")
		if err != nil {
			return false, err.Error()
		}
		var status struct {
			Running []string `json:"running_nodes"`
		}
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			return false, err.Error()
		}
		if len(status.Running) != len(c.Nodes) {
			return false, n.Name + " sees " + strings.Join(status.Running, ", ")
		}
	}
	return true, ""
}

// drained says whether all queues are empty and nothing is unacknowledged, as the node says that leads them.
func drained(c *rig.Cluster, queues []string) (bool, string) {
	counted := 0
	for _, n := range c.Nodes {
		if is, why := noneDelayed(n); !is {
			return false, why
		}
		out, err := n.Ctl("list_queues", "name", "messages", "messages_delayed", "messages_dlx", "consumers", "leader", "--formatter", "json")
		if err != nil {
			return false, err.Error()
		}
		var rows []struct {
			Name     string
			Messages int
			Delayed  int `json:"messages_delayed"`
			Dead     int `json:"messages_dlx"`
			Leader   string
		}
		if err := json.Unmarshal([]byte(out), &rows); err != nil {
			return false, err.Error()
		}
		if len(rows) != len(queues) {
			return false, n.Name + " lists: " + out
		}
		for _, q := range rows {
			if q.Leader == n.Name && q.Messages+q.Delayed+q.Dead != 0 { // the others may not have asked lately
				return false, n.Name + " lists: " + out
			}
			if q.Leader == n.Name {
				counted++
			}
		}
	}
	return counted >= len(queues), "some queues have no leader"
}

// noneDelayed says whether no exchange keeps messages for later, as a node says.
func noneDelayed(n *rig.Node) (bool, string) {
	out, err := n.Ctl("list_exchanges", "name", "messages_delayed", "--formatter", "json")
	if err != nil {
		return false, err.Error()
	}
	var rows []struct {
		Name    string
		Delayed any `json:"messages_delayed"` // a number, if it delays
	}
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		return false, err.Error()
	}
	for _, x := range rows {
		if count, is := x.Delayed.(float64); is && count > 0 {
			return false, n.Name + " lists: " + out
		}
	}
	return true, ""
}

// stuck has every consumer prove that it is alive: it must get some of what is published to its queue now.
func stuck(c *rig.Cluster, j *journal, cl *clients, all, special, names []string) {
	live := func() (missing []string) {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		for _, name := range names {
			if cl.live[name] == nil {
				missing = append(missing, name)
			}
		}
		return missing
	}
	if err := wait("all consumers are subscribed", time.Minute, func() (bool, string) { m := live(); return len(m) == 0, strings.Join(m, ", ") }); err != nil {
		j.fault("%v", err)
	}
	cl.mu.Lock()
	before := map[string]int{}
	for name, n := range cl.seen {
		before[name] = n
	}
	cl.mu.Unlock()
	conn, err := amqp.Dial(c.Nodes[0].URL())
	if err != nil {
		j.fault("after everything was well again: %v", err)
		return
	}
	defer conn.Close()
	seq := 0
	probe := func() {
		for _, q := range all {
			ch, err := conn.Channel()
			if err == nil {
				err = ch.Confirm(false)
			}
			if err != nil {
				j.fault("after everything was well again: %v", err)
				return
			}
			seq++
			channel := fmt.Sprintf("probe.%s.%d", q, seq)
			for k := 1; k <= 60; k++ {
				p := &publish{id: fmt.Sprintf("%s/%d/m", channel, k), channel: channel, seq: k, queues: []string{q}}
				j.sent(p)
				d, err := ch.PublishWithDeferredConfirm("", q, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: p.id, Body: []byte(content(p.id))})
				if err != nil {
					j.fault("probing %s: %v", q, err)
					return
				}
				if k == 60 {
					ctx, cancel := context.WithTimeout(context.Background(), answerBound)
					if is, err := d.WaitContext(ctx); !is {
						j.fault("the last probe to %s: confirmed %v, %v", q, is, err)
					} else {
						j.answer(p, acked)
					}
					cancel()
				}
			}
			ch.Close()
		}
	}
	silent := func() (bool, string) {
		probe()
		time.Sleep(300 * time.Millisecond)
		cl.mu.Lock()
		defer cl.mu.Unlock()
		var list []string
		for _, name := range names {
			if cl.seen[name] == before[name] {
				list = append(list, name)
			}
		}
		return len(list) == 0, strings.Join(list, ", ")
	}
	if err := wait("every consumer gets something", time.Minute, silent); err != nil {
		j.fault("%v", err)
	}
	if err := wait("the queues are drained of the probes", time.Minute, func() (bool, string) { return drained(c, append(special, all...)) }); err != nil {
		j.fault("%v", err)
	}
}
