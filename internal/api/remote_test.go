package api_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/api"
)

var trusted = api.Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}

func TestClient(t *testing.T) {
	tests := map[string]struct {
		peer      string
		forwarded []string
		want      string
	}{
		"nobody's word":                   {"203.0.113.9:4711", nil, "203.0.113.9"},
		"a proxy that says nothing":       {"10.0.0.1:4711", nil, "10.0.0.1"},
		"a proxy":                         {"10.0.0.1:4711", []string{"203.0.113.9"}, "203.0.113.9"},
		"two proxies":                     {"10.0.0.1:4711", []string{"203.0.113.9, 10.0.0.2"}, "203.0.113.9"},
		"two proxies, a line each":        {"10.0.0.1:4711", []string{"203.0.113.9", "10.0.0.2"}, "203.0.113.9"},
		"within the proxies' network":     {"10.0.0.1:4711", []string{"10.0.0.3,10.0.0.2"}, "10.0.0.3"},
		"with a port":                     {"10.0.0.1:4711", []string{"203.0.113.9:5000"}, "203.0.113.9"},
		"over IPv6":                       {"[fd00::1]:4711", []string{"2001:db8::9"}, "2001:db8::9"},
		"over IPv6, in brackets":          {"[fd00::1]:4711", []string{"[2001:db8::9]"}, "2001:db8::9"},
		"over IPv6, with a port":          {"[fd00::1]:4711", []string{"[2001:db8::9]:5000"}, "2001:db8::9"},
		"over IPv6, in two ways to write": {"[fd00::1]:4711", []string{"2001:DB8:0::9"}, "2001:db8::9"},
		"IPv4 inside IPv6":                {"[::ffff:10.0.0.1]:4711", []string{"::ffff:203.0.113.9"}, "203.0.113.9"},
		"a proxy at the end of a zone":    {"[fd00::1%eth0]:4711", []string{"203.0.113.9"}, "203.0.113.9"},
		"without a port":                  {"10.0.0.1", []string{"203.0.113.9"}, "203.0.113.9"},
		"not an address":                  {"@", []string{"203.0.113.9"}, "@"},
		"a stranger's word":               {"203.0.113.9:4711", []string{"198.51.100.1"}, "203.0.113.9"},
		"a stranger's word for a proxy":   {"203.0.113.9:4711", []string{"10.0.0.1"}, "203.0.113.9"},
		"made up before the proxy's":      {"10.0.0.1:4711", []string{"198.51.100.1, 203.0.113.9"}, "203.0.113.9"},
		"made up, in a line of its own":   {"10.0.0.1:4711", []string{"198.51.100.1", "203.0.113.9"}, "203.0.113.9"},
		"a proxy made up": {
			"10.0.0.1:4711", []string{"198.51.100.1, 10.0.0.9, 203.0.113.9"}, "203.0.113.9",
		},
		"rubbish before the proxy's":       {"10.0.0.1:4711", []string{"\x00,,;x, 203.0.113.9"}, "203.0.113.9"},
		"nothing before the proxy's":       {"10.0.0.1:4711", []string{", 203.0.113.9"}, "203.0.113.9"},
		"a proxy that hides the client":    {"10.0.0.1:4711", []string{"198.51.100.1, unknown"}, "10.0.0.1"},
		"one of two that hides the client": {"10.0.0.1:4711", []string{"198.51.100.1, _hidden, 10.0.0.2"}, "10.0.0.2"},
		"an empty header":                  {"10.0.0.1:4711", []string{""}, "10.0.0.1"},
		"only commas":                      {"10.0.0.1:4711", []string{",,,"}, "10.0.0.1"},
		"a name":                           {"10.0.0.1:4711", []string{"localhost"}, "10.0.0.1"},
		"an address with a line break":     {"10.0.0.1:4711", []string{"203.0.113.9\nx"}, "10.0.0.1"},
		"half an address":                  {"10.0.0.1:4711", []string{"203.0.113"}, "10.0.0.1"},
		"an address with a prefix":         {"10.0.0.1:4711", []string{"203.0.113.0/24"}, "10.0.0.1"},
		"a zone that somebody made up":     {"10.0.0.1:4711", []string{"fe80::1%" + strings.Repeat("x", 300)}, "fe80::1"},
		"more hops than there are": {
			"10.0.0.1:4711", []string{strings.Repeat("10.0.0.2,", 5000) + "10.0.0.3"}, "10.0.0.2",
		},
		"a proxy that looks like a network": {"10.0.0.1.evil.test:4711", []string{"198.51.100.1"}, "10.0.0.1.evil.test"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := trusted.Client(tt.peer, tt.forwarded); got != tt.want {
				t.Errorf("trusting some: %q, want %q", got, tt.want)
			}
			if got, want := api.Proxies(nil).Client(tt.peer, tt.forwarded), trusted.Client(tt.peer, nil); got != want {
				t.Errorf("trusting nobody: %q, want %q", got, want)
			}
		})
	}
}

// FuzzClient: a client that is not a proxy keeps its own address, whatever header it
// sends. The client of a proxy is the last address in the header that is not a proxy, or
// a proxy.
func FuzzClient(f *testing.F) {
	f.Add("10.0.0.1:80", "203.0.113.9, 10.0.0.2")
	f.Add("203.0.113.9:80", "10.0.0.2")
	f.Add("[fd00::1]:80", "[2001:db8::1]:1, unknown, ,")
	f.Fuzz(func(t *testing.T, peer, forwarded string) {
		alone := trusted.Client(peer, nil)
		at, err := netip.ParseAddr(alone)
		proxy := err == nil &&
			slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(at.Unmap().WithZone("")) })
		got := trusted.Client(peer, []string{forwarded})
		if got == alone {
			return
		}
		if !proxy {
			t.Errorf("%q is taken for %q", alone, got)
		}
		if _, err := netip.ParseAddr(got); err != nil {
			t.Errorf("%q is no address", got)
		}
		// The last address, which the proxy has appended, decides. The addresses before it,
		// which a client may have invented, change nothing.
		if last := trusted.Client(peer, []string{forwarded + ", 203.0.113.9"}); last != "203.0.113.9" {
			t.Errorf("the proxy's word was 203.0.113.9, and %q was taken", last)
		}
	})
}
