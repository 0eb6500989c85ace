package token_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// signedBy returns the id of the key that currently signs.
func signedBy(t *testing.T, i *token.Issuer) string {
	t.Helper()
	all, err := i.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		if k.Signs && k.Algorithm == token.ES256 {
			return k.ID
		}
	}
	t.Fatal("no key signs")
	return ""
}

// published returns the ids of the published ES256 keys.
func published(t *testing.T, i *token.Issuer) []string {
	t.Helper()
	return publishedFor(t, i, token.ES256)
}

func publishedFor(t *testing.T, i *token.Issuer, algorithm string) (ids []string) {
	t.Helper()
	var set struct{ Keys []struct{ Kid, Alg string } }
	get(t, i, "/.well-known/jwks.json", &set)
	for _, k := range set.Keys {
		if k.Alg == algorithm {
			ids = append(ids, k.Kid)
		}
	}
	return ids
}

// TestRotation follows two replicas through a rotation. The new key is published before it
// signs. Tokens signed with the old key stay valid.
func TestRotation(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		c := &clock{at: noon}
		key := secret.NewKey()
		cfg := token.Config{Issuer: "https://auth.test", Key: key, Now: c.now}
		mine, theirs := open(t, s, cfg), open(t, s, cfg)
		uid := resource.NewRoot().NewChild()
		claims := token.Claims{Subject: uid, Audience: []string{"a"}, Life: time.Hour}
		old, first := mint(t, mine, claims), signedBy(t, mine)
		second, err := mine.Rotate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		theirs.Invalidate() // as a checker does after a change
		for name, i := range map[string]*token.Issuer{"the one that rotated": mine, "the other": theirs} {
			if got := strings.Join(published(t, i), " "); !strings.Contains(got, first) ||
				!strings.Contains(got, second) {
				t.Errorf("%s publishes %s", name, got)
			}
			if got := signedBy(t, i); got != first {
				t.Errorf("%s signs with %s at once", name, got)
			}
		}
		c.set(noon.Add(5 * time.Minute))
		fresh := mint(t, theirs, claims)
		if signedBy(t, mine) != second || signedBy(t, theirs) != second {
			t.Error("the new key does not sign after five minutes")
		}
		for name, raw := range map[string]string{"old": old, "new": fresh} {
			for _, i := range []*token.Issuer{mine, theirs} {
				if _, err := i.Verify(t.Context(), raw, "a"); err != nil {
					t.Errorf("the %s token: %v", name, err)
				}
			}
		}
		if err := mine.Drop(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		theirs.Invalidate()
		for name, i := range map[string]*token.Issuer{"the one that dropped it": mine, "the other": theirs} {
			// The token is void although it is cached.
			if _, err := i.Verify(t.Context(), old, "a"); !errors.Is(err, fault.Unauthenticated) {
				t.Errorf("a token of a dropped key is good at %s: %v", name, err)
			}
			if _, err := i.Verify(t.Context(), fresh, "a"); err != nil {
				t.Errorf("a token of the key that is left: %v", err)
			}
			if got := published(t, i); len(got) != 1 || got[0] != second {
				t.Errorf("%s publishes %v", name, got)
			}
		}
		if err := mine.Drop(t.Context(), first); !errors.Is(err, fault.NotFound) {
			t.Errorf("dropped again: %v", err)
		}
		if err := mine.Drop(t.Context(), second); err != nil { // this is the last key, so another one is created first
			t.Fatal(err)
		}
		theirs.Invalidate()
		mint(t, theirs, claims)
		if got := signedBy(t, mine); got == second || got != signedBy(t, theirs) {
			t.Errorf("signed with %s", got)
		}
	})
}
