package pulllog

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// TestAttackPullCounter pulls from a public repo from many addresses, of many manifests and with many programs. It
// checks that the number of records is bounded and that they count every pull.
func TestAttackPullCounter(t *testing.T) {
	const pulls = 20_000
	org, other := resource.NewRoot(), resource.NewRoot()
	repo := org.NewChild()
	tests := map[string]struct {
		pull func(i int) registry.Pull
		most int // largest number of records
	}{
		"from one network": {func(i int) registry.Pull {
			return registry.Pull{UID: repo, Digest: "sha256:a", Remote: fmt.Sprintf("192.0.2.%d", i%256)}
		}, 2},
		"from one network, version 6": {func(i int) registry.Pull {
			return registry.Pull{UID: repo, Digest: "sha256:a", Remote: fmt.Sprintf("2001:db8:1:%x::%x", i, i)}
		}, 2},
		"from many networks": {func(i int) registry.Pull {
			return registry.Pull{UID: repo, Digest: "sha256:a", Remote: fmt.Sprintf("%d.%d.0.1", 1+i/256, i%256)}
		}, maxPullKinds + 1},
		"with many programs": {func(i int) registry.Pull {
			return registry.Pull{UID: repo, Digest: "sha256:a", Remote: "192.0.2.1", Agent: fmt.Sprint(i)}
		}, 2},
		"of many manifests": {func(i int) registry.Pull {
			return registry.Pull{UID: repo, Digest: fmt.Sprint("sha256:", i), Remote: "192.0.2.1"}
		}, maxPullKinds + 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := newPullCounter()
			var counted int64
			var records int
			for i := range pulls {
				p := tt.pull(i)
				p.UID, p.Time = p.UID.NewChild(), time.Now()
				first, dropped := c.add(&p)
				if dropped {
					t.Fatal("a pull is not counted")
				}
				if first {
					records++
					counted++
				}
			}
			if first, _ := c.add(&registry.Pull{UID: other.NewChild().NewChild(), Digest: "sha256:b"}); !first {
				t.Error("the first pull in another organization is not recorded at once")
			}
			for _, p := range c.drain() {
				records++
				counted += 1 + p.More
			}
			if records > tt.most || counted != pulls {
				t.Errorf("%d pulls are %d records that count %d, want at most %d", pulls, records, counted, tt.most)
			}
			if again := c.drain(); len(again) > 0 {
				t.Errorf("%d records are there twice", len(again))
			}
		})
	}
}

// TestAttackPullsOfManyRepos checks that the number of records stays within maxPullRepos if there are pulls from more
// repos, and that the other pulls are reported as dropped.
func TestAttackPullsOfManyRepos(t *testing.T) {
	org, c := resource.NewRoot(), newPullCounter()
	var lost int
	for range 2 * (maxPullKinds + maxPullRepos) {
		_, dropped := c.add(&registry.Pull{UID: org.NewChild().NewChild(), Time: time.Now()})
		if dropped {
			lost++
		}
	}
	if got := len(c.drain()); got != maxPullRepos || lost != maxPullKinds+maxPullRepos {
		t.Errorf("%d records, and %d pulls lost", got, lost)
	}
}

func TestNetworkOf(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.77": "192.0.2.0/24", "::ffff:192.0.2.77": "192.0.2.0/24", "2001:db8:1:2::3": "2001:db8:1::/48",
		"fe80::1%eth0": "fe80::/48", "@": "@", "": "",
	} {
		if got := networkOf(in); got != want {
			t.Errorf("the network of %q is %q, want %q", in, got, want)
		}
	}
}
