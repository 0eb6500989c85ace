package api

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Limits of the memory that callers may use at the same time. A tenant is the
// organization that pays for the organization of a workload, or of the account or identity
// provider of a person. A person without these is a tenant. Addresses are limited as well.
// Anonymous callers, who have shown no valid token, are limited by address only.
const (
	// maxAnonymousMessage is the maximum size of a message without a token, in bytes.
	// Methods that need no token accept only tokens and names, and a token has at most 16
	// KiB.
	maxAnonymousMessage = 64 << 10

	// maxAnonymousCalls is the number of calls without a token that one address may have in
	// flight over gRPC. Each call needs about 10 KiB, including its goroutine.
	maxAnonymousCalls = 128

	// admitTime is the maximum time for which the authentication of a call may block its
	// connection.
	admitTime = 5 * time.Second

	// maxAnonymousReading is the largest number of messages of callers without a token
	// that the server reads at the same time from one address: 8 MiB in all.
	maxAnonymousReading = 128

	// Messages are small and follow their headers immediately. A message that takes
	// longer than slowAfter is slow and may use up to 4 MiB. Anonymous callers may
	// have only few slow messages, because on a connection of a proxy no limit
	// keeps a message below maxAnonymousMessage while it arrives.
	slowAfter        = 250 * time.Millisecond
	maxSlow          = 16
	maxSlowByAddress = 32
	maxSlowAnonymous = 8

	// anonymousTime is the time in which a message without a token must arrive.
	// Other messages may take as long as the call.
	anonymousTime = 10 * time.Second

	// Calls with streams last as long as the caller likes.
	maxStreaming          = 32
	maxStreamingByAddress = 128
	maxStreamingAnonymous = 128

	// Calls that watch need few resources while there are no events. Each person
	// with a console may keep one open for hours.
	maxWatching          = 256
	maxWatchingByAddress = 512

	// Limits of the answers that clients have not read yet, in bytes. An answer
	// below smallAnswer is not counted. Every answer to an anonymous caller counts
	// as at least anonymousAnswer bytes, because grpc-go keeps the call in memory
	// until the answer is read.
	smallAnswer        = 4 << 10
	anonymousAnswer    = 8 << 10
	maxUnsent          = 32 << 20
	maxUnsentByAddress = 64 << 20
	maxUnsentAnonymous = 4 << 20

	// A client must read an answer over gRPC within answerTime, plus a second for
	// every minAnswerRate bytes.
	answerTime    = time.Minute
	minAnswerRate = 64 << 10

	retryBusy = 5 * time.Second // time after which a refused caller may retry
)

// A quota limits the units of a resource that each holder uses at the same time.
type quota struct {
	most int64

	mu   sync.Mutex
	used map[string]int64 // units by holder, without holders that use 0 units
}

func newQuota(most int64) *quota { return &quota{most: most, used: map[string]int64{}} }

// acquire reports whether a holder may use n more units, and counts them if so. A
// holder that uses no units may acquire any number.
func (q *quota) acquire(holder string, n int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	used := q.used[holder]
	if used > 0 && used+n > q.most {
		return false
	}
	q.used[holder] = used + n
	return true
}

// release gives back n units that a holder has acquired.
func (q *quota) release(holder string, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.used[holder] -= n; q.used[holder] <= 0 {
		delete(q.used, holder)
	}
}

// A callQuota limits the units of a resource that the tenant and the address of
// calls use at the same time.
type callQuota struct{ tenants, addresses, anonymous *quota }

func newCallQuota(tenant, address, anonymous int64) callQuota {
	return callQuota{newQuota(tenant), newQuota(address), newQuota(anonymous)}
}

// acquire reports whether the caller of k may use n more units, and counts them if
// so.
func (q callQuota) acquire(k *call, n int64) bool {
	switch {
	case k.anonymous():
		return q.anonymous.acquire(k.network, n)
	case !q.tenants.acquire(k.tenant, n):
		return false
	case !q.addresses.acquire(k.network, n):
		q.tenants.release(k.tenant, n)
		return false
	}
	return true
}

// release gives back n units that the caller of k has acquired.
func (q callQuota) release(k *call, n int64) {
	if k.anonymous() {
		q.anonymous.release(k.network, n)
		return
	}
	q.tenants.release(k.tenant, n)
	q.addresses.release(k.network, n)
}

// busy returns the error for a caller that exceeds its quota of units.
func busy(units string) error {
	f := fault.New(fault.ResourceExhausted, "Resource exhausted: too many %s at once; try again", units)
	f.RetryIn = retryBusy
	return f
}

// organizationOf returns the organization of a caller's identity as its tenant.
// Config.Tenant defaults to it.
func organizationOf(_ context.Context, caller authz.Caller) resource.Tenant {
	return resource.Tenant(caller.Identity.Root())
}
