package node

import (
	"errors"
)

// Done is closed when the node can go on no longer: the disk failed, or does not have what it had. Err then
// says why. A process that serves a node ends with a code other than 0.
func (n *Node) Done() <-chan struct{} { return n.failed }

// Err is why the node can go on no longer, nil while it can.
func (n *Node) Err() error {
	if err := n.fatal.Load(); err != nil {
		return *err
	}
	return nil
}

// fail stops serving at once. What was confirmed is on disk; what was not must
// not be confirmed any more, so nobody waits for anything here.
func (n *Node) fail(err error) {
	if !n.fatal.CompareAndSwap(nil, &err) {
		return
	}
	n.log.Error("the node stops", "error", err)
	close(n.failed)
	n.stopOnce.Do(func() { close(n.stopping) })
	go func() { // a goroutine of the log called, which must not block
		n.listeners.close()
		if b := n.ready.Load(); b != nil {
			b.Fail("the broker stops: " + err.Error())
		}
	}()
}

// Stop ends the node in an orderly way: no new clients, 320 to each that is
// connected, then everything to disk and the clean mark. It returns what
// went wrong; the data folder is then as after a crash, which loses nothing.
func (n *Node) Stop() error {
	n.stopped.Do(func() { n.stopErr = n.stop() })
	return n.stopErr
}

func (n *Node) stop() error {
	n.stopOnce.Do(func() { close(n.stopping) })
	if n.mesh != nil && n.Err() == nil {
		n.mesh.handOver()
	}
	n.listeners.close()
	n.broker.Stop(waitLimit)
	n.server.Close(goodbyeLimit)
	n.watching.Wait()
	clean := n.Err() == nil
	n.members.Close()
	if n.mesh != nil {
		n.mesh.leave(clean)
	}
	n.stopTime()
	managed := n.closeManagement()
	err := n.groups.Close(clean)
	if err != nil {
		clean = false
	}
	err = errors.Join(managed, err, n.seglog.Close(clean), n.spill.Close(spillLimit), n.unlock(), n.Err())
	if err == nil {
		n.log.Info("stopped")
	}
	return err
}

// abandon releases what a failed start has taken.
func (n *Node) abandon() {
	n.stopOnce.Do(func() { close(n.stopping) })
	n.listeners.close()
	n.watching.Wait()
	n.closeManagement()
	if n.members != nil {
		n.members.Close()
	}
	if n.mesh != nil {
		n.mesh.leave(false)
	}
	n.stopTime()
	if n.running.Load() {
		n.broker.Stop(0)
		if n.server != nil {
			n.server.Close(0)
		}
		n.groups.Close(false)
	}
	if n.seglog != nil {
		n.seglog.Close(false)
	}
	if n.spill != nil {
		n.spill.Close(0)
	}
	n.unlock()
}

// stopTime ends the queues' time.
func (n *Node) stopTime() {
	n.handOver.Do(func() { close(n.handedOver) })
	n.passing.Wait()
}

// unlock lets go of the data folder, unless somebody else holds it.
func (n *Node) unlock() error {
	if n.lock == nil {
		return nil
	}
	return n.lock.Close()
}
