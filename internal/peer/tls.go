package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"time"

	"holdfast/internal/clock"
)

// certificates turns connections into TLS ones, with a configuration that is
// asked for again from time to time.
type certificates struct {
	load  func() (*tls.Config, error)
	clock clock.Clock

	mu     sync.Mutex
	config *tls.Config
	until  int64
}

// keepCertificates is how long a configuration is used for new connections.
const keepCertificates = 5 * time.Second

func (c *certificates) current() (*tls.Config, error) {
	now := c.clock.Mono()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.config != nil && now < c.until {
		return c.config, nil
	}
	loaded, err := c.load()
	if err != nil {
		return nil, err
	}
	config := loaded.Clone()
	// One list of authorities is enough, and neither side is let off.
	if config.RootCAs == nil {
		config.RootCAs = config.ClientCAs
	}
	if config.ClientCAs == nil {
		config.ClientCAs = config.RootCAs
	}
	if config.ClientCAs == nil {
		config.RootCAs = x509.NewCertPool()
		config.ClientCAs = config.RootCAs
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	c.config, c.until = config, now+int64(keepCertificates)
	return config, nil
}

// dialled is the client's side; addr names the host its certificate is checked for.
func (c *certificates) dialled(conn net.Conn, addr string) (net.Conn, error) {
	config, err := c.current()
	if err != nil {
		return nil, err
	}
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	return tls.Client(conn, config), nil
}

// accepted is the server's side.
func (c *certificates) accepted(conn net.Conn) (net.Conn, error) {
	config, err := c.current()
	if err != nil {
		return nil, err
	}
	if len(config.Certificates) == 0 && config.GetCertificate == nil {
		return nil, errors.New("no certificate")
	}
	return tls.Server(conn, config), nil
}
