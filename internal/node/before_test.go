package node

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdfast/internal/config"
	"holdfast/internal/vfs"
)

// taken is an address that somebody listens on.
func taken(t *testing.T) (address string, port int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String(), l.Addr().(*net.TCPAddr).Port
}

// A start that fails because of what it was told writes nothing: neither the data folder nor anything in one that is there.
func TestFailedStartWritesNothing(t *testing.T) {
	address, port := taken(t)
	for name, c := range map[string]struct {
		change  func(*config.Settings)
		lenient bool
		says    string
	}{
		"clients": {func(s *config.Settings) { s.TCPListeners = append(s.TCPListeners, address) }, true, address},
		"TLS": {func(s *config.Settings) {
			s.TLSListeners, s.TLS = []string{"127.0.0.1:0"}, config.TLS{CertFile: "missing.pem", KeyFile: "missing.pem"}
		}, true, "missing.pem"},
		"nodes":   {func(s *config.Settings) { s.Cluster = config.Cluster{Address: address, Secret: "a secret"} }, true, address},
		"http":    {func(s *config.Settings) { s.HTTPIP, s.HTTPPort = "127.0.0.1", port }, false, address},
		"metrics": {func(s *config.Settings) { s.MetricsIP, s.MetricsPort = "127.0.0.1", port }, false, address},
	} {
		t.Run(name, func(t *testing.T) {
			s := config.Default()
			s.TCPListeners, s.HTTPPort, s.MetricsPort = []string{"127.0.0.1:0"}, 0, 0
			c.change(s)
			for _, there := range []bool{false, true} {
				s.DataDir = filepath.Join(t.TempDir(), "new", "data")
				if there {
					if err := os.MkdirAll(s.DataDir, 0o755); err != nil {
						t.Fatal(err)
					}
				}
				o := options(s, vfs.OS())
				o.LenientHTTP = c.lenient
				_, err := Begin(o, nil)
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Fatalf("started with %v", err)
				}
				if c.says == address && !errors.Is(err, syscall.EADDRINUSE) {
					t.Errorf("not known as an address that is taken: %v", err)
				}
				_, err = Start(o)
				if err == nil {
					t.Fatal("started")
				}
				names, err := os.ReadDir(s.DataDir)
				if there && (err != nil || len(names) > 0) || !there && !os.IsNotExist(err) {
					t.Errorf("in the folder: %v, %v", names, err)
				}
				if !there {
					if names, err := os.ReadDir(filepath.Dir(filepath.Dir(s.DataDir))); err != nil || len(names) > 0 {
						t.Errorf("above the folder: %v, %v", names, err)
					}
				}
			}
		})
	}
}

// Whoever starts a node twice is told of the folder, not of the address.
func TestSecondStartIsToldOfTheFolder(t *testing.T) {
	p := newPlace(t)
	n := p.run(t)
	at, err := n.Addr(false)
	if err != nil {
		t.Fatal(err)
	}
	twice := func(s *config.Settings) { s.TCPListeners = []string{at.String()} }
	if _, err := p.start(twice); !errors.Is(err, ErrInUse) {
		t.Errorf("a second start: %v", err)
	}
	s := p.settings()
	twice(s)
	if _, err := Begin(options(s, p.disk), nil); !errors.Is(err, ErrInUse) {
		t.Errorf("a second process: %v", err)
	}
	stop(t, n)
	again := p.run(t, twice)
	stop(t, again)
}

// An address that is taken by accident while a default is meant does not end a start.
func TestDefaultAddressesForMetricsMayBeTaken(t *testing.T) {
	_, port := taken(t)
	s := newPlace(t).settings()
	s.HTTPIP, s.HTTPPort = "127.0.0.1", port
	disk := vfs.NewMem()
	o := options(s, disk)
	o.LenientHTTP, o.Context = true, context.Background()
	n, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, n)
}
