package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Node is one broker of a Cluster.
type Node struct {
	*Broker
	Name  string
	Front string // where other nodes reach it
}

// Cluster is brokers that form a cluster, with a Network between them.
type Cluster struct {
	Net   *Network
	Nodes []*Node

	binary, dir, secret string
}

// NewCluster prepares brokers n1, n2 and so on in folders under dir; Start runs them. extra are more arguments of serve.
func NewCluster(binary, dir string, n int, extra ...string) (*Cluster, error) {
	c := &Cluster{Net: NewNetwork(), binary: binary, dir: dir, secret: filepath.Join(dir, "secret")}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.secret, []byte("what the nodes of this cluster know\n"), 0o600); err != nil {
		return nil, err
	}
	var fronts []string
	for range n {
		node, err := c.add(extra)
		if err != nil {
			return nil, err
		}
		fronts = append(fronts, node.Front)
	}
	for _, node := range c.Nodes {
		node.Extra = append(node.Extra, "--join", strings.Join(fronts, ","))
	}
	return c, nil
}

func (c *Cluster) add(extra []string) (*Node, error) {
	name := fmt.Sprintf("n%d", len(c.Nodes)+1)
	listen, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	front, err := c.Net.Front(name, listen)
	if err != nil {
		return nil, err
	}
	args := append([]string{"--name", name, "--cluster", front, "--cluster-listen", listen, "--cluster-secret-file", c.secret}, extra...)
	b, err := New(c.binary, filepath.Join(c.dir, name), args...)
	if err != nil {
		return nil, err
	}
	node := &Node{b, name, front}
	c.Nodes = append(c.Nodes, node)
	return node, nil
}

// Start runs all brokers and waits until they serve.
func (c *Cluster) Start() error {
	for _, n := range c.Nodes {
		if err := n.Launch(); err != nil {
			return err
		}
	}
	for _, n := range c.Nodes {
		if err := n.Ready(); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return nil
}

// Close kills all brokers and closes the network.
func (c *Cluster) Close() {
	for _, n := range c.Nodes {
		_ = n.Kill()
	}
	c.Net.Close()
}

// Isolate sets all ways from and to a node. One direction alone is for Network.Set.
func (c *Cluster) Isolate(n *Node, w Way) {
	for _, other := range c.Nodes {
		if other != n {
			c.Net.Between(n.Name, other.Name, w)
		}
	}
}
