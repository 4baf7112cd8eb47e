package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/config"
	"holdfast/internal/mgmt/socket"
)

// small are the settings of a node that takes little room, and any ports.
func small(t *testing.T) *config.Settings {
	s := config.Default()
	s.DataDir = t.TempDir()
	s.TCPListeners = []string{"127.0.0.1:0"}
	s.HTTPPort, s.MetricsPort = 0, 0
	s.Storage.SegmentMin, s.Storage.SegmentMax = config.MiB, config.MiB
	s.Storage.CommitMax = 512 * config.KiB
	return s
}

// A node says where it is and how to use it, does what it says, lets no second process in, and stops in an orderly way.
func TestServe(t *testing.T) {
	s := small(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := serve(ctx, s, "", slog.New(slog.DiscardHandler), writer)
		writer.Close()
		ended <- err
	}()
	said := map[string]string{}
	lines := bufio.NewScanner(reader)
	for lines.Scan() {
		name, text, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		said[name] = strings.TrimSpace(text)
		if name == "try" {
			break
		}
	}
	go io.Copy(io.Discard, reader)
	if !strings.HasPrefix(said["clients"], "amqp://127.0.0.1:") || !strings.HasPrefix(said["data"], s.DataDir+" (") || !strings.HasSuffix(said["Holdfast"], "is ready.") {
		t.Errorf("it says %v", said)
	}

	try := strings.Fields(strings.ReplaceAll(strings.TrimPrefix(said["try"], os.Args[0]+" "), "'hello, world'", "hello"))
	if out, errs, code := command(try...); code != 0 || !strings.Contains(out, "Published to 1 queue") {
		t.Fatalf("what it says to try, %q: code %d\n%s%s", said["try"], code, out, errs)
	}
	if out, errs, code := command("ctl", "--data", s.DataDir, "-s", "list_queues"); code != 0 || out != "hello\t1\n" {
		t.Errorf("list_queues: code %d %q %s", code, out, errs)
	}
	if _, errs, code := command("serve", "--data", s.DataDir, "--listen", "127.0.0.1:0", "--http", "none"); code != 1 || !strings.Contains(errs, "in use") || !strings.Contains(errs, "with --data") {
		t.Errorf("a second process: code %d %s", code, errs)
	}
	taken := strings.TrimSuffix(strings.TrimPrefix(said["clients"], "amqp://"), "/%2F")
	if _, errs, code := command("serve", "--data", t.TempDir(), "--listen", taken, "--http", "none"); code != 1 || !strings.Contains(errs, "--listen and --http name others") {
		t.Errorf("an address that is taken: code %d %s", code, errs)
	}
	if _, errs, code := command("dump", "--data", s.DataDir); code != 1 || !strings.Contains(errs, "in use") || !strings.Contains(errs, "stop it first") {
		t.Errorf("dump beside a running node: code %d %s", code, errs)
	}

	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(s.DataDir, socket.Name)); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	if out, errs, code := command("dump", "--data", s.DataDir); code != 0 || out == "" {
		t.Errorf("dump: code %d %q %s", code, out, errs)
	}
	if out, errs, code := command("dump", "--data", s.DataDir, "--salvage", filepath.Join(t.TempDir(), "out")); code != 0 || !strings.Contains(out, "No queue is damaged") {
		t.Errorf("salvage: code %d %q %s", code, out, errs)
	}
}

func TestALogThatNobodyWants(t *testing.T) {
	for _, l := range []config.Log{{Console: false, Level: "debug"}, {Console: true, Level: "none"}} {
		if logger(l, streams()).Enabled(context.Background(), slog.LevelError+4) {
			t.Errorf("%+v logs", l)
		}
	}
	for level, logs := range map[string]bool{"debug": true, "info": true, "warning": false, "error": false, "critical": false} {
		if logger(config.Log{Console: true, Level: level}, streams()).Enabled(context.Background(), slog.LevelInfo) != logs {
			t.Errorf("%s: info is logged: %v", level, !logs)
		}
	}
}
