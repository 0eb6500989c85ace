package login

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
)

const headlessLife = 5 * time.Minute // time in which the program must fetch its tokens

// headless is the stored result of a sign-in for a program that has shown a public key. Its
// tokens are encrypted for that key, so that the code alone is not enough to read them.
type headless struct {
	Key     string `json:"key,omitempty"` // our ephemeral public key, in base64url
	Token   []byte `json:"token,omitempty"`
	Refresh []byte `json:"refresh,omitempty"`
	Denied  bool   `json:"denied,omitempty"`
}

func (s *Service) deliverToHeadless(w http.ResponseWriter, r *http.Request, f *flow, n resource.Session) error {
	out, err := s.issue(r.Context(), f, n, cmp.Or(f.Client, unnamedProgram), "", "")
	if err != nil {
		return err
	}
	h, err := encryptFor(f.Headless, out.Token.Text, out.Refresh)
	if err != nil {
		return err
	}
	if err := s.storeHeadless(r.Context(), f, h); err != nil {
		return err
	}
	return s.done(w, r, f, "Go back to your terminal. You can close this window.")
}

func (s *Service) storeHeadless(ctx context.Context, f *flow, h headless) error {
	detail, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return s.accounts.PutHandoff(ctx, signindb.Digest("headless "+f.Headless), detail, s.cfg.Now().Add(headlessLife))
}

// encryptFor encrypts tokens for the owner of an X25519 key. It uses AES-256-GCM with the
// shared secret as the key. The nonce precedes each ciphertext. code is the public key.
func encryptFor(code, token, refresh string) (h headless, _ error) {
	b, err := base64.RawURLEncoding.DecodeString(code)
	if err != nil {
		return h, fault.Field("headless_code", "is not a key")
	}
	public, err := ecdh.X25519().NewPublicKey(b)
	if err != nil {
		return h, fault.Field("headless_code", "is not a key")
	}
	ephemeral, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return h, err
	}
	secret, err := ephemeral.ECDH(public)
	if err != nil { // a key of low order, whose shared secret is known to everybody
		return h, fault.Field("headless_code", "is not a key that can be used for encryption")
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return h, err
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return h, err
	}
	h.Key = base64.RawURLEncoding.EncodeToString(ephemeral.PublicKey().Bytes())
	h.Token = gcm.Seal(nil, nil, []byte(token), nil)
	if refresh != "" {
		h.Refresh = gcm.Seal(nil, nil, []byte(refresh), nil)
	}
	return h, nil
}

// A HeadlessSession is the result of a sign-in for a program that has shown a
// public key.
type HeadlessSession struct {
	PublicKey    []byte // in base64url
	Token        []byte // encrypted
	RefreshToken []byte // encrypted; empty if no refresh token was requested
}

// Headless returns the result of a sign-in for a program. code is the public key of the
// program. Headless returns fault.InvalidArgument if code is not a key, fault.NotFound while
// nobody has signed in, and fault.PermissionDenied if the person has refused.
func (s *Service) Headless(ctx context.Context, code string) (HeadlessSession, error) {
	if b, err := base64.RawURLEncoding.DecodeString(code); err != nil || len(b) != 32 {
		return HeadlessSession{}, fault.Field("code", "must be an X25519 public key in unpadded base64url")
	}
	detail, err := s.accounts.Handoff(ctx, signindb.Digest("headless "+code))
	if err != nil {
		return HeadlessSession{}, err
	}
	var h headless
	if err := json.Unmarshal(detail, &h); err != nil {
		return HeadlessSession{}, err
	}
	if h.Denied {
		return HeadlessSession{}, fault.New(fault.PermissionDenied,
			"Permission denied: the sign-in was refused in the browser")
	}
	return HeadlessSession{[]byte(h.Key), h.Token, h.Refresh}, nil
}

// checkCode returns a short form of the public key of a headless program. The person compares
// it with the code in their terminal.
func checkCode(headless string) string {
	sum := sha256.Sum256([]byte(headless))
	text := base32.StdEncoding.EncodeToString(sum[:5])
	return text[:4] + "-" + text[4:8]
}
