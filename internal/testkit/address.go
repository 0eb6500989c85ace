// Package testkit contains helpers for the tests of several packages.
package testkit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// FreeAddress returns an address on this machine on which nothing listens. Its port is below the range from which
// the system takes the ports of outgoing connections, so that no outgoing connection takes the port before the
// test does.
func FreeAddress(t testing.TB) string {
	t.Helper()
	const lowest, highest = 10_000, 32_000
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(highest-lowest))
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return address
	}
	t.Fatal("found no free port")
	return ""
}
