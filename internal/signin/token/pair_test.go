package token_test

import (
	"crypto/rsa"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// algorithmOf returns the algorithm and the key id in the header of a token.
func algorithmOf(t *testing.T, raw string) (algorithm, key string) {
	t.Helper()
	signed, err := jose.ParseSigned(raw, []jose.SignatureAlgorithm{jose.ES256, jose.RS256})
	if err != nil {
		t.Fatal(err)
	}
	h := signed.Signatures[0].Protected
	return h.Algorithm, h.KeyID
}

// verified fails the test unless the published keys verify a token.
func verified(t *testing.T, i *token.Issuer, raw string) {
	t.Helper()
	var set json.RawMessage
	get(t, i, "/.well-known/jwks.json", &set)
	var keys jose.JSONWebKeySet
	if err := json.Unmarshal(set, &keys); err != nil {
		t.Fatal(err)
	}
	signed, err := jose.ParseSigned(raw, []jose.SignatureAlgorithm{jose.ES256, jose.RS256})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := signed.Verify(keys); err != nil {
		t.Errorf("the published keys do not verify a token: %v", err)
	}
}

// TestAlgorithms: tokens for other services are signed with RS256, and our own tokens with the
// configured algorithm. Both are accepted, whatever algorithm is configured.
func TestAlgorithms(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	key, ours := secret.NewKey(), []string{api, images}
	small := open(t, s, token.Config{Key: key, Audiences: ours})
	large := open(t, s, token.Config{Key: key, Audiences: ours, Algorithm: token.RS256})
	for name, tt := range map[string]struct {
		issuer   *token.Issuer
		audience []string
		want     string
	}{
		"for the API":              {small, []string{api}, token.ES256},
		"for the registry":         {small, []string{images}, token.ES256},
		"for both":                 {small, []string{api, images}, token.ES256},
		"for a cloud":              {small, []string{"api://AzureADTokenExchange"}, token.RS256},
		"for a cloud beside":       {small, []string{api, "sts.amazonaws.com"}, token.RS256},
		"for the API, by settings": {large, []string{api}, token.RS256},
		"for a cloud, by settings": {large, []string{"sts.amazonaws.com"}, token.RS256},
	} {
		raw := mint(t, tt.issuer, token.Claims{Subject: ann, Audience: tt.audience})
		if got, _ := algorithmOf(t, raw); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		for _, i := range []*token.Issuer{small, large} {
			i.Invalidate()
			if c, err := i.Verify(t.Context(), raw, tt.audience[0]); err != nil || c.Identity != ann {
				t.Errorf("%s: %v, %v", name, c, err)
			}
			verified(t, i, raw)
		}
	}
	hook, err := small.MintWebhook(t.Context(), resource.NewRoot(), "sha256:x")
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := algorithmOf(t, hook); got != token.RS256 {
		t.Errorf("a webhook: %s", got)
	}
	var discovery struct {
		Algorithms []string `json:"id_token_signing_alg_values_supported"`
	}
	get(t, small, "/.well-known/openid-configuration", &discovery)
	if !slices.Equal(discovery.Algorithms, []string{token.ES256, token.RS256}) {
		t.Errorf("discovery lists %v", discovery.Algorithms)
	}
}

// TestForgedAlgorithm checks that tokens are refused if their header names an algorithm that does not belong to the
// key, or if another key has signed them.
func TestForgedAlgorithm(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	i := open(t, s, token.Config{Key: secret.NewKey(), Audiences: []string{api}})
	ec, rsaKey := publishedFor(t, i, token.ES256)[0], publishedFor(t, i, token.RS256)[0]
	mine, err := rsa.GenerateKey(strings.NewReader(strings.Repeat("x", 1<<16)), 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		algorithm jose.SignatureAlgorithm
		key       any
		id        string
	}{
		"another RSA key":             {jose.RS256, mine, rsaKey},
		"an RSA key under the EC id":  {jose.RS256, mine, ec},
		"PSS":                         {jose.PS256, mine, rsaKey},
		"a longer hash":               {jose.RS512, mine, rsaKey},
		"the public key as a secret":  {jose.HS256, []byte(rsaKey + rsaKey), rsaKey},
		"the EC key's id as a secret": {jose.HS256, []byte(ec + ec), ec},
	} {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: tt.algorithm, Key: tt.key},
			(&jose.SignerOptions{}).WithHeader("kid", tt.id))
		if err != nil {
			t.Fatal(err)
		}
		claims, _ := json.Marshal(map[string]any{
			"iss": issuer, "sub": ann, "aud": api, "iat": noon.Unix(), "nbf": noon.Unix(), "exp": noon.Unix() + 60, "jti": "x",
		})
		signed, err := signer.Sign(claims)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := signed.CompactSerialize()
		if _, err := i.Verify(t.Context(), raw, api); !errors.Is(err, fault.Unauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPairs checks, on two replicas, that the RSA key is published, rotated and removed together with its signing key.
func TestPairs(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		c := &clock{at: noon}
		cfg := token.Config{Key: secret.NewKey(), Audiences: []string{api}, Now: c.now}
		mine, theirs := open(t, s, cfg), open(t, s, cfg)
		claims := token.Claims{Subject: ann, Audience: []string{"cloud"}}
		old := mint(t, mine, claims)
		_, first := algorithmOf(t, old)
		verified(t, theirs, old) // succeeds without a call of Invalidate
		newest, err := mine.Rotate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		theirs.Invalidate()
		for _, i := range []*token.Issuer{mine, theirs} {
			if got := publishedFor(t, i, token.RS256); len(got) != 2 || got[1] != first {
				t.Fatalf("after a rotation %v are published, before %s", got, first)
			}
			if _, by := algorithmOf(t, mint(t, i, claims)); by != first {
				t.Error("the new key signs at once")
			}
		}
		c.set(noon.Add(5 * time.Minute))
		fresh := mint(t, theirs, claims)
		if _, by := algorithmOf(t, fresh); by == first {
			t.Error("the new key does not sign after five minutes")
		}
		all, err := mine.Keys(t.Context())
		if err != nil || len(all) != 4 {
			t.Fatalf("keys: %v, %v", all, err)
		}
		for n, k := range all { // the keys are sorted newest first, each followed by its RSA key
			if want := n < 2; k.Signs != want || (k.Algorithm == token.RS256) != (n%2 == 1) {
				t.Errorf("number %d of the keys: %+v", n, k)
			}
		}
		if err := mine.Drop(t.Context(), first); err != nil { // the id of the RSA key removes both keys
			t.Fatal(err)
		}
		theirs.Invalidate()
		for _, i := range []*token.Issuer{mine, theirs} {
			if got := published(t, i); len(got) != 1 || got[0] != newest {
				t.Errorf("after a drop %v are published, want %s", got, newest)
			}
			if got := publishedFor(t, i, token.RS256); len(got) != 1 || got[0] == first {
				t.Errorf("the pair of a dropped key is published: %v", got)
			}
			if _, err := i.Verify(t.Context(), old, "cloud"); !errors.Is(err, fault.Unauthenticated) {
				t.Errorf("a token of a dropped key: %v", err)
			}
			if _, err := i.Verify(t.Context(), fresh, "cloud"); err != nil {
				t.Errorf("a token of the key that is left: %v", err)
			}
		}
	})
}

// TestLateFirstPair: if the first RSA key is created a day after the installation, it is published before it signs,
// because verifiers may have cached the keys without it.
func TestLateFirstPair(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	c := &clock{at: noon}
	cfg := token.Config{Key: secret.NewKey(), Audiences: []string{api}, Algorithm: token.RS256, Now: c.now}
	open(t, s, cfg) // creates the first key without an RSA key
	if all, err := s.SigningKeys(t.Context()); err != nil || len(all) != 1 || all[0].Pair != nil {
		t.Fatalf("keys: %v, %v", all, err)
	}
	c.set(noon.Add(24 * time.Hour))
	i := open(t, s, cfg)
	for _, audience := range []string{api, "cloud"} {
		if got, _ := algorithmOf(t, mint(t, i,
			token.Claims{Subject: ann, Audience: []string{audience}})); got != token.ES256 {
			t.Errorf("for %s at once: %s", audience, got)
		}
	}
	if got := publishedFor(t, i, token.RS256); len(got) != 1 {
		t.Errorf("published: %v", got)
	}
	published := noon.Add(24 * time.Hour)
	const publishDelay = 2*time.Minute + 30*time.Second
	c.set(published.Add(publishDelay - time.Second))
	if got, _ := algorithmOf(t, mint(t, i, token.Claims{Subject: ann, Audience: []string{api}})); got != token.ES256 {
		t.Errorf("just before it signs: %s", got)
	}
	c.set(published.Add(publishDelay))
	for _, audience := range []string{api, "cloud"} {
		if got, _ := algorithmOf(t, mint(t, i,
			token.Claims{Subject: ann, Audience: []string{audience}})); got != token.RS256 {
			t.Errorf("for %s after the delay: %s", audience, got)
		}
	}
}
