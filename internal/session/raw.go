package session

import (
	"net"
	"syscall"
)

// rawWriter writes to a socket as much as it takes at once, and never waits.
type rawWriter struct {
	conn syscall.RawConn
	try  func(fd uintptr) bool // made once: it would be an allocation for each write
	p    []byte
	n    int
	err  error
}

// newRawWriter returns nil for a connection that is more than a socket, such as TLS.
func newRawWriter(nc net.Conn) *rawWriter {
	s, ok := nc.(*net.TCPConn)
	if !ok {
		return nil
	}
	conn, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	r := &rawWriter{conn: conn}
	r.try = func(fd uintptr) bool {
		for {
			r.n, r.err = syscall.Write(int(fd), r.p)
			if r.err != syscall.EINTR {
				return true
			}
		}
	}
	return r
}

// write returns how many bytes of p the socket took, 0 without an error if it is full.
func (r *rawWriter) write(p []byte) (int, error) {
	r.p, r.n, r.err = p, 0, nil
	err := r.conn.Write(r.try)
	r.p = nil
	switch {
	case err != nil:
		return 0, err
	case r.err == syscall.EAGAIN:
		return 0, nil
	case r.err != nil:
		return 0, r.err
	}
	return r.n, nil
}
