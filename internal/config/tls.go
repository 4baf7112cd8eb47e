package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// How the certificate of a client is treated.
const (
	VerifyNone = "verify_none" // not asked for
	VerifyPeer = "verify_peer" // asked for, and checked against the authorities
)

// TLS names the files and rules of the TLS listeners.
type TLS struct {
	CACertFile       string
	CertFile         string
	KeyFile          string
	Verify           string // VerifyNone or VerifyPeer
	FailIfNoPeerCert bool   // a client without a certificate is refused
	Versions         []string
}

var tlsVersions = map[string]uint16{"tlsv1.2": tls.VersionTLS12, "tlsv1.3": tls.VersionTLS13}

// Load reads the certificate, the key and the authorities. The error names the file that is wrong.
func (t TLS) Load() (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("TLS certificate %q with key %q: %w", t.CertFile, t.KeyFile, err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{certificate}}
	for _, name := range t.Versions {
		version := tlsVersions[name]
		if c.MinVersion == 0 || version < c.MinVersion {
			c.MinVersion = version
		}
		c.MaxVersion = max(c.MaxVersion, version)
	}
	if t.CACertFile != "" {
		pem, err := os.ReadFile(t.CACertFile)
		if err != nil {
			return nil, fmt.Errorf("TLS authorities: %w", err)
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("TLS authorities: no certificate in %q", t.CACertFile)
		}
	}
	if t.Verify == VerifyPeer {
		if c.ClientCAs == nil {
			return nil, errors.New("ssl_options.verify = verify_peer needs ssl_options.cacertfile")
		}
		c.ClientAuth = tls.VerifyClientCertIfGiven
		if t.FailIfNoPeerCert {
			c.ClientAuth = tls.RequireAndVerifyClientCert
		}
	}
	return c, nil
}
