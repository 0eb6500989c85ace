package api

import (
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// What may be held of the server's memory at once: by a tenant, which is the
// organization of the caller's identity, or a person who belongs to none; by
// an address, because one organization can know many people; and by an address
// of which it is not known who calls.
const (
	// maxStrangerMessage is for messages of callers without a token. All
	// methods that need none take tokens and names, and tokens have at most
	// 16 KiB.
	maxStrangerMessage = 64 << 10

	// maxStrangersCalls is how many calls of one address, without a token, may
	// be under way over gRPC: each costs some 10 KiB, its goroutine included.
	maxStrangersCalls = 128

	// admitTime is how long the headers of a call may keep its connection from
	// being read.
	admitTime = 5 * time.Second

	// maxStrangersReading is how many calls of one address, without a token,
	// may wait for their messages: 8 MiB.
	maxStrangersReading = 128

	// Messages are small, and come right behind their headers. One that takes
	// longer than patience is slow, and may hold up to 4 MiB. Strangers have
	// few, because on a connection of a proxy nothing keeps them below
	// maxStrangerMessage while they are on their way.
	patience         = 250 * time.Millisecond
	maxSlow          = 16
	maxSlowByAddress = 32
	maxSlowStrangers = 8

	// strangerTime is how long a message of a caller without a token may take.
	// Those of others have the time of the call.
	strangerTime = 10 * time.Second

	// Calls with streams go on as long as the caller likes.
	maxStreaming          = 32
	maxStreamingByAddress = 128
	maxStreamingStrangers = 128

	// Bytes of answers that clients have not taken yet. An answer below
	// smallAnswer is not counted, but every answer to a stranger is, as
	// strangerAnswer at least: with it grpc-go keeps the call.
	smallAnswer        = 4 << 10
	strangerAnswer     = 8 << 10
	maxUnsent          = 32 << 20
	maxUnsentByAddress = 64 << 20
	maxUnsentStrangers = 4 << 20

	// An answer over gRPC must be taken within answerTime, and a second for
	// each minAnswerRate bytes it has.
	answerTime    = time.Minute
	minAnswerRate = 64 << 10

	retryBusy = 5 * time.Second // after which who has had too much may try again
)

// A quota bounds how much of something each of many holds at once.
type quota struct {
	most int64

	mu   sync.Mutex
	held map[string]int64 // by holder; who holds nothing is not here
}

func newQuota(most int64) *quota { return &quota{most: most, held: map[string]int64{}} }

// take reports whether a holder may have n more, and if so notes it. A holder
// of nothing always may.
func (q *quota) take(holder string, n int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	held := q.held[holder]
	if held > 0 && held+n > q.most {
		return false
	}
	q.held[holder] = held + n
	return true
}

// give notes that a holder has n less.
func (q *quota) give(holder string, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held[holder] -= n; q.held[holder] <= 0 {
		delete(q.held, holder)
	}
}

// A share bounds how much of something a call's tenant and its address hold.
type share struct{ tenants, addresses, strangers *quota }

func newShare(tenant, address, strangers int64) share {
	return share{newQuota(tenant), newQuota(address), newQuota(strangers)}
}

// take reports whether who makes a call may have n more, and if so notes it.
func (s share) take(k *call, n int64) bool {
	switch {
	case k.stranger():
		return s.strangers.take(k.from, n)
	case !s.tenants.take(k.tenant, n):
		return false
	case !s.addresses.take(k.from, n):
		s.tenants.give(k.tenant, n)
		return false
	}
	return true
}

// give notes that who made a call has n less.
func (s share) give(k *call, n int64) {
	if k.stranger() {
		s.strangers.give(k.from, n)
		return
	}
	s.tenants.give(k.tenant, n)
	s.addresses.give(k.from, n)
}

// busy is the error for a holder who would have more than it may.
func busy(what string) error {
	f := fault.New(fault.ResourceExhausted, "Resource exhausted: too many %s at once; try again", what)
	f.RetryIn = retryBusy
	return f
}

// tenantOf returns the tenant that an identity belongs to.
func tenantOf(identity resource.UID) string {
	root, _, _ := strings.Cut(string(identity), "/")
	return root
}

// Neighborhood returns what addresses are counted by, where many calls or
// connections of one address are refused. Whoever has one IPv6 address has all
// of its /64.
func Neighborhood(address string) string {
	at, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if at.Is4() {
		return address
	}
	at = at.Unmap().WithZone("")
	if prefix, err := at.Prefix(64); at.Is6() && err == nil {
		return prefix.String()
	}
	return at.String()
}
