package pulllog

import (
	"net/netip"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// Limits on the records of pulls by callers who may pull only because the repo is
// public. Anybody can pull without limit, so the number of records must not depend on
// the number of pulls.
const (
	// countTime is the period after which the pulls of one kind are written as one
	// record.
	countTime = time.Minute

	// maxPullKinds is the number of kinds of pulls that are counted for one organization
	// within countTime. Each kind makes at most two records: the first pull and the rest.
	maxPullKinds = 256

	// maxPullRepos is the number of repos of one organization whose further pulls are
	// counted, by repo alone.
	maxPullRepos = 1024

	// Pulls from one network of this size are of one kind, because a provider
	// assigns such a network to one customer.
	networkIPv4, networkIPv6 = 24, 48
)

// A pullKind has the fields in which pulls agree that are counted together.
type pullKind struct {
	repo        resource.UID
	digest, tag string
	identity    resource.UID // "" without a token
	network     string
}

// A pullCount counts the pulls of one kind.
type pullCount struct {
	registry.Pull       // the last one, without the fields in which they differ
	n             int64 // pulls that are not recorded yet
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
	repos map[resource.UID]*pullCount // pulls beyond maxPullKinds
}

// A pullCounter counts pulls from public repos until they are drained.
type pullCounter struct {
	mu   sync.Mutex
	orgs map[resource.UID]*orgPulls
}

func newPullCounter() *pullCounter { return &pullCounter{orgs: map[resource.UID]*orgPulls{}} }

// add counts a pull. If p is the first of its kind, add returns first without
// counting it, and the caller records it. It returns dropped if a limit is reached.
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

// drain returns a record for each kind of pulls, and resets the counter.
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

// record appends the record of y to all, if it has counted anything.
func (y *pullCount) record(all []registry.Pull) []registry.Pull {
	if y.n == 0 {
		return all
	}
	p := y.Pull
	p.UID, p.More = p.Repo().NewRisingChild(p.Time), y.n-1
	return append(all, p)
}

// networkOf returns the network of an address, or remote if it is no address.
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
