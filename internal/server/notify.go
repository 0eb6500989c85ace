package server

import (
	"net"
	"os"
)

// notify sends the state of the server to the service manager if the manager listens (see
// sd_notify(3)). It ignores errors, because nothing depends on the message.
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
