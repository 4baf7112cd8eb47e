package socket

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// hello serves one connection and checks that it arrives.
func hello(t *testing.T, folder string) {
	t.Helper()
	l, err := Listen(folder)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		c, err := l.Accept()
		if err == nil {
			io.WriteString(c, "hello")
			c.Close()
		}
	}()
	c, err := Dial(context.Background(), folder)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if said, err := io.ReadAll(c); err != nil || string(said) != "hello" {
		t.Fatalf("%q, %v", said, err)
	}
	info, err := os.Stat(filepath.Join(folder, Name))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(folder)
	if err != nil || len(left) != 0 {
		t.Fatalf("left behind: %v, %v", left, err)
	}
}

func TestListenAndDial(t *testing.T) { hello(t, t.TempDir()) }

func TestALongPath(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux reaches a socket through an open folder")
	}
	folder := filepath.Join(t.TempDir(), strings.Repeat("long", 20), strings.Repeat("path", 20))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	hello(t, folder)
}

func TestWhatAFormerProcessLeftIsReplaced(t *testing.T) {
	folder := t.TempDir()
	old, err := Listen(folder)
	if err != nil {
		t.Fatal(err)
	}
	old.(*listener).Listener.Close() // as a killed process would: the file stays
	if _, err := Dial(context.Background(), folder); err == nil {
		t.Fatal("nobody listens, and yet the door opens")
	}
	hello(t, folder)
}

func TestDialWithoutANode(t *testing.T) {
	if _, err := Dial(context.Background(), t.TempDir()); err == nil {
		t.Fatal("connected to nothing")
	}
}
