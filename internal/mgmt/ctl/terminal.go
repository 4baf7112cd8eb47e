//go:build linux || darwin

package ctl

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// hideTyping stops a terminal from showing what is typed, until the returned function is called. What is not a terminal
// is left alone.
func hideTyping(in io.Reader) (restore func()) {
	file, ok := in.(*os.File)
	if !ok {
		return func() {}
	}
	fd := int(file.Fd())
	before, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return func() {}
	}
	hidden := *before
	hidden.Lflag &^= unix.ECHO
	if unix.IoctlSetTermios(fd, setTermios, &hidden) != nil {
		return func() {}
	}
	return func() { unix.IoctlSetTermios(fd, setTermios, before) }
}
