package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"holdfast/test/rig"
)

// clusterNodes is how many nodes a cluster has.
const clusterNodes = 3

// startHoldfasts starts the nodes of a cluster, each with a data folder of its own.
func startHoldfasts(binary, dir string, want shape) (*instance, error) {
	i := &instance{data: dir}
	var all []*rig.Broker
	i.stop = func() error {
		var errs []error
		for _, b := range all {
			errs = append(errs, b.Kill())
		}
		if i.links != nil {
			i.links.close()
		}
		return errors.Join(errs...)
	}
	fail := func(err error) (*instance, error) {
		return nil, errors.Join(err, i.stop())
	}
	var between []string // where nodes reach each other
	for n := range want.nodes {
		addr, err := rig.FreeAddr()
		if err != nil {
			return fail(err)
		}
		i.names, between = append(i.names, fmt.Sprint("n", n+1)), append(between, addr)
	}
	binaries := make([]string, want.nodes)
	for n := range binaries {
		binaries[n] = binary
	}
	if want.links {
		var err error
		if i.links, between, err = newRelays(dir, between); err != nil {
			return fail(err)
		}
		for n := range binaries {
			if binaries[n], err = i.links.wrap(dir, binary, n); err != nil {
				return fail(err)
			}
		}
	}
	for n, name := range i.names {
		b, err := rig.New(binaries[n], filepath.Join(dir, name), "--name", name, "--cluster", between[n], "--join", strings.Join(between, ","))
		if err == nil {
			err = b.Launch()
		}
		if err != nil {
			return fail(err)
		}
		all = append(all, b)
	}
	for _, b := range all {
		if err := b.Ready(); err != nil {
			return fail(err)
		}
		i.urls, i.pids = append(i.urls, "amqp://"+b.Addr), append(i.pids, b.Pid())
	}
	first := all[0]
	i.metrics, i.ended, i.relaunch, i.ctl = "http://"+first.HTTP+"/metrics", first.Ended(), first.Launch, first.Ctl
	return i, nil
}

// fill puts what the scenario's options speak of into them:
//
//	{data}                     the folder on the disk that the broker writes to
//	{node1}, {node2}, {node3}  addresses of nodes; {nodes} all of them, {others} all but the first
//	{pid1}, {pid2}, {pid3}     their processes
//	{outside}                  a node without a member of the quorum queue called "outside", which has two, the leader on the
//	                           first; the queue is declared for that
//	{cut}, {mend}              shell commands that hold up what goes to and from the first node, and let it pass again
func (i *instance) fill(b *bench, args []string) error {
	pairs := []string{"{data}", i.data, "{nodes}", strings.Join(i.urls, ","), "{others}", strings.Join(i.urls[1:], ",")}
	for n, u := range i.urls {
		pairs = append(pairs, fmt.Sprintf("{node%d}", n+1), u)
	}
	for n, pid := range i.pids {
		pairs = append(pairs, fmt.Sprintf("{pid%d}", n+1), fmt.Sprint(pid))
	}
	if i.links != nil {
		pairs = append(pairs, "{cut}", i.links.command("cut"), "{mend}", i.links.command("mend"))
	}
	if strings.Contains(strings.Join(args, " "), "{outside}") {
		url, err := i.outside(b)
		if err != nil {
			return err
		}
		pairs = append(pairs, "{outside}", url)
	}
	r := strings.NewReplacer(pairs...)
	for n := range args {
		args[n] = r.Replace(args[n])
	}
	return nil
}

// outside declares the queue of that name with two members on the first node, and
// finds a node that is none of them.
func (i *instance) outside(b *bench) (string, error) {
	if i.ctl == nil {
		return "", fmt.Errorf("who is a member of a queue cannot be asked here")
	}
	args := "perf throughput -x 0 -y 1 -z 0.1 --keep --quiet -f persistent -u outside -qa x-queue-type=quorum,x-quorum-initial-group-size=2 -h " + i.urls[0]
	if out, err := exec.Command(b.perf, strings.Fields(args)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", args, err, out)
	}
	list, err := i.ctl("list_queues", "name", "members")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(list) {
		if !strings.HasPrefix(line, "outside") {
			continue
		}
		for n, name := range i.names {
			if !strings.Contains(line, name) {
				return i.urls[n], nil
			}
		}
	}
	return "", fmt.Errorf("every node is a member: %s", list)
}

// wrap is a program that runs the broker so that the names of the other nodes lead
// to the relays between them and node n: in a space of mounts of its own, with
// another /etc/hosts. That takes root.
func (r *relays) wrap(dir, binary string, n int) (string, error) {
	hosts, program := filepath.Join(dir, fmt.Sprint("hosts", n+1)), filepath.Join(dir, fmt.Sprint("holdfast", n+1))
	text := fmt.Sprintf(`#!/bin/sh
[ "$1" = serve ] || exec '%[1]s' "$@"
exec unshare --mount sh -c 'mount --bind "%[2]s" /etc/hosts && exec "%[1]s" "$@"' sh "$@"
`, binary, hosts)
	if err := os.WriteFile(hosts, []byte(r.hosts(n)), 0o644); err != nil {
		return "", err
	}
	return program, os.WriteFile(program, []byte(text), 0o755)
}
