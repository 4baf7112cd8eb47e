package main

import (
	"log/slog"
	"net"
	"os"
)

// notify tells the service manager how the process stands, where it was started by one that wants to know (sd_notify(3)):
// READY=1 or STOPPING=1.
func notify(log *slog.Logger, state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err == nil {
		defer conn.Close()
		_, err = conn.Write([]byte(state))
	}
	if err != nil {
		log.Warn("the service manager cannot be told", "state", state, "error", err)
	}
}
