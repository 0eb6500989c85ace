package pulllog

import (
	"net/netip"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// Limits on the records of pulls by callers who may pull only because the repo is public. Anybody can make any
// number of such pulls, so the number of records must not grow with the number of pulls.
const (
	// countTime is how long pulls of one kind are counted before they are written as one record.
	countTime = time.Minute

	// maxPullKinds is the number of kinds of pulls that are counted for one organization within countTime. Each kind
	// makes at most two records: one for the first pull and one for all others.
	maxPullKinds = 256

	// maxPullRepos limits the pulls beyond maxPullKinds, which are counted for each repo instead of for each kind. It
	// is the number of repos of one organization for which this happens.
	maxPullRepos = 1024

	// networkIPv4 and networkIPv6 are lengths of address prefixes, in bits. Pulls from addresses with the same prefix
	// are of one kind, because a provider assigns such a network to one customer.
	networkIPv4, networkIPv6 = 24, 48
)

// A pullKind has the fields that are equal in all pulls that are counted together.
type pullKind struct {
	repo        resource.UID
	digest, tag string
	identity    resource.UID // identity of the caller; "" without a token
	network     string
}

// A pullCount counts the pulls of one kind.
type pullCount struct {
	registry.Pull       // last pull, without the fields that are not equal in all pulls
	n             int64 // number of pulls that are not recorded yet
}

func (y *pullCount) add(p *registry.Pull) {
	if y.n++; y.n == 1 {
		y.Pull = *p
		return
	}
	y.Time = p.Time
	if y.Remote != p.Remote {
		y.Remote = networkOf(p.Remote)
	}
	if y.Agent != p.Agent {
		y.Agent = ""
	}
}

// orgPulls counts the pulls from the repos of one organization.
type orgPulls struct {
	kinds map[pullKind]*pullCount
	repos map[resource.UID]*pullCount // pulls of kinds beyond maxPullKinds, by repo
}

// A pullCounter counts pulls from public repos until drain returns them.
type pullCounter struct {
	mu   sync.Mutex
	orgs map[resource.UID]*orgPulls
}

func newPullCounter() *pullCounter { return &pullCounter{orgs: map[resource.UID]*orgPulls{}} }

// add counts a pull. If p is the first pull of its kind, add does not count it: first is then true, and the caller
// must record p. dropped is true if a limit was reached and p is lost.
func (c *pullCounter) add(p *registry.Pull) (first, dropped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.orgs[p.UID.Root()]
	if o == nil {
		o = &orgPulls{kinds: map[pullKind]*pullCount{}, repos: map[resource.UID]*pullCount{}}
		c.orgs[p.UID.Root()] = o
	}
	kind := pullKind{p.Repo(), p.Digest, p.Tag, p.Identity, networkOf(p.Remote)}
	if y := o.kinds[kind]; y != nil {
		y.add(p)
		return false, false
	}
	if len(o.kinds) < maxPullKinds {
		o.kinds[kind] = &pullCount{}
		return true, false
	}
	y := o.repos[kind.repo]
	if y == nil {
		if len(o.repos) >= maxPullRepos {
			return false, true
		}
		y = &pullCount{}
		o.repos[kind.repo] = y
	}
	y.add(&registry.Pull{UID: p.UID, Time: p.Time})
	return false, false
}

// drain returns a record for each kind of pull that was counted, and resets the counter.
func (c *pullCounter) drain() (all []registry.Pull) {
	c.mu.Lock()
	orgs := c.orgs
	c.orgs = map[resource.UID]*orgPulls{}
	c.mu.Unlock()
	for _, o := range orgs {
		for _, y := range o.kinds {
			all = y.record(all)
		}
		for _, y := range o.repos {
			all = y.record(all)
		}
	}
	return all
}

// record appends a record with the count in y to all, if y has counted any pulls.
func (y *pullCount) record(all []registry.Pull) []registry.Pull {
	if y.n == 0 {
		return all
	}
	p := y.Pull
	p.UID, p.More = p.Repo().NewRisingChild(p.Time), y.n-1
	return append(all, p)
}

// networkOf returns the network of an IP address, or remote itself if it is not an IP address.
func networkOf(remote string) string {
	ip, err := netip.ParseAddr(remote)
	if err != nil {
		return remote
	}
	bits := networkIPv6
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		bits = networkIPv4
	}
	network, err := ip.Prefix(bits)
	if err != nil {
		return remote
	}
	return network.String()
}
