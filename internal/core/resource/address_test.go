package resource_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

func TestNetworkOf(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::/64",
		"2001:db8:0:0:ffff::1": "2001:db8::/64",
		"2001:db8:0:1::1":      "2001:db8:0:1::/64", "fe80::1%eth0": "fe80::/64", "": "", "no address": "no address",
	} {
		if got := resource.NetworkOf(address); got != want {
			t.Errorf("of %q = %q, want %q", address, got, want)
		}
	}
}

func TestHostOf(t *testing.T) {
	for address, want := range map[string]string{"192.0.2.1:80": "192.0.2.1", "[::1]:80": "::1",
		"192.0.2.1": "192.0.2.1", "": ""} {
		if got := resource.HostOf(address); got != want {
			t.Errorf("of %q = %q, want %q", address, got, want)
		}
	}
}
