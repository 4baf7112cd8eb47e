package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Caller says for a single node what a Former would: for one that is told by its operator which cluster to join.
type Caller struct {
	self Node
	call func(ctx context.Context, addr string, msg []byte) ([]byte, error)
}

// NewCaller returns a Caller that speaks for a node.
func NewCaller(self Node, call func(ctx context.Context, addr string, msg []byte) ([]byte, error)) *Caller {
	return &Caller{self, call}
}

// Ask asks who is at an address, and in which cluster; nil: in none.
func (c *Caller) Ask(ctx context.Context, addr string) (*Founding, Node, error) {
	a, err := c.request(ctx, addr, ask, callLimit)
	if err != nil {
		return nil, Node{}, err
	}
	return a.founding, a.from, nil
}

// Join asks the node at an address to let this one into its cluster. The error is what the cluster says where it refuses.
func (c *Caller) Join(ctx context.Context, addr string) (*Founding, error) {
	a, err := c.request(ctx, addr, join, admitLimit+callLimit)
	switch {
	case err != nil:
		return nil, err
	case a.verdict == refused:
		return nil, errors.New(a.text)
	case a.founding == nil:
		return nil, fmt.Errorf("the node at %s is in no cluster", addr)
	}
	return a.founding, nil
}

func (c *Caller) request(ctx context.Context, addr string, kind requestKind, limit time.Duration) (*answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()
	r := request{kind: kind, from: c.self, list: Clean([]string{c.self.Addr, addr})}
	msg, err := c.call(ctx, addr, r.encode())
	if err != nil {
		return nil, err
	}
	return decodeAnswer(msg)
}
