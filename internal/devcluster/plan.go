package devcluster

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// How many nodes there are, and how far their ports are from the base: clients at 5672, 5673, 5674, HTTP at 15672 and on,
// the links between the nodes at 25672 and on, as RabbitMQ has them.
const (
	size      = 3
	httpAbove = 10_000
	nodeAbove = 20_000

	// DefaultBasePort is the first node's port for clients.
	DefaultBasePort = 5672
	// MaxBasePort is the highest base with which all ports exist.
	MaxBasePort = 65535 - nodeAbove - size + 1
)

const (
	planName   = "dev-cluster.json"
	secretName = "secret"
)

// plan is what a cluster keeps from one start to the next: its nodes know each other by address.
type plan struct {
	BasePort int `json:"base_port"`
}

// prepare makes the folder, or finds what is in it. basePort 0 is that of the folder, or the default.
func prepare(folder string, basePort int) (plan, error) {
	name := filepath.Join(folder, planName)
	text, err := os.ReadFile(name)
	switch {
	case err == nil:
		var p plan
		if err := json.Unmarshal(text, &p); err != nil || p.BasePort < 1 || p.BasePort > MaxBasePort {
			return p, fmt.Errorf("%s cannot be read; remove the folder to begin anew", name)
		}
		if basePort != 0 && basePort != p.BasePort {
			return p, fmt.Errorf("the cluster in %s was made with base port %d, by which its nodes know each other; leave --base-port out, or name another folder", folder, p.BasePort)
		}
		return p, nil
	case !errors.Is(err, fs.ErrNotExist):
		return plan{}, err
	}
	if names, err := os.ReadDir(folder); err == nil && len(names) > 0 {
		return plan{}, fmt.Errorf("%s is not empty and no folder of a dev-cluster; name another one with --data", folder)
	}
	p := plan{BasePort: basePort}
	if p.BasePort == 0 {
		p.BasePort = DefaultBasePort
	}
	if p.BasePort < 1 || p.BasePort > MaxBasePort {
		return p, fmt.Errorf("the base port must be 1 to %d", MaxBasePort)
	}
	// Before anything is written: a cluster that cannot start leaves nothing behind.
	for i := range size {
		for _, address := range []string{p.clients(i), p.http(i), p.peers(i)} {
			l, err := net.Listen("tcp", address)
			if err != nil {
				return p, fmt.Errorf("cannot listen on %s: %w; choose other ports with --base-port", address, err)
			}
			l.Close()
		}
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return p, err
	}
	if err := os.WriteFile(filepath.Join(folder, secretName), []byte(rand.Text()+"\n"), 0o600); err != nil {
		return p, err
	}
	text, _ = json.Marshal(p)
	return p, os.WriteFile(name, append(text, '\n'), 0o600)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (p plan) clients(i int) string { return loopback(p.BasePort + i) }
func (p plan) http(i int) string    { return loopback(p.BasePort + httpAbove + i) }
func (p plan) peers(i int) string   { return loopback(p.BasePort + nodeAbove + i) }

func nodeName(i int) string { return "n" + strconv.Itoa(i+1) }

// arguments are the command line of a node.
func (p plan) arguments(folder string, i int) []string {
	var all []string
	for k := range size {
		all = append(all, p.peers(k))
	}
	return []string{
		"serve", "--name", nodeName(i), "--data", filepath.Join(folder, nodeName(i)), "--listen", p.clients(i), "--http", p.http(i),
		"--cluster", p.peers(i), "--join", strings.Join(all, ","), "--cluster-secret-file", filepath.Join(folder, secretName),
	}
}
