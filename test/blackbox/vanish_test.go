package blackbox

import (
	"net"
	"testing"

	"holdfast/test/raw"
)

// vanish ends a connection with a reset, as a crashed machine's peer sees it.
func vanish(t *testing.T, s *raw.Conn) {
	t.Helper()
	ok(t, s.Conn.(*net.TCPConn).SetLinger(0))
	ok(t, s.Close())
}
