package issuers_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
)

// FuzzParse checks that every parsed token has the required claims, and that a key that did not sign the token does not
// verify it.
func FuzzParse(f *testing.F) {
	k := newKey(f, "one")
	f.Add(k.sign(f, map[string]any{"iss": "i", "sub": "s", "aud": "a", "exp": 9}))
	f.Add(k.sign(
		f,
		map[string]any{"iss": "i", "sub": "s", "aud": []string{"a", "b"}, "exp": 9.5, "nbf": 1, "iat": 2, "x": true},
	))
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("..")
	set, err := issuers.ParseKeys(keySet(newKey(f, "one")))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		tok, err := issuers.Parse(raw)
		if err != nil {
			var bad *issuers.Malformed
			if !errors.As(err, &bad) || bad.Reason == "" {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		if tok.Issuer == "" || tok.Subject == "" || tok.Expiry.IsZero() && tok.Expiry != time.Unix(0, 0).UTC() ||
			strings.Count(raw, ".") != 2 {
			t.Errorf("read a token without what it needs: %+v", tok)
		}
		if set.Verify(tok) == nil {
			t.Errorf("a key that has signed nothing has signed %q", raw)
		}
		for _, name := range []string{"iss", "sub", "aud", "exp", "x", ""} {
			tok.Claim(name)
		}
	})
}

// FuzzParseKeys checks that every parsed key set has only keys with asymmetric algorithms, and does not verify a
// token of another key.
func FuzzParseKeys(f *testing.F) {
	k := newKey(f, "one")
	tok := newKey(f, "one").token(f, map[string]any{"iss": "i", "sub": "s", "aud": "a", "exp": 9})
	f.Add(keySet(k))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"one","alg":"RS256"},` +
		`{"kty":"OKP","crv":"Ed25519","x":"AAAA"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"AAAA"}]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		set, err := issuers.ParseKeys(document)
		if err != nil {
			return
		}
		for _, k := range set.List() {
			if k.Algorithm == "" || strings.HasPrefix(k.Algorithm, "HS") || k.Algorithm == "none" {
				t.Errorf("a key for %q", k.Algorithm)
			}
		}
		if len(set.List()) == 0 || set.Verify(tok) == nil {
			t.Errorf("%d keys, and one has signed what it has not", len(set.List()))
		}
	})
}
