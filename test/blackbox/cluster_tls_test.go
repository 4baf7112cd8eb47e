package blackbox

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/test/rig"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, key: must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert = must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key))(t)))(t)
	return a
}

// issue writes the authority's certificate, and one for a node with its key, into a folder.
func (a *authority) issue(dir string) {
	a.t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "node"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert := must(x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key))(a.t)
	for name, block := range map[string]*pem.Block{
		"ca.pem": {Type: "CERTIFICATE", Bytes: a.cert.Raw}, "cert.pem": {Type: "CERTIFICATE", Bytes: cert},
		"key.pem": {Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))(a.t)},
	} {
		temporary := filepath.Join(dir, "new")
		ok(a.t, os.WriteFile(temporary, pem.EncodeToMemory(block), 0o600))
		ok(a.t, os.Rename(temporary, filepath.Join(dir, name)))
	}
}

// newTLSMember prepares a node whose links show the certificate of a folder.
func newTLSMember(t *testing.T, name, dir, addr, join string) *member {
	t.Helper()
	file := filepath.Join(t.TempDir(), "holdfast.conf")
	ok(t, os.WriteFile(file, []byte(fmt.Sprintf(
		"cluster.tls = true\nssl_options.cacertfile = %[1]s/ca.pem\nssl_options.certfile = %[1]s/cert.pem\nssl_options.keyfile = %[1]s/key.pem\n", dir)), 0o600))
	return &member{ownNode(t, "--config", file, "--name", name, "--cluster", addr, "--join", join), name, addr}
}

// Nodes show each other certificates: who has none of the right authority is not let in, and new ones are taken over
// without a restart.
func TestClusterTLS(t *testing.T) {
	t.Parallel()
	if target.binary == "" {
		t.Skip("the broker is not ours to start")
	}
	shared := t.TempDir()
	newAuthority(t).issue(shared)
	var c []*member
	var addrs []string
	for range 3 {
		addrs = append(addrs, must(rig.FreeAddr())(t))
	}
	for i, addr := range addrs {
		c = append(c, newTLSMember(t, fmt.Sprintf("n%d", i+1), shared, addr, strings.Join(addrs, ",")))
		ok(t, c[i].Launch())
	}
	for _, m := range c {
		ok(t, m.Ready())
	}
	must(c[0].open().QueueDeclare("q", true, false, false, false, nil))(t)
	must(c[1].open().QueueDeclarePassive("q", true, false, false, false, nil))(t)

	foreign := t.TempDir()
	newAuthority(t).issue(foreign)
	stranger := newTLSMember(t, "stranger", foreign, must(rig.FreeAddr())(t), addrs[0])
	bare := newMember(t, secretFile(t), "bare", addrs[0])
	for _, m := range []*member{stranger, bare} {
		ok(t, m.Launch())
	}
	stranger.said("certificate")
	bare.said("not in a cluster yet")
	c[0].said("a connection of another node was refused")
	for _, m := range []*member{stranger, bare} {
		if rig.Answers(m.Addr) {
			t.Errorf("%s serves clients", m.name)
		}
		ok(t, m.Kill())
	}

	newAuthority(t).issue(shared) // neither old certificates nor the old authority are worth anything to who starts now
	ok(t, c[2].Kill())
	ok(t, c[2].Start())
	for _, m := range c {
		m.known("n1", "n2", "n3")
	}
	must(c[2].open().QueueDeclarePassive("q", true, false, false, false, nil))(t)
}
