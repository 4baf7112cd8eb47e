package blackbox

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/test/rig"
)

// Nodes that are told one host name find all that it stands for, and those that it comes to stand for while they look.
func TestClusterByHostName(t *testing.T) {
	t.Parallel()
	secret := secretFile(t)
	if err := exec.Command("unshare", "-m", "true").Run(); err != nil {
		t.Skipf("host names of its own are only to be had with a mount of its own: %v", err)
	}
	hosts, binary := filepath.Join(t.TempDir(), "hosts"), filepath.Join(t.TempDir(), "holdfast")
	know := func(n int) {
		text := "127.0.0.1 localhost\n"
		for i := range n {
			text += fmt.Sprintf("127.0.0.%d nodes.test\n", i+1)
		}
		ok(t, os.WriteFile(hosts, []byte(text), 0o644))
	}
	ok(t, os.WriteFile(binary, []byte(fmt.Sprintf(
		"#!/bin/sh\nexec unshare -m sh -c 'mount --bind \"$0\" /etc/hosts && exec \"$@\"' '%s' '%s' \"$@\"\n", hosts, target.binary)), 0o755))
	_, port, err := net.SplitHostPort(must(rig.FreeAddr())(t))
	ok(t, err)
	file := filepath.Join(t.TempDir(), "holdfast.conf")
	ok(t, os.WriteFile(file, []byte("cluster_formation.dns.hostname = nodes.test\n"), 0o600))
	know(1)
	var c []*member
	for i := range 3 {
		addr := fmt.Sprintf("127.0.0.%d:%s", i+1, port)
		m := &member{ownNode(t, "--name", fmt.Sprintf("n%d", i+1), "--cluster", addr, "--cluster-secret-file", secret), "", addr}
		m.name, m.Binary = fmt.Sprintf("n%d", i+1), binary
		if i < 2 {
			m.Extra = append(m.Extra, "--config", file)
		} else {
			m.Extra = append(m.Extra, "--join", "nodes.test:"+port) // the same by another way
		}
		c = append(c, m)
	}
	ok(t, c[0].Launch())
	c[0].said("looking for the other nodes")
	know(3)
	ok(t, c[1].Launch())
	ok(t, c[2].Launch())
	for _, m := range c {
		ok(t, m.Ready())
		m.known("n1", "n2", "n3")
	}
	if strings.Contains(c[0].Tail(), "a node asked to join") {
		t.Error("one of them was refused on the way")
	}
	must(c[0].open().QueueDeclare("q", true, false, false, false, nil))(t)
	must(c[2].open().QueueDeclarePassive("q", true, false, false, false, nil))(t)
}
