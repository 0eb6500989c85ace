package api

import (
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// What one tenant, or one address of callers without a token, may hold of the
// server's memory at once. A tenant is the organization of the caller's identity;
// a person who belongs to none is a tenant of their own.
const (
	// A message that comes from a caller without a token. All such methods
	// take tokens and names, and tokens have at most 16 KiB.
	maxStrangerMessage = 64 << 10

	// Calls of one address, without a token, whose messages are being read: 8 MiB.
	maxStrangersReading = 128

	// Messages are small, and come right behind their headers. One that takes
	// longer than patience counts as slow. A tenant may send this many slow
	// messages at once, of 4 MiB each; an address without a token fewer,
	// because a proxy's connection does not keep them below maxStrangerMessage.
	patience         = 250 * time.Millisecond
	maxSlow          = 16
	maxSlowStrangers = 8

	// strangerTime is how long a message of a caller without a token may take.
	// Those of others have the time of the call.
	strangerTime = 10 * time.Second

	// Calls with streams, which go on as long as the caller likes.
	maxCallsWithStreams      = 32
	maxStrangersWithStreams  = 128
	smallAnswer              = 4 << 10  // answers below this are not counted
	maxUnsent                = 32 << 20 // bytes of answers that have not been sent yet: at least one always may
	maxUnsentToStrangers     = 4 << 20
	minAnswerRate            = 64 << 10 // bytes a second at which an answer must be taken
	answerTime               = time.Minute
	retryWhenTooMuchIsUnsent = 5 * time.Second
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

// quotas are those of callers whose tokens are good, or those of strangers.
type quotas struct {
	slow    *quota // messages that are slow to come
	streams *quota // calls with streams
	unsent  *quota // bytes of answers
}

// busy is the error for a holder who would have more than it may.
func busy(what string) error {
	f := fault.New(fault.ResourceExhausted, "Resource exhausted: too many %s at once; try again", what)
	f.RetryIn = retryWhenTooMuchIsUnsent
	return f
}

// tenantOf returns whose quotas a caller's calls count against.
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
	at = at.Unmap().WithZone("")
	if at.Is6() {
		if prefix, err := at.Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return at.String()
}
