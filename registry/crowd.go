package registry

import (
	"net/netip"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/resource"
)

// What may be recorded of pulls by those who hold no role on the repo, and may
// pull because it is public. Anybody can pull as often as they like, so the
// number of records must not depend on how often they do.
const (
	// crowdTime is how long pulls that are alike are counted before they become
	// one record.
	crowdTime = time.Minute

	// crowdKinds is how many kinds of pulls of one organization are told apart
	// within crowdTime. Each is two records at most: the first pull and the rest.
	crowdKinds = 256

	// crowdRepos is in how many repos of one organization further pulls are
	// counted, by the repo alone.
	crowdRepos = 1024

	// Addresses are alike if they begin alike. A customer of a provider has a
	// network of this size, and can choose an address in it for every pull.
	crowdIPv4, crowdIPv6 = 24, 48
)

// A pullKind is what pulls that are recorded together have in common.
type pullKind struct {
	repo        resource.UID
	digest, tag string
	identity    resource.UID // "" for who has no token
	network     string
}

// A tally counts pulls of a kind.
type tally struct {
	resource.Pull       // the last one, without what they do not have in common
	n             int64 // how many are not recorded yet
}

// add counts another pull.
func (y *tally) add(p *resource.Pull) {
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

// An orgCrowd counts the pulls from the repos of one organization.
type orgCrowd struct {
	kinds map[pullKind]*tally
	repos map[resource.UID]*tally // those that found no place in kinds
}

// A crowd counts pulls of strangers for a while.
type crowd struct {
	mu   sync.Mutex
	orgs map[resource.UID]*orgCrowd
}

func newCrowd() *crowd { return &crowd{orgs: map[resource.UID]*orgCrowd{}} }

// add counts a pull. first is true if p is the first of its kind: then it is not
// counted, and the caller records it. dropped is true if there is no place to
// count it.
func (c *crowd) add(p *resource.Pull) (first, dropped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.orgs[p.UID.Root()]
	if o == nil {
		o = &orgCrowd{kinds: map[pullKind]*tally{}, repos: map[resource.UID]*tally{}}
		c.orgs[p.UID.Root()] = o
	}
	kind := pullKind{p.Repo(), p.Digest, p.Tag, p.Identity, networkOf(p.Remote)}
	if y := o.kinds[kind]; y != nil {
		y.add(p)
		return false, false
	}
	if len(o.kinds) < crowdKinds {
		o.kinds[kind] = &tally{}
		return true, false
	}
	y := o.repos[kind.repo]
	if y == nil {
		if len(o.repos) >= crowdRepos {
			return false, true
		}
		y = &tally{}
		o.repos[kind.repo] = y
	}
	y.add(&resource.Pull{UID: p.UID, Time: p.Time})
	return false, false
}

// drain returns a record of each kind of pulls that were counted, and begins anew.
func (c *crowd) drain() (all []resource.Pull) {
	c.mu.Lock()
	orgs := c.orgs
	c.orgs = map[resource.UID]*orgCrowd{}
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

// record appends the record of a tally, if it has one.
func (y *tally) record(all []resource.Pull) []resource.Pull {
	if y.n == 0 {
		return all
	}
	p := y.Pull
	p.UID, p.More = p.Repo().NewRisingChild(p.Time), y.n-1
	return append(all, p)
}

// networkOf returns the network that an address is in, or what is no address as
// it is.
func networkOf(remote string) string {
	ip, err := netip.ParseAddr(remote)
	if err != nil {
		return remote
	}
	bits := crowdIPv6
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		bits = crowdIPv4
	}
	network, err := ip.Prefix(bits)
	if err != nil {
		return remote
	}
	return network.String()
}
