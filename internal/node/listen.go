package node

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/config"
	"holdfast/internal/session"
)

// listener is one address on which clients are served.
type listener struct {
	net.Listener
	tls bool
}

// listeners are all of them.
type listeners struct {
	mu     sync.Mutex
	list   []*listener
	closed bool
}

func (ls *listeners) add(l *listener) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		l.Close()
		return false
	}
	ls.list = append(ls.list, l)
	return true
}

func (ls *listeners) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for _, l := range ls.list {
		l.Close()
	}
}

// listen opens the listeners and starts serving on them.
func (n *Node) listen() error {
	n.server = session.NewServer(session.Options{
		Broker: n.broker, Settings: n.settings, Clock: n.clock, Logger: n.log.With("room", "session"), Version: n.version,
		MaxConnections: connectionLimit(maxFiles()),
	})
	for _, address := range n.settings.TCPListeners {
		if err := n.open(address, nil); err != nil {
			return err
		}
	}
	if len(n.settings.TLSListeners) > 0 {
		certificates, err := loadCertificates(n.settings.TLS, n.log)
		if err != nil {
			return err
		}
		n.watching.Go(func() { certificates.watch(n.clock.NewTicker(certificatesEvery), n.stopping) })
		for _, address := range n.settings.TLSListeners {
			if err := n.open(address, certificates.config()); err != nil {
				return err
			}
		}
	}
	for _, l := range n.listeners.list {
		n.watching.Go(func() {
			if err := n.server.Serve(l); err != nil && !errors.Is(err, net.ErrClosed) {
				n.log.Error("listener ended", "address", l.Addr().String(), "error", err)
			}
		})
	}
	return nil
}

func (n *Node) open(address string, secure *tls.Config) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	if !n.listeners.add(&listener{l, secure != nil}) {
		return n.Err()
	}
	return nil
}

// Addr is where the node serves plain or TLS clients: its first listener of that kind.
func (n *Node) Addr(secure bool) (net.Addr, error) {
	for _, l := range n.listeners.list {
		if l.tls == secure {
			return l.Addr(), nil
		}
	}
	return nil, ErrNotListening
}

// certificatesEvery is how often the certificate's files are looked at.
const certificatesEvery = 10 * time.Second

// certificates are those of the TLS listeners. When the files change, new
// connections get the new ones; while what is there cannot be used (half
// written, not fitting together), the old ones stay.
type certificates struct {
	from    config.TLS
	log     *slog.Logger
	current atomic.Pointer[tls.Config]
	seen    [3]time.Time
}

func loadCertificates(from config.TLS, log *slog.Logger) (*certificates, error) {
	c := &certificates{from: from, log: log}
	c.seen = c.times()
	loaded, err := from.Load()
	if err != nil {
		return nil, err
	}
	c.current.Store(loaded)
	return c, nil
}

// config is what listeners use.
func (c *certificates) config() *tls.Config {
	outer := c.current.Load().Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load(), nil }
	return outer
}

func (c *certificates) times() (t [3]time.Time) {
	for i, name := range []string{c.from.CertFile, c.from.KeyFile, c.from.CACertFile} {
		if info, err := os.Stat(name); err == nil {
			t[i] = info.ModTime()
		}
	}
	return t
}

// look loads the files if they have changed.
func (c *certificates) look() {
	now := c.times()
	if now == c.seen {
		return
	}
	c.seen = now
	loaded, err := c.from.Load()
	if err != nil {
		c.log.Error("the changed certificate cannot be used; the old one stays", "error", err)
		return
	}
	c.current.Store(loaded)
	c.log.Info("certificate reloaded", "file", c.from.CertFile)
}

func (c *certificates) watch(every clock.Ticker, stop <-chan struct{}) {
	defer every.Stop()
	for {
		select {
		case <-every.C():
			c.look()
		case <-stop:
			return
		}
	}
}
