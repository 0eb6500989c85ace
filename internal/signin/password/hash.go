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

// Parameters of Argon2id: the second of the choices that OWASP recommends.
const (
	hashMemory = 19 << 10 // KiB
	hashTime   = 2
	hashLanes  = 1
	hashSize   = 32
	saltSize   = 16

	maxHashQueue           = 256             // queued or running; more are refused
	maxHashQueuePerNetwork = 32              // of these; enough for an office to start its day
	maxHashWait            = 5 * time.Second // in the queue

	minPassword = 12
	maxPassword = 512
)

// A Hasher hashes passwords, a few at a time. Each hash takes 19 MiB and a
// processor for some 20 ms, and many of them must not slow down the API.
type Hasher struct {
	slots chan struct{}
	Dummy string // a hash that no password matches

	mu      sync.Mutex
	waiting int            // queued or running
	from    map[string]int // waiting, by network
}

func NewHasher(n int) *Hasher {
	h := &Hasher{slots: make(chan struct{}, n), from: map[string]int{}}
	h.Dummy = encodeHash(make([]byte, saltSize), make([]byte, hashSize))
	return h
}

var errBusy = &fault.Error{
	Code: fault.ResourceExhausted, RetryIn: 5 * time.Second,
	Message: "Resource exhausted: too many people are signing in at once; try again in a moment",
}

// enqueue reserves a slot in the queue for a network, or reports that there is
// none. The network of the service itself is "".
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

// run calls f when a slot is free. It returns fault.ResourceExhausted if the
// queue is full, in total or for the network of the request, or if waiting
// takes too long.
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

// Hash returns the hash of a password, encoded with its salt and parameters.
func (h *Hasher) Hash(ctx context.Context, password string) (hash string, err error) {
	salt := make([]byte, saltSize)
	rand.Read(salt) // never fails
	err = h.run(ctx, func() {
		hash = encodeHash(salt, argon2.IDKey([]byte(password), salt, hashTime, hashMemory, hashLanes, hashSize))
	})
	return hash, err
}

// A parsedHash is a decoded hash of a password.
type parsedHash struct {
	memory, passes, lanes int
	salt, key             []byte
}

func parseHash(hash string) (h parsedHash, _ error) {
	var version int
	parts := strings.Split(hash, "$")
	if len(parts) != 6 || parts[1] != "argon2id" {
		return h, errors.New("a password's hash is malformed")
	}
	_, err := fmt.Sscanf(parts[2]+" "+parts[3], "v=%d m=%d,t=%d,p=%d", &version, &h.memory, &h.passes, &h.lanes)
	if err != nil || version != argon2.Version {
		return h, errors.New("a password's hash is malformed")
	}
	if h.salt, err = base64.RawStdEncoding.DecodeString(parts[4]); err != nil {
		return h, fmt.Errorf("a password's salt: %w", err)
	}
	if h.key, err = base64.RawStdEncoding.DecodeString(parts[5]); err != nil {
		return h, fmt.Errorf("a password's hash: %w", err)
	}
	return h, nil
}

// Verify reports whether a password has that hash. It takes as long for "",
// which no password matches, so that timing does not reveal which accounts
// exist.
func (h *Hasher) Verify(ctx context.Context, hash, password string) (bool, error) {
	ok, err := h.VerifyAll(ctx, []string{hash}, password)
	return err == nil && ok[0], err
}

// VerifyAll reports for each hash whether a password has it.
func (h *Hasher) VerifyAll(ctx context.Context, hashes []string, password string) ([]bool, error) {
	if len(password) > maxPassword {
		password = ""
	}
	read, ok := make([]parsedHash, len(hashes)), make([]bool, len(hashes))
	for i, hash := range hashes {
		var err error
		if read[i], err = parseHash(cmp.Or(hash, h.Dummy)); err != nil {
			return nil, err
		}
	}
	err := h.run(ctx, func() {
		for i, want := range read {
			got := argon2.IDKey([]byte(password), want.salt,
				uint32(want.passes), uint32(want.memory), uint8(want.lanes), uint32(len(want.key)))
			ok[i] = subtle.ConstantTimeCompare(got, want.key) == 1 && hashes[i] != ""
		}
	})
	return ok, err
}
