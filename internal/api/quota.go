package api

import (
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// How much of the server's memory callers may use at once. A tenant is the
// organization of the caller's identity, or a person who belongs to none.
// Addresses are limited as well, because one organization can have many people.
// Anonymous callers, who have shown no valid token, are limited by address only.
const (
	// maxAnonymousMessage is the size of a message without a token. All methods
	// that need no token take tokens and names, and a token has at most 16 KiB.
	maxAnonymousMessage = 64 << 10

	// maxAnonymousCalls is how many calls without a token one address may have
	// in flight over gRPC. Each costs about 10 KiB, with its goroutine.
	maxAnonymousCalls = 128

	// admitTime is how long authenticating a call may block its connection.
	admitTime = 5 * time.Second

	// maxAnonymousReading is how many calls without a token one address may have
	// whose messages are being read: 8 MiB.
	maxAnonymousReading = 128

	// Messages are small, and follow their headers at once. A message that takes
	// longer than slowAfter is slow, and may use up to 4 MiB. Anonymous callers
	// may have few of them, because on a connection of a proxy nothing keeps a
	// message below maxAnonymousMessage while it arrives.
	slowAfter        = 250 * time.Millisecond
	maxSlow          = 16
	maxSlowByAddress = 32
	maxSlowAnonymous = 8

	// anonymousTime is how long a message without a token may take. Other
	// messages may take as long as the call.
	anonymousTime = 10 * time.Second

	// Calls with streams last as long as the caller likes.
	maxStreaming          = 32
	maxStreamingByAddress = 128
	maxStreamingAnonymous = 128

	// Calls that watch cost little while nothing happens. Each person with a console
	// may have one open for hours.
	maxWatching          = 256
	maxWatchingByAddress = 512

	// Bytes of answers that clients have not read yet. An answer below
	// smallAnswer is not counted. But every answer to an anonymous caller is,
	// with at least anonymousAnswer bytes, because grpc-go keeps the call with it.
	smallAnswer        = 4 << 10
	anonymousAnswer    = 8 << 10
	maxUnsent          = 32 << 20
	maxUnsentByAddress = 64 << 20
	maxUnsentAnonymous = 4 << 20

	// A client must read an answer over gRPC within answerTime, plus a second for
	// every minAnswerRate bytes.
	answerTime    = time.Minute
	minAnswerRate = 64 << 10

	retryBusy = 5 * time.Second // when a caller that was over its quota may try again
)

// A quota limits how much of something each of many holders uses at once.
type quota struct {
	most int64

	mu   sync.Mutex
	used map[string]int64 // by holder; without those that use nothing
}

func newQuota(most int64) *quota { return &quota{most: most, used: map[string]int64{}} }

// acquire reports whether a holder may use n more, and counts it if so. A holder
// that uses nothing may use any amount.
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

// release counts that a holder uses n less.
func (q *quota) release(holder string, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.used[holder] -= n; q.used[holder] <= 0 {
		delete(q.used, holder)
	}
}

// A callQuota limits how much of something the tenant and the address of calls
// use at once.
type callQuota struct{ tenants, addresses, anonymous *quota }

func newCallQuota(tenant, address, anonymous int64) callQuota {
	return callQuota{newQuota(tenant), newQuota(address), newQuota(anonymous)}
}

// acquire reports whether the caller of k may use n more, and counts it if so.
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

// release counts that the caller of k uses n less.
func (q callQuota) release(k *call, n int64) {
	if k.anonymous() {
		q.anonymous.release(k.network, n)
		return
	}
	q.tenants.release(k.tenant, n)
	q.addresses.release(k.network, n)
}

// busy returns the error for a caller that is over its quota of something.
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
