//go:build !linux

package peer

import (
	"net"
	"time"
)

// giveUpAfter is a thing of Linux; elsewhere keep-alives and stalled writes have to do.
func giveUpAfter(*net.TCPConn, time.Duration) error { return nil }
