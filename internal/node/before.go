package node

import (
	"errors"
	"fmt"
	"net"
	"path"
	"slices"

	"holdfast/internal/config"
	"holdfast/internal/vfs"
)

// before looks for what would end a start, before the start writes anything: addresses that are taken, certificates that
// cannot be used. What it finds free may be taken when it is needed, and the start fails then; but whoever mistypes a
// command, or starts a node twice, does not leave a data folder behind.
//
// Nothing is kept open: while a node starts, which may take until others are there, clients are to be refused and to try
// another node, not to wait for this one.
func before(o *Options) error {
	err := free(addresses(o))
	if err == nil {
		return loadable(o.Settings)
	}
	// Of a node that runs already, the folder says more than the address.
	if inUse(o.FS, o.Settings.DataDir) {
		return fmt.Errorf("%w: %s", ErrInUse, o.Settings.DataDir)
	}
	return err
}

// addresses are those on which a node that cannot have them does not start.
func addresses(o *Options) []string {
	s := o.Settings
	list := slices.Concat(s.TCPListeners, s.TLSListeners)
	if s.Cluster.Bind() != "" {
		list = append(list, s.Cluster.Bind())
	}
	if !o.LenientHTTP {
		list = append(list, s.HTTPListeners()...)
	}
	return list
}

// free opens all addresses and closes them again.
func free(list []string) error {
	for _, address := range list {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return fmt.Errorf("cannot listen on %s: %w", address, err)
		}
		defer l.Close() // after the last, so that one that is named twice is found
	}
	return nil
}

// loadable loads the certificates, where there are any.
func loadable(s *config.Settings) error {
	if len(s.TLSListeners) == 0 && !s.Cluster.TLS {
		return nil
	}
	_, err := s.TLS.Load()
	return err
}

// inUse reports whether another process has the folder. It makes neither the folder nor anything in it.
func inUse(fs vfs.FS, dir string) bool {
	names, err := fs.List(dir)
	if err != nil || !slices.Contains(names, identityName) {
		return false
	}
	lock, err := fs.Lock(path.Join(dir, lockName))
	if err != nil {
		return errors.Is(err, vfs.ErrLocked)
	}
	lock.Close()
	return false
}
