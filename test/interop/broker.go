package main

import (
	"fmt"
	"os/exec"
	"strings"

	"holdfast/test/rig"
)

// broker is a running broker, ours or a peer.
type broker struct {
	addr string
	own  *rig.Broker // nil for a peer
	stop func() error
}

// url is where clients connect; slash says whether it names the vhost by an
// empty path or not at all, which clients read differently.
func (b *broker) url(slash bool) string {
	u := "amqp://guest:guest@" + b.addr
	if slash {
		u += "/"
	}
	return u
}

// starter gives the function that starts a fresh broker for a suite.
func starter(peer, binary string) func(dir string) (*broker, error) {
	if peer != "" {
		return func(string) (*broker, error) { return startPeer(peer) }
	}
	return func(dir string) (*broker, error) {
		b, err := rig.New(binary, dir)
		if err != nil {
			return nil, err
		}
		if err := b.Start(); err != nil {
			return nil, err
		}
		return &broker{addr: b.Addr, own: b, stop: b.Stop}, nil
	}
}

func startPeer(script string) (*broker, error) {
	out, err := exec.Command(script, "start").Output()
	if err != nil {
		return nil, fmt.Errorf("%s start: %w", script, err)
	}
	for field := range strings.FieldsSeq(string(out)) {
		if addr, is := strings.CutPrefix(field, "addr="); is {
			stop := func() error { return exec.Command(script, "stop").Run() }
			return &broker{addr: addr, stop: stop}, nil
		}
	}
	return nil, fmt.Errorf("%s start printed no addr=: %q", script, out)
}
