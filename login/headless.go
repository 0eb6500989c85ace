package login

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// headless is what waits for a program that has shown a key: encrypted for that
// key, so that who else knows the code learns nothing.
type headless struct {
	Key     string `json:"key,omitempty"` // ours, of this once, in base64url
	Token   []byte `json:"token,omitempty"`
	Refresh []byte `json:"refresh,omitempty"`
	Denied  bool   `json:"denied,omitempty"`
}

func (s *Service) deliverToHeadless(w http.ResponseWriter, r *http.Request, f *flow, n resource.Session) error {
	out, err := s.issue(r.Context(), f, n, programName(f.Client), "", "")
	if err != nil {
		return err
	}
	h, err := encryptFor(f.Headless, out.Token.Text, out.Refresh)
	if err != nil {
		return err
	}
	detail, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := s.store.Leave(r.Context(), digest("headless "+f.Headless), detail, s.cfg.Now().Add(headlessLife)); err != nil {
		return err
	}
	s.deleteFlow(w, f)
	s.show(w, r, http.StatusOK, "done", nil, &donePage{Purpose: forHeadless, Text: "Go back to your terminal. You can close this window."})
	return nil
}

// encryptFor encrypts texts for the holder of an X25519 key: AES-256-GCM under
// the shared secret, the nonce in front.
func encryptFor(code, token, refresh string) (h headless, _ error) {
	b, err := base64.RawURLEncoding.DecodeString(code)
	if err != nil {
		return h, fault.Field("headless_code", "is not a key")
	}
	theirs, err := ecdh.X25519().NewPublicKey(b)
	if err != nil {
		return h, fault.Field("headless_code", "is not a key")
	}
	ours, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return h, err
	}
	secret, err := ours.ECDH(theirs)
	if err != nil { // a key of low order: the secret would be known to all
		return h, fault.Field("headless_code", "is not a key that anything can be encrypted for")
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return h, err
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return h, err
	}
	h.Key = base64.RawURLEncoding.EncodeToString(ours.PublicKey().Bytes())
	h.Token = gcm.Seal(nil, nil, []byte(token), nil)
	if refresh != "" {
		h.Refresh = gcm.Seal(nil, nil, []byte(refresh), nil)
	}
	return h, nil
}

// A HeadlessSession is what waits for a program that has shown a key.
type HeadlessSession struct {
	PublicKey    []byte // in base64url
	Token        []byte // encrypted
	RefreshToken []byte // encrypted; empty if none was asked for
}

// Headless returns what waits for the key of a program. It returns
// fault.InvalidArgument for what is no key, fault.NotFound while nobody has
// signed in, and fault.PermissionDenied if somebody refused.
func (s *Service) Headless(ctx context.Context, code string) (HeadlessSession, error) {
	if b, err := base64.RawURLEncoding.DecodeString(code); err != nil || len(b) != 32 {
		return HeadlessSession{}, fault.Field("code", "must be an X25519 public key in unpadded base64url")
	}
	detail, err := s.store.Left(ctx, digest("headless "+code))
	if err != nil {
		return HeadlessSession{}, err
	}
	var h headless
	if err := json.Unmarshal(detail, &h); err != nil {
		return HeadlessSession{}, err
	}
	if h.Denied {
		return HeadlessSession{}, fault.New(fault.PermissionDenied, "Permission denied: the sign-in was refused in the browser")
	}
	return HeadlessSession{[]byte(h.Key), h.Token, h.Refresh}, nil
}
