// Package password hashes passwords with Argon2id and estimates how easy they are to
// guess.
package password

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/argon2"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Parameters of Argon2id. OWASP recommends them as its second choice.
const (
	hashMemory = 19 << 10 // memory in KiB
	hashTime   = 2
	hashLanes  = 1
	hashSize   = 32
	saltSize   = 16

	maxHashQueue           = 256             // greatest number of queued or running hashes; further ones are refused
	maxHashQueuePerNetwork = 32              // the same limit per network; enough for an office in the morning
	maxHashWait            = 5 * time.Second // longest time in the queue

	minPassword = 12  // shortest password in characters
	maxPassword = 512 // longest password in bytes
)

// A Hasher hashes and compares passwords. It limits the number of concurrent hashes,
// because each takes 19 MiB and a processor for about 20 ms, and many of them must
// not slow down the API. It is safe for concurrent use.
type Hasher struct {
	slots chan struct{}
	Dummy string // a hash that no password matches; used for accounts without a hash

	mu      sync.Mutex
	waiting int            // number of queued or running hashes
	from    map[string]int // number of queued or running hashes, by network
}

// NewHasher returns a hasher that runs n hashes at the same time.
func NewHasher(n int) *Hasher {
	h := &Hasher{slots: make(chan struct{}, n), from: map[string]int{}}
	h.Dummy = encodeHash(make([]byte, saltSize), make([]byte, hashSize))
	return h
}

var errBusy = &fault.Error{
	Code: fault.ResourceExhausted, RetryIn: 5 * time.Second,
	Message: "Resource exhausted: too many people are signing in now; try again in a moment",
}

// enqueue reserves a slot in the queue for a network. It returns false if no slot is
// free. The network of the service itself is "".
func (h *Hasher) enqueue(network string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting >= maxHashQueue || network != "" && h.from[network] >= maxHashQueuePerNetwork {
		return false
	}
	h.waiting++
	h.from[network]++
	return true
}

func (h *Hasher) dequeue(network string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting--
	if h.from[network]--; h.from[network] == 0 {
		delete(h.from, network)
	}
}

// run calls f as soon as a processor slot is free. It returns fault.ResourceExhausted
// if the queue is full, in total or for the network of the request, or if the wait
// is longer than maxHashWait.
func (h *Hasher) run(ctx context.Context, f func()) error {
	from := resource.NetworkOf(resource.ActorFrom(ctx).Remote)
	if !h.enqueue(from) {
		return errBusy
	}
	defer h.dequeue(from)
	timeout := time.NewTimer(maxHashWait)
	defer timeout.Stop()
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-timeout.C:
		return errBusy
	case <-ctx.Done():
		return ctx.Err()
	}
	f()
	return nil
}

func encodeHash(salt, key []byte) string {
	b := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s",
		argon2.Version, hashMemory, hashTime, hashLanes, b.EncodeToString(salt), b.EncodeToString(key))
}

// Hash returns the hash of a password, encoded with its salt and parameters. It
// returns fault.ResourceExhausted if too many hashes are queued.
func (h *Hasher) Hash(ctx context.Context, password string) (hash string, err error) {
	salt := make([]byte, saltSize)
	rand.Read(salt) // rand.Read never fails
	err = h.run(ctx, func() {
		hash = encodeHash(salt, argon2.IDKey([]byte(password), salt, hashTime, hashMemory, hashLanes, hashSize))
	})
	return hash, err
}

// A parsedHash is the decoded hash of a password.
type parsedHash struct {
	memory, passes, lanes int
	salt, key             []byte
}

func parseHash(hash string) (h parsedHash, _ error) {
	var version int
	parts := strings.Split(hash, "$")
	if len(parts) != 6 || parts[1] != "argon2id" {
		return h, errors.New("the password hash is malformed")
	}
	_, err := fmt.Sscanf(parts[2]+" "+parts[3], "v=%d m=%d,t=%d,p=%d", &version, &h.memory, &h.passes, &h.lanes)
	if err != nil || version != argon2.Version {
		return h, errors.New("the password hash is malformed")
	}
	if h.salt, err = base64.RawStdEncoding.DecodeString(parts[4]); err != nil {
		return h, fmt.Errorf("salt of a password: %w", err)
	}
	if h.key, err = base64.RawStdEncoding.DecodeString(parts[5]); err != nil {
		return h, fmt.Errorf("hash of a password: %w", err)
	}
	return h, nil
}

// Verify reports whether a password has that hash. No password matches the hash "". Comparing it takes as long as any
// other comparison, so that the time does not reveal which accounts exist. Verify returns fault.ResourceExhausted if
// too many hashes are queued.
func (h *Hasher) Verify(ctx context.Context, hash, password string) (bool, error) {
	ok, err := h.VerifyAll(ctx, []string{hash}, password)
	return err == nil && ok[0], err
}

// VerifyAll is Verify for several hashes of one password.
func (h *Hasher) VerifyAll(ctx context.Context, hashes []string, password string) ([]bool, error) {
	if len(password) > maxPassword {
		password = ""
	}
	parsed, ok := make([]parsedHash, len(hashes)), make([]bool, len(hashes))
	for i, hash := range hashes {
		var err error
		if parsed[i], err = parseHash(cmp.Or(hash, h.Dummy)); err != nil {
			return nil, err
		}
	}
	err := h.run(ctx, func() {
		for i, want := range parsed {
			got := argon2.IDKey([]byte(password), want.salt,
				uint32(want.passes), uint32(want.memory), uint8(want.lanes), uint32(len(want.key)))
			ok[i] = subtle.ConstantTimeCompare(got, want.key) == 1 && hashes[i] != ""
		}
	})
	return ok, err
}
