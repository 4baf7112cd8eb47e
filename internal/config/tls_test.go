package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificate writes a certificate that signs itself, and its key.
func certificate(t *testing.T, folder string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyBytes, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, content []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", keyBytes)
}

func TestTLSLoad(t *testing.T) {
	folder := t.TempDir()
	cert, key := certificate(t, folder)
	empty := filepath.Join(folder, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	whole := TLS{CertFile: cert, KeyFile: key, Verify: VerifyNone, Versions: Default().TLS.Versions}
	c, err := whole.Load()
	if err != nil || len(c.Certificates) != 1 || c.MinVersion != tls.VersionTLS12 || c.MaxVersion != tls.VersionTLS13 || c.ClientAuth != tls.NoClientCert {
		t.Fatalf("%+v, %v", c, err)
	}
	mutual := whole
	mutual.CACertFile, mutual.Verify, mutual.Versions = cert, VerifyPeer, []string{"tlsv1.3"}
	if c, err = mutual.Load(); err != nil || c.ClientAuth != tls.VerifyClientCertIfGiven || c.MinVersion != tls.VersionTLS13 || c.ClientCAs == nil {
		t.Fatalf("%+v, %v", c, err)
	}
	mutual.FailIfNoPeerCert = true
	if c, err = mutual.Load(); err != nil || c.ClientAuth != tls.RequireAndVerifyClientCert {
		t.Fatalf("%+v, %v", c, err)
	}
	for name, change := range map[string]func(*TLS){
		"no such certificate": func(t *TLS) { t.CertFile = filepath.Join(folder, "none.pem") },
		"key for certificate": func(t *TLS) { t.CertFile = key },
		"no such authorities": func(t *TLS) { t.CACertFile = filepath.Join(folder, "none.pem") },
		"empty authorities":   func(t *TLS) { t.CACertFile = empty },
		"verify without":      func(t *TLS) { t.Verify = VerifyPeer },
	} {
		wrong := whole
		change(&wrong)
		if _, err := wrong.Load(); err == nil || !strings.Contains(err.Error(), "pem") && !strings.Contains(err.Error(), "cacertfile") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
