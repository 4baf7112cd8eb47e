package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
)

// A service manager hears when clients are served, and when the node stops.
func TestServeTellsTheServiceManager(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", name)
	hears := func(want string) {
		t.Helper()
		var b [64]byte
		if n, err := manager.Read(b[:]); err != nil || string(b[:n]) != want {
			t.Errorf("heard %q, %v, want %q", b[:n], err, want)
		}
	}
	s := small(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, s, "", slog.New(slog.DiscardHandler), io.Discard) }()
	hears("READY=1")
	cancel()
	hears("STOPPING=1")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
