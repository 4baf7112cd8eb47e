package peer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// authority makes certificates for nodes on 127.0.0.1.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = a.sign(template)
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// config is what a node of this authority uses.
func (a *authority) config() *tls.Config {
	cert, key := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}, ClientCAs: a.pool}
}

func TestCertificates(t *testing.T) {
	b := newBoard()
	ours, theirs := newAuthority(t), newAuthority(t)
	var loads atomic.Int32
	with := func(a *authority) func(*Options) {
		config := a.config()
		return func(o *Options) {
			o.TLS = func() (*tls.Config, error) {
				loads.Add(1)
				return config, nil
			}
		}
	}
	x, y, z := startTCP(t, b, 1, with(ours)), startTCP(t, b, 2, with(ours)), startTCP(t, b, 3, with(theirs))
	plain := startTCP(t, b, 4, nil)
	connect(t, x, y)
	for i := range uint64(1000) {
		if !x.Send(2, Data, numbered(i, 1000)) {
			t.Fatal("no room")
		}
	}
	b.await(t, "the messages", func() bool { return len(y.got(x, Data)) == 1000 })
	if n := loads.Load(); n != 2 {
		t.Errorf("the certificates were read %d times", n)
	}
	x.o.Clock.(handClock).m.Advance(time.Minute)
	if _, err := x.Call(context.Background(), y.addr, []byte("hello")); err != nil {
		t.Errorf("a call: %v", err)
	}
	if n := loads.Load(); n != 3 {
		t.Errorf("the certificates were read %d times after a minute", n)
	}
	for _, stranger := range []*tcpNode{z, plain} {
		if h, err := stranger.Probe(context.Background(), x.addr); err == nil {
			t.Errorf("%s was told %+v", stranger.hears.name, h)
		}
		if h, err := x.Probe(context.Background(), stranger.addr); err == nil {
			t.Errorf("%s told %+v and was believed", stranger.hears.name, h)
		}
	}
	x.awaitLog(t, "was refused")
	y.Close()
	x.awaitDown(t, 1, y)
}
