package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/config"
)

// certificate writes a self-signed certificate and its key, and returns the pool that trusts it.
func certificate(t *testing.T, cert, key string, serial int64) *x509.CertPool {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1700000000+serial, 0) // each serial another time, however fast the test is
	for name, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(parsed)
	return pool
}

// A client connects over TLS.
func TestTLSListener(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pool := certificate(t, cert, key, 1)
	n := newPlace(t).run(t, func(s *config.Settings) {
		s.TCPListeners = nil
		s.TLSListeners = []string{"127.0.0.1:0"}
		s.TLS.CertFile, s.TLS.KeyFile = cert, key
	})
	at, err := n.Addr(true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Addr(false); err == nil {
		t.Error("a plain listener that nobody asked for")
	}
	c, err := amqp.DialTLS("amqps://guest:guest@"+at.String()+"/", &tls.Config{RootCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// A certificate that changes is taken; one that cannot be used leaves the old one in place.
func TestCertificateReload(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certificate(t, cert, key, 1)
	from := config.Default().TLS
	from.CertFile, from.KeyFile = cert, key
	c, err := loadCertificates(from, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	outer := c.config()
	serial := func() int64 {
		t.Helper()
		now, err := outer.GetConfigForClient(nil)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := x509.ParseCertificate(now.Certificates[0].Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return parsed.SerialNumber.Int64()
	}
	c.look()
	if n := serial(); n != 1 {
		t.Errorf("serial %d", n)
	}
	certificate(t, cert, key, 2)
	c.look()
	if n := serial(); n != 2 {
		t.Errorf("after a change: serial %d", n)
	}
	if err := os.WriteFile(cert, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.look()
	if n := serial(); n != 2 {
		t.Errorf("after a bad change: serial %d", n)
	}
	certificate(t, cert, key, 3)
	c.look()
	if n := serial(); n != 3 {
		t.Errorf("after a good change: serial %d", n)
	}
	from.KeyFile = filepath.Join(dir, "none")
	if _, err := loadCertificates(from, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("no error without a key")
	}
}

// A client that has connected and said nothing is cut off when the node stops.
func TestStopCutsOffTheSilent(t *testing.T) {
	n := newPlace(t).run(t)
	at, err := n.Addr(false)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write([]byte("AMQP\x00\x00\x09\x01"))
	if _, err := c.Read(make([]byte, 7)); err != nil { // it is being served
		t.Fatal(err)
	}
	stop(t, n)
	c.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("still connected")
	}
}
