package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
)

// Name is the name of the socket inside the data folder.
const Name = "ctl.sock"

// longest is the longest path a socket address holds on every system this runs on, with room for the end.
const longest = 100

// Listen opens the door. What a former process left there is replaced. Closing the listener removes it.
//
// The socket is made inside a folder of its own that nobody else can enter, and moved to its place when its mode is set:
// there is no moment at which another user could connect.
func Listen(folder string) (net.Listener, error) {
	private, err := os.MkdirTemp(folder, ".ctl-")
	if err != nil {
		return nil, fmt.Errorf("local socket: %w", err)
	}
	defer os.RemoveAll(private)
	address, release, err := short(private)
	if err != nil {
		return nil, fmt.Errorf("local socket: %w", err)
	}
	defer release()
	l, err := net.Listen("unix", address)
	if err != nil {
		return nil, fmt.Errorf("local socket: %w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // it will have moved
	made, place := filepath.Join(private, Name), filepath.Join(folder, Name)
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, place)); err != nil {
		l.Close()
		return nil, fmt.Errorf("local socket: %w", err)
	}
	return &listener{l, place}, nil
}

type listener struct {
	net.Listener
	place string
}

// Close stops listening and removes the socket.
func (l *listener) Close() error {
	err := l.Listener.Close()
	if gone := os.Remove(l.place); !errors.Is(gone, os.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

// Dial connects to the node that serves the data folder.
func Dial(ctx context.Context, folder string) (net.Conn, error) {
	address, release, err := short(folder)
	if err != nil {
		return nil, err
	}
	defer release()
	var d net.Dialer
	return d.DialContext(ctx, "unix", address)
}

// short gives an address for the socket in the folder that fits into a socket address. Where the path is too long, Linux
// reaches the folder through an open descriptor. release is called when the address has been used.
func short(folder string) (address string, release func(), err error) {
	address = filepath.Join(folder, Name)
	if len(address) <= longest {
		return address, func() {}, nil
	}
	if runtime.GOOS != "linux" {
		return "", nil, fmt.Errorf("the path %s is too long for a socket: use a data folder with a shorter path", address)
	}
	dir, err := os.Open(folder)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), Name), func() { dir.Close() }, nil
}
