package login

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// How passwords are hashed: the second of the choices that OWASP gives.
const (
	hashMemory = 19 << 10 // KiB
	hashTime   = 2
	hashLanes  = 1
	hashSize   = 32
	saltSize   = 16

	maxHashQueue           = 256             // for a hasher; more are sent away
	maxHashQueuePerNetwork = 32              // of these; so one network cannot keep the others out, and an office can begin its day
	maxHashWait            = 5 * time.Second // of one that waits

	maxAccountsTried = 3 // accounts that one password is compared with; always as many, so that time does not tell how many there are

	minPassword = 12
	maxPassword = 512
)

// A hasher hashes passwords, few at a time: each takes 19 MiB and a processor
// for some 20 ms, and a flood of them shall take neither from the API.
type hasher struct {
	slots chan struct{}
	dummy string // a hash that no password has

	mu      sync.Mutex
	waiting int            // in the queue or at work
	from    map[string]int // of these, by network
}

func newHasher(n int) *hasher {
	h := &hasher{slots: make(chan struct{}, n), from: map[string]int{}}
	h.dummy = encodeHash(make([]byte, saltSize), make([]byte, hashSize))
	return h
}

var errBusy = &fault.Error{
	Code: fault.ResourceExhausted, Message: "Resource exhausted: too many people are signing in at once; try again in a moment", RetryIn: 5 * time.Second,
}

// enqueue takes a place in the queue for who comes from a network, or reports that
// there is none. "" is ourselves.
func (h *hasher) enqueue(network string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting >= maxHashQueue || network != "" && h.from[network] >= maxHashQueuePerNetwork {
		return false
	}
	h.waiting++
	h.from[network]++
	return true
}

func (h *hasher) dequeue(network string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting--
	if h.from[network]--; h.from[network] == 0 {
		delete(h.from, network)
	}
}

// run calls f when it is its turn. It returns fault.ResourceExhausted if too many
// wait already, in all or from the network of the request, or for too long.
func (h *hasher) run(ctx context.Context, f func()) error {
	from := network(resource.ActorFrom(ctx).Remote)
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
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, hashMemory, hashTime, hashLanes, b.EncodeToString(salt), b.EncodeToString(key))
}

// hash returns the hash of a password, with a salt and how it was made.
func (h *hasher) hash(ctx context.Context, password string) (hash string, err error) {
	salt := make([]byte, saltSize)
	rand.Read(salt) // never fails
	err = h.run(ctx, func() {
		hash = encodeHash(salt, argon2.IDKey([]byte(password), salt, hashTime, hashMemory, hashLanes, hashSize))
	})
	return hash, err
}

// A parsedHash is the hash of a password, read.
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
	if _, err := fmt.Sscanf(parts[2]+" "+parts[3], "v=%d m=%d,t=%d,p=%d", &version, &h.memory, &h.passes, &h.lanes); err != nil || version != argon2.Version {
		return h, errors.New("a password's hash is malformed")
	}
	var err error
	if h.salt, err = base64.RawStdEncoding.DecodeString(parts[4]); err != nil {
		return h, fmt.Errorf("a password's salt: %w", err)
	}
	if h.key, err = base64.RawStdEncoding.DecodeString(parts[5]); err != nil {
		return h, fmt.Errorf("a password's hash: %w", err)
	}
	return h, nil
}

// verify tells whether a password has that hash. It takes as long for "", which
// is the hash of nobody: how long an answer takes does not tell who exists.
func (h *hasher) verify(ctx context.Context, hash, password string) (bool, error) {
	ok, err := h.verifyAll(ctx, []string{hash}, password)
	return err == nil && ok[0], err
}

// verifyAll tells for each of some hashes whether a password has it.
func (h *hasher) verifyAll(ctx context.Context, hashes []string, password string) ([]bool, error) {
	if len(password) > maxPassword {
		password = ""
	}
	read, ok := make([]parsedHash, len(hashes)), make([]bool, len(hashes))
	for i, hash := range hashes {
		if hash == "" {
			hash = h.dummy
		}
		var err error
		if read[i], err = parseHash(hash); err != nil {
			return nil, err
		}
	}
	err := h.run(ctx, func() {
		for i, want := range read {
			got := argon2.IDKey([]byte(password), want.salt, uint32(want.passes), uint32(want.memory), uint8(want.lanes), uint32(len(want.key)))
			ok[i] = subtle.ConstantTimeCompare(got, want.key) == 1 && hashes[i] != ""
		}
	})
	return ok, err
}

// checkPassword says what is wrong with a password that somebody chose. It asks
// for length and nothing else: rules about signs make passwords people write
// down.
func checkPassword(password, email string) error {
	name, _, _ := strings.Cut(email, "@")
	folded := strings.ToLower(password)
	first, _ := utf8.DecodeRuneInString(password)
	switch {
	case utf8.RuneCountInString(password) < minPassword:
		return fault.Field("password", "must have at least %d characters", minPassword)
	case len(password) > maxPassword:
		return fault.Field("password", "must have at most %d bytes", maxPassword)
	case strings.Trim(password, string(first)) == "":
		return fault.Field("password", "must not be the same character throughout")
	case folded == email || len(name) >= minPassword && folded == name:
		return fault.Field("password", "must not be the e-mail address")
	}
	return nil
}
