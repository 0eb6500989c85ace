package server

import (
	"net"
	"os"
)

// notify tells the service manager how the server is doing, if it asked for that (see sd_notify(3)). Nobody waits for
// it, and it cannot fail in a way that matters.
func notify(state string) {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(state))
}
