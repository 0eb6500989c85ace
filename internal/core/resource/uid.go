// Package resource defines the resources of the service, such as groups, identities, roles and bindings, with
// their validation and the events about them. It does no I/O and imports only the standard library and fault.
package resource

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// A UID identifies a resource by its path: the segments of its ancestors, root first, and
// its own segment. The segment of a root has 40 hexadecimal digits, and the other
// segments have 16.
type UID string

const (
	rootDigits    = 40
	segmentDigits = 16

	// MaxGroupDepth is the largest number of nested groups. It is less than MaxDepth, because the
	// resources in groups need levels, too.
	MaxGroupDepth = 16

	// MaxDepth is how many segments a UID may have. It bounds how many counters one write has to update.
	MaxDepth = 32
)

// ParseUID returns s as a UID. If s is malformed, it returns a fault that names the field.
func ParseUID(field, s string) (UID, error) {
	if s == "" {
		return "", fault.Field(field, "is required")
	}
	if !WellFormed(s) {
		return "", fault.Field(field,
			"must be 40 lower-case hexadecimal digits, then 16 after each slash, at most %d levels", MaxDepth)
	}
	return UID(s), nil
}

// WellFormed reports whether s has the form of a UID. The resource need not exist.
func WellFormed(s string) bool {
	if len(s) < rootDigits || (len(s)-rootDigits)%(segmentDigits+1) != 0 || UID(s).Depth() > MaxDepth {
		return false
	}
	for i := range len(s) {
		if slash := i >= rootDigits && (i-rootDigits)%(segmentDigits+1) == 0; slash {
			if s[i] != '/' {
				return false
			}
		} else if (s[i] < '0' || s[i] > '9') && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return true
}

// NewRoot returns a new random UID without a parent.
func NewRoot() UID {
	var b [rootDigits / 2]byte
	rand.Read(b[:]) // Read never returns an error
	return UID(hex.EncodeToString(b[:]))
}

// NewChild returns a new UID under u.
func (u UID) NewChild() UID {
	var b [segmentDigits / 2]byte
	rand.Read(b[:]) // Read never returns an error
	return u + "/" + UID(hex.EncodeToString(b[:]))
}

// DerivedUID returns a UID without a parent that is derived from words. Equal words give equal
// UIDs.
func DerivedUID(words ...string) UID { return UID(hex.EncodeToString(HashWords(words)[:rootDigits/2])) }

// HashWords returns the SHA-256 sum of words. It includes the length of each word, so that different lists of
// words give different sums.
func HashWords(words []string) []byte {
	h := sha256.New()
	for _, w := range words {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(w))) // so that ("a", "bc") differs from ("ab", "c")
		h.Write(n[:])
		h.Write([]byte(w))
	}
	return h.Sum(nil)
}

// Parent returns the UID one level up, or "" if u is a root.
func (u UID) Parent() UID {
	return u[:max(0, strings.LastIndexByte(string(u), '/'))]
}

// Root returns the UID of the organization that u belongs to.
func (u UID) Root() UID {
	root, _, _ := strings.Cut(string(u), "/")
	return UID(root)
}

// IsRoot reports whether u is a UID without a parent.
func (u UID) IsRoot() bool { return u != "" && !strings.Contains(string(u), "/") }

// Depth returns the number of segments in u.
func (u UID) Depth() int {
	if u == "" {
		return 0
	}
	return 1 + strings.Count(string(u), "/")
}

// Ancestor returns the ancestor of u at depth d, which may be u itself.
func (u UID) Ancestor(d int) UID { return u[:min(len(u), rootDigits+(d-1)*(segmentDigits+1))] }

// Ancestors returns the proper ancestors of u, root first.
func (u UID) Ancestors() []UID {
	var all []UID
	for i := range len(u) {
		if u[i] == '/' {
			all = append(all, u[:i])
		}
	}
	return all
}

// Covers reports whether v is u or below it. "" covers nothing.
func (u UID) Covers(v UID) bool {
	return u != "" && len(v) >= len(u) && v[:len(u)] == u && (len(v) == len(u) || v[len(u)] == '/')
}

// Segment returns the last 16 digits of u as a number. It is unique among the resources of a
// kind, so the store uses it as the key.
func (u UID) Segment() int64 {
	// the error is ignored: the result is 0 if u is not a UID
	n, _ := strconv.ParseUint(string(u[max(0, len(u)-segmentDigits):]), 16, 64)
	return int64(n)
}

// risingBits is the number of low bits of a rising segment, which distinguish the segments of one millisecond.
const risingBits = 20

// rising has the last segments that NewRisingChild returned, for the latest milliseconds. Segments increase with time,
// so that a database appends imported rows at the end of its indexes, and the order by UID is the order of creation.
// The given times may decrease: a clock can be set back, and two servers in one process can have different clocks.
var rising = risingSegments{last: map[int64]uint64{}}

type risingSegments struct {
	mu     sync.Mutex
	last   map[int64]uint64 // last segment by millisecond
	recent [64]int64        // the keys of last; the oldest is at position next
	next   int
}

// take returns a segment for a millisecond that is greater than the segments that it returned for it before.
func (r *risingSegments) take(ms int64) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	segment, ok := r.last[ms]
	if ok {
		segment++
	} else {
		delete(r.last, r.recent[r.next])
		r.recent[r.next] = ms
		r.next = (r.next + 1) % len(r.recent)
		segment = uint64(ms)<<risingBits | mathrand.Uint64N(1<<(risingBits-1))
	}
	r.last[ms] = segment
	return segment
}

// NewRisingChild returns a new UID under u. It is greater than the UIDs that were returned
// before for times up to t.
func (u UID) NewRisingChild(t time.Time) UID {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], rising.take(t.UnixMilli()))
	return u + "/" + UID(hex.EncodeToString(b[:]))
}

// Distinct returns UIDs as strings, sorted and without duplicates.
func Distinct(uids []UID) []string {
	texts := make([]string, len(uids))
	for i, uid := range uids {
		texts[i] = string(uid)
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}
