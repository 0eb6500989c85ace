package login

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"github.com/holdfast-dev/holdfast/fault"
)

// How passwords are hashed: the second of the choices that OWASP gives.
const (
	hashMemory = 19 << 10 // KiB
	hashTime   = 2
	hashLanes  = 1
	hashSize   = 32
	saltSize   = 16

	hashesWaiting = 256             // for a hasher; more are sent away
	hashPatience  = 5 * time.Second // of one that waits

	minPassword = 12
	maxPassword = 512
)

// A hasher hashes passwords, few at a time: each takes 19 MiB and a processor
// for some 20 ms, and a flood of them shall take neither from the API.
type hasher struct {
	slots   chan struct{}
	waiting chan struct{}
	nobody  string // a hash that no password has
}

func newHasher(n int) *hasher {
	h := &hasher{slots: make(chan struct{}, n), waiting: make(chan struct{}, hashesWaiting)}
	h.nobody = encodeHash(make([]byte, saltSize), make([]byte, hashSize))
	return h
}

var errBusy = &fault.Error{
	Code: fault.ResourceExhausted, Message: "Resource exhausted: too many people are signing in at once; try again in a moment", RetryIn: 5 * time.Second,
}

// run calls f when it is its turn. It returns fault.ResourceExhausted if too many
// wait already, or for too long.
func (h *hasher) run(ctx context.Context, f func()) error {
	select {
	case h.waiting <- struct{}{}:
		defer func() { <-h.waiting }()
	default:
		return errBusy
	}
	patience := time.NewTimer(hashPatience)
	defer patience.Stop()
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-patience.C:
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

// right tells whether a password has that hash. It takes as long for "", which
// is the hash of nobody: how long an answer takes does not tell who exists.
func (h *hasher) right(ctx context.Context, hash, password string) (ok bool, err error) {
	if len(password) > maxPassword {
		password = ""
	}
	exists := hash != ""
	if !exists {
		hash = h.nobody
	}
	var version, memory, passes, lanes int
	parts := strings.Split(hash, "$")
	if len(parts) != 6 || parts[1] != "argon2id" {
		return false, fmt.Errorf("a password's hash is malformed")
	}
	if _, err := fmt.Sscanf(parts[2]+" "+parts[3], "v=%d m=%d,t=%d,p=%d", &version, &memory, &passes, &lanes); err != nil || version != argon2.Version {
		return false, fmt.Errorf("a password's hash is malformed")
	}
	salt, err := base64.RawStdEncoding.DecodeString(parts[4])
	if err != nil {
		return false, fmt.Errorf("a password's salt: %w", err)
	}
	want, err := base64.RawStdEncoding.DecodeString(parts[5])
	if err != nil {
		return false, fmt.Errorf("a password's hash: %w", err)
	}
	err = h.run(ctx, func() {
		got := argon2.IDKey([]byte(password), salt, uint32(passes), uint32(memory), uint8(lanes), uint32(len(want)))
		ok = subtle.ConstantTimeCompare(got, want) == 1 && exists
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
