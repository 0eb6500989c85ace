package signin

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"

	authpb "github.com/holdfast-dev/holdfast/gen/auth"
)

// sealFor encrypts texts for the holder of a key, as the issuer does.
func sealFor(t testing.TB, public *ecdh.PublicKey, access, refresh string) *authpb.HeadlessSession {
	t.Helper()
	own, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := own.ECDH(public)
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(shared)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	seal := func(text string) []byte {
		nonce := make([]byte, gcm.NonceSize())
		rand.Read(nonce)
		return gcm.Seal(nonce, nonce, []byte(text), nil)
	}
	s := &authpb.HeadlessSession{
		EcdhPublicKey:    []byte(base64.RawURLEncoding.EncodeToString(own.PublicKey().Bytes())),
		EncryptedIdtoken: seal(access),
	}
	if refresh != "" {
		s.EncryptedRefreshToken = seal(refresh)
	}
	return s
}

func TestOpenTokens(t *testing.T) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sound := func() *authpb.HeadlessSession { return sealFor(t, key.PublicKey(), "access", "refresh") }
	if got, err := openTokens(key, sound()); err != nil || got != (tokens{Access: "access", Refresh: "refresh"}) {
		t.Errorf("opened %v, %v", got, err)
	}
	if got, err := openTokens(key, sealFor(t, key.PublicKey(), "access", "")); err != nil ||
		got != (tokens{Access: "access"}) {
		t.Errorf("opened %v, %v; want no refresh token", got, err)
	}
	bad := map[string]*authpb.HeadlessSession{
		"for another":       sealFor(t, other.PublicKey(), "access", "refresh"),
		"nothing":           {},
		"no token in it":    sealFor(t, key.PublicKey(), "not a token", ""),
		"a bad second half": sealFor(t, key.PublicKey(), "access", "not a token"),
	}
	spoilt := map[string]func(*authpb.HeadlessSession){
		"a key that is none": func(s *authpb.HeadlessSession) { s.EcdhPublicKey = []byte("%%%") },
		"a key of all zeroes": func(s *authpb.HeadlessSession) {
			s.EcdhPublicKey = []byte(base64.RawURLEncoding.EncodeToString(make([]byte, 32)))
		},
		"one bit turned":         func(s *authpb.HeadlessSession) { s.EncryptedIdtoken[14] ^= 1 },
		"shorter than a nonce":   func(s *authpb.HeadlessSession) { s.EncryptedIdtoken = s.EncryptedIdtoken[:5] },
		"a refresh token spoilt": func(s *authpb.HeadlessSession) { s.EncryptedRefreshToken = bytes.Repeat([]byte{1}, 40) },
	}
	for name, spoil := range spoilt {
		bad[name] = sound()
		spoil(bad[name])
	}
	for name, s := range bad {
		t.Run(name, func(t *testing.T) {
			if got, err := openTokens(key, s); !errors.Is(err, errSealed) || got != (tokens{}) {
				t.Errorf("opened %v, %v", got, err)
			}
		})
	}
}

func FuzzOpenTokens(f *testing.F) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	sound := sealFor(f, key.PublicKey(), "access", "refresh")
	f.Add(sound.GetEcdhPublicKey(), sound.GetEncryptedIdtoken(), sound.GetEncryptedRefreshToken())
	f.Fuzz(func(t *testing.T, public, access, refresh []byte) {
		got, err := openTokens(key,
			&authpb.HeadlessSession{EcdhPublicKey: public, EncryptedIdtoken: access, EncryptedRefreshToken: refresh})
		if (err == nil) != (got.Access != "") || (err != nil && got != tokens{}) {
			t.Errorf("opened %v, %v", got, err)
		}
	})
}

func TestCheckCode(t *testing.T) {
	// The page computes the same code, so both must be changed together.
	if got := checkCode("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"); got != "B4AH-HBNW" {
		t.Errorf("code = %s", got)
	}
}

// tokenEndpoint starts an issuer whose token endpoint gives the answers in turn and repeats
// the last one. It returns the address.
func tokenEndpoint(t *testing.T, answers ...any) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/oauth/token" || r.PostFormValue("client_id") != clientID {
			http.NotFound(w, r)
			return
		}
		answer := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}
		if _, refused := answer.(oauthError); refused {
			w.WriteHeader(http.StatusBadRequest)
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestPollDevice(t *testing.T) {
	pending, granted := oauthError{Code: "authorization_pending"}, map[string]string{
		"access_token": "a", "refresh_token": "r",
	}
	tests := map[string]struct {
		answers []any
		want    tokens
		err     string
	}{
		"granted at once": {[]any{granted}, tokens{Access: "a", Refresh: "r"}, ""},
		"after a while":   {[]any{pending, pending, granted}, tokens{Access: "a", Refresh: "r"}, ""},
		"denied": {
			[]any{pending, oauthError{"access_denied", "the person said no"}}, tokens{}, "not signed in: the person said no",
		},
		"too late":           {[]any{oauthError{Code: "expired_token"}}, tokens{}, "not signed in: expired_token"},
		"an answer of noise": {[]any{map[string]string{"access_token": "a b"}}, tokens{}, "has no token"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := newTestAgent(os.Stderr).pollDevice(t.Context(), tokenEndpoint(t, tt.answers...), deviceGrant{Code: "c"})
			if got != tt.want || (err == nil) != (tt.err == "") ||
				(err != nil && !bytes.Contains([]byte(err.Error()), []byte(tt.err))) {
				t.Errorf("polled %v, %v; want %v, %s", got, err, tt.want, tt.err)
			}
		})
	}
}

func TestPersonQuery(t *testing.T) {
	tests := map[string]struct {
		person Person
		want   []string
	}{
		"nothing":         {Person{}, []string{"audience", "client_id", "create_refresh_token"}},
		"an organization": {Person{organization: "acme"}, []string{"audience", "create_refresh_token", "idp_id"}},
		"an invite":       {Person{invite: "x"}, []string{"audience", "client_id", "create_refresh_token", "invite"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for key := range tt.person.query() {
				got = append(got, key)
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("query has %q, want %q", got, tt.want)
			}
		})
	}
}
