package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"holdfast/internal/broker"
	"holdfast/internal/cluster"
	"holdfast/internal/config"
	"holdfast/internal/peer"
	"holdfast/internal/vfs"
)

// readIdentity reads the identity of a folder that has one.
func readIdentity(fs vfs.FS, dir string) (id identity, err error) {
	data, err := readFile(fs, path.Join(dir, identityName))
	if err == nil {
		err = json.Unmarshal(data, &id)
	}
	if err != nil {
		return id, fmt.Errorf("data folder %s: %w", dir, err)
	}
	return id, nil
}

// settled reads the identity of a folder whose node is stopped, or at least settled; a reset that got stuck goes on first.
func (l *Life) settled() (identity, error) {
	if err := finishReset(l.o.FS, l.o.Settings.DataDir); err != nil {
		return identity{}, err
	}
	return readIdentity(l.o.FS, l.o.Settings.DataDir)
}

// depart has the other nodes take this one, which is stopped, out of their cluster.
func (l *Life) depart(ctx context.Context, id *identity) error {
	others := id.others()
	if id.Cluster == nil || id.Cluster.Founding == nil || len(others) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, resetWait)
	defer cancel()
	links, err := outside(l.o.Settings, id, l.State().Node, l.o.levels(), l.o.Logger.With("room", "peer"))
	if err != nil {
		return err
	}
	defer links.Close()
	var why []error
	for _, n := range others {
		if _, err := ask(ctx, links, n.Addr, asked{What: askLeave}, leaveWait+callWait); err == nil {
			return nil
		} else {
			why = append(why, fmt.Errorf("%s: %w", n.Name, err))
		}
	}
	return fmt.Errorf("no other node of the cluster could take this one out; nothing was changed. Start them, or use 'ctl force_reset', which asks nobody, "+
		"and 'ctl forget_cluster_node %s' on one of them later:\n%w", l.State().Node, errors.Join(why...))
}

// Join implements mgmt.App.
func (l *Life) Join(ctx context.Context, text string) (already bool, err error) {
	addr, err := config.ParseNodeAddress(strings.TrimSpace(text))
	switch {
	case strings.Contains(text, "@"):
		return false, refuse(broker.Invalid, "'%s' is not the address of a node: give host:port, where it listens for other nodes (cluster.address)", text)
	case err != nil || addr == "":
		return false, refuse(broker.Invalid, "'%s' is not the address of a node, host:port: %v", text, err)
	case l.o.Settings.Cluster.Address == "":
		return false, refuse(broker.Invalid, "this node was started without cluster.address (--cluster): the others could not reach it")
	}
	l.stopStarting(errStopAsked)
	if err := l.take(ctx); err != nil {
		return false, err
	}
	mine := true // the turn
	defer func() {
		if mine {
			<-l.turn
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, resetWait)
	defer cancel()
	id, err := l.settled()
	if err != nil {
		return false, refuse(broker.Unavailable, "%v", err)
	}
	next, already, err := l.letIn(ctx, addr, &id)
	if err != nil || already {
		return already, err
	}
	again := l.running() != nil
	if err := l.halt("it joins a cluster"); err != nil {
		return false, refuse(broker.Unavailable, "the node stopped with an error: %v", err)
	}
	if err := resetFolder(l.o.FS, l.o.Settings.DataDir, next); err != nil {
		return false, refuse(broker.Unavailable, "%v", err)
	}
	l.mu.Lock()
	l.empty, l.reason = true, "it has joined a cluster"
	l.mu.Unlock()
	l.o.Logger.Info("joined a cluster: the operator has asked", "cluster", next.Cluster.Cluster().String(), "at", addr)
	if !again {
		return false, nil
	}
	mine = false
	return false, l.goOn(ctx)
}

// letIn asks the cluster behind an address to take this node in, under an identity of its own, which is returned.
func (l *Life) letIn(ctx context.Context, addr string, id *identity) (next identity, already bool, err error) {
	next = newIdentity()
	next.Format = formatCluster
	next.Node = next.number()
	name := l.o.Settings.NodeName
	if name == "" {
		name = next.ID
	}
	links, err := outside(l.o.Settings, &next, name, l.o.levels(), l.o.Logger.With("room", "peer"))
	if err != nil {
		return next, false, refuse(broker.Unavailable, "%v", err)
	}
	defer links.Close()
	by := cluster.NewCaller(cluster.Node{ID: next.Node, Name: name, Addr: l.o.Settings.Cluster.Address}, links.Call)
	founding, who, err := by.Ask(ctx, addr)
	switch {
	case errors.Is(err, peer.ErrSelf), err == nil && who.ID == id.number():
		return next, false, refuse(broker.Rejected, "cannot cluster node with itself: %s", addr)
	case err != nil:
		return next, false, refuse(broker.Unavailable, "the node cannot be asked: %v", err) // the error begins with the address
	case founding == nil:
		return next, false, refuse(broker.Unavailable, "the node at %s is in no cluster yet", addr)
	case id.Cluster != nil && id.Cluster.Cluster() == founding.Cluster:
		return next, true, nil
	}
	if what := l.unfit(id); what != "" {
		return next, false, refuse(broker.Rejected, "%s. To join another cluster it must be reset first, which takes all of that away: ctl stop_app, ctl reset, ctl join_cluster %s, ctl start_app", what, addr)
	}
	if founding, err = by.Join(ctx, addr); err != nil {
		return next, false, refuse(broker.Rejected, "the cluster refuses this node: %v", err)
	}
	next.Cluster = &cluster.State{Founding: founding}
	next.Peers = []cluster.Node{who}
	links.SetCluster(peer.ClusterID(founding.Cluster))
	if t, err := ask(ctx, links, addr, asked{What: askNodes}, callWait); err == nil {
		next.Peers = t.Nodes
	}
	return next, false, nil
}

// unfit says why a node cannot join a cluster as it is, "" if it can.
func (l *Life) unfit(id *identity) string {
	if n := l.running(); n != nil {
		if n.mesh != nil && n.catalog.View().Nodes().Len() > 1 {
			return "this node is a member of a cluster with others"
		}
		if what := n.holds(); what != "" {
			return "this node is not empty: " + what
		}
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(id.others()) > 0:
		return "this node is a member of a cluster with others"
	case !l.empty && hasLog(l.o.FS, l.o.Settings.DataDir):
		return "this node may not be empty"
	}
	return ""
}
