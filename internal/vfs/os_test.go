package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"testing"
)

func TestOSFileRoundTrip(t *testing.T) {
	dir := t.TempDir()
	o := OS()
	name := filepath.Join(dir, "sub", "f")
	must(t, o.MkdirAll(filepath.Dir(name)))
	f := create(t, o, name)
	if _, err := o.Create(name); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("second create: %v", err)
	}
	want := bytes.Repeat([]byte("0123456789abcdef"), 1000) // 16,000 bytes: the end is not aligned
	if _, err := f.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	must(t, f.Datasync())
	must(t, f.Sync())
	must(t, f.DropCache())
	must(t, o.SyncDir(filepath.Dir(name)))
	d, err := o.OpenDirect(name)
	must(t, err)
	defer d.Close()
	for _, c := range []struct{ off, n int }{{0, 4096}, {4096, 8192}, {5, 100}, {4090, 10}, {15990, 10}} {
		p := AlignedBuffer(c.n)
		if _, err := d.ReadAt(p, int64(c.off)); err != nil {
			t.Fatalf("read %+v: %v", c, err)
		}
		if !bytes.Equal(p, want[c.off:c.off+c.n]) {
			t.Fatalf("direct read %+v returned other bytes", c)
		}
	}
	p := make([]byte, 100)
	if n, err := d.ReadAt(p, 15990); n != 10 || err == nil {
		t.Fatalf("read past the end: %d, %v", n, err)
	}
	if _, err := d.ReadAt(p, 1<<20); err == nil || !(errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		t.Fatalf("read beyond the file: %v", err)
	}
	must(t, o.Rename(name, name+"2"))
	names, err := o.List(filepath.Dir(name))
	if err != nil || len(names) != 1 || names[0] != "f2" {
		t.Fatalf("list: %v, %v", names, err)
	}
	must(t, f.Truncate(10))
	if size, err := f.Size(); err != nil || size != 10 {
		t.Fatalf("size %d, %v", size, err)
	}
	must(t, o.Remove(name+"2"))
	if _, err := o.Open(name); !IsNotExist(err) {
		t.Fatalf("open of a missing file: %v", err)
	}
	if u, err := o.Usage(dir); err != nil || u.Total == 0 || u.Free > u.Total {
		t.Fatalf("usage %+v, %v", u, err)
	}
}

func TestOSLockIsExclusive(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	l, err := OS().Lock(name)
	must(t, err)
	if _, err := OS().Lock(name); !errors.Is(err, ErrLocked) {
		t.Fatalf("second lock: %v", err)
	}
	must(t, l.Close())
	l, err = OS().Lock(name)
	must(t, err)
	must(t, l.Close())
}
