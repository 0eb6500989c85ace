package sts

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestMemoryIsBounded checks that the cache stays within its limit if it gets many identities with patterns of the
// largest size, and that it has the last one.
func TestMemoryIsBounded(t *testing.T) {
	m := newPrincipalCache()
	i := resource.Identity{Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{
		Issuer: "https://issuer.example", SubjectPattern: strings.Repeat("a", 1000), AudiencePattern: strings.Repeat(
			"b", 1000,
		),
	}}}
	large := newPrincipal(i, nil)
	if large.size() < 2000 {
		t.Fatalf("the size of two patterns of 1000 letters is %d", large.size())
	}
	put := func(p *principal) resource.UID {
		copied := &principal{identity: p.identity, matcher: p.matcher}
		copied.identity.UID = resource.NewRoot()
		_, mark := m.get(copied.identity.UID)
		m.put(copied, mark)
		return copied.identity.UID
	}
	for range 3 * maxCachedInstructions / large.size() {
		last := put(large)
		if p, _ := m.get(last); p == nil {
			t.Fatal("what was just remembered is not there")
		}
		m.put(large, m.generation) // puts the same identity repeatedly
	}
	if n := m.size.Load(); n > maxCachedInstructions || n < maxCachedInstructions/2 {
		t.Errorf("the size of what is remembered is %d, at most %d", n, maxCachedInstructions)
	}
	m.invalidate("")
	if n := m.size.Load(); n != 0 || m.entries.Len() != 0 {
		t.Errorf("of %d that are left, the size is %d", m.entries.Len(), n)
	}
}

// TestCompiledOnce checks that the patterns of an identity are compiled again after an invalid credential only if the
// identity has changed.
func TestCompiledOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		known := newPrincipalCache()
		x := &Service{store: iamdb.New(s.DB), principals: known, audiences: []string{"https://auth.example"}, now: time.Now}
		now := time.Now().UTC().Truncate(time.Millisecond)
		org := resource.Group{UID: resource.NewRoot(), Name: "org", CreateTime: now, UpdateTime: now}
		if _, err := s.InsertGroup(t.Context(), org); err != nil {
			t.Fatal(err)
		}
		i := resource.Identity{
			UID: org.UID.NewChild(), Name: "workload", CreateTime: now, UpdateTime: now, LastSeenTime: now,
			Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{
				Issuer: "https://issuer.example", SubjectPattern: "a+", Claims: map[string]string{"x": "y"},
			}},
		}
		if err := s.InsertIdentity(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		p, _, err := x.principal(t.Context(), i.UID)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := x.reload(t.Context(), p); err != nil || again != p {
			t.Errorf("an identity that has not changed was compiled again: %v", err)
		}
		if _, err := store.Edit(t.Context(), i.UID, s.Identity, s.UpdateIdentity, func(i *resource.Identity) error {
			i.Relationship = resource.Relationship{
				ClaimMatch: &resource.ClaimMatch{Issuer: "https://issuer.example", SubjectPattern: "b+"},
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if changed, err := x.reload(t.Context(), p); err != nil || changed == p ||
			changed.matcher.Mismatch(resource.Credential{
				Issuer: "https://issuer.example", Subject: "b", Audience: x.audiences,
			}) != "" {
			t.Errorf("an identity that has changed is as it was: %v", err)
		}
	})
}

func TestAskers(t *testing.T) {
	org := resource.UID(strings.Repeat("a", 40))
	workload := func(c resource.ClaimMatch) resource.Identity {
		c.Subject = "s"
		return resource.Identity{UID: org + "/0123456789abcdef", Relationship: resource.Relationship{ClaimMatch: &c}}
	}
	person := func(issuer string) resource.Identity {
		return resource.Identity{
			UID: resource.UserUID(issuer, "s"), Realm: issuer,
			Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: issuer, Subject: "s"}},
		}
	}
	for name, tt := range map[string]struct {
		identity resource.Identity
		want     issuers.QuotaKey
	}{
		"a workload by name": {
			workload(resource.ClaimMatch{Issuer: "https://a.example"}), issuers.QuotaKey{Tenant: string(org),
				Reason: issuers.Named},
		},
		"a workload by pattern": {
			workload(resource.ClaimMatch{IssuerPattern: "https://[a-z]+.example"}),
			issuers.QuotaKey{Tenant: string(org), Reason: issuers.Matched},
		},
		"a person": {
			person("https://login.people.example/x"), issuers.QuotaKey{Tenant: "people.example", Reason: issuers.Person},
		},
		"another of that domain": {
			person("https://LOGIN2.People.example:8443"), issuers.QuotaKey{Tenant: "people.example", Reason: issuers.Person},
		},
		"a person of an address": {
			person("https://192.0.2.1"), issuers.QuotaKey{Tenant: "addresses", Reason: issuers.Person},
		},
		"another of an address": {
			person("https://[2001:db8::1]"), issuers.QuotaKey{Tenant: "addresses", Reason: issuers.Person},
		},
		"a person of one label": {
			person("http://localhost:1"), issuers.QuotaKey{Tenant: "localhost", Reason: issuers.Person},
		},
		"nobody in particular": {
			resource.Identity{Relationship: person("https://a.example").Relationship}, issuers.QuotaKey{Reason: issuers.Matched},
		},
		"a person of no address":   {person("://"), issuers.QuotaKey{Reason: issuers.Person}},
		"a person of a lone point": {person("https://./"), issuers.QuotaKey{Tenant: ".", Reason: issuers.Person}},
	} {
		if got := newPrincipal(tt.identity, nil).quota; got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
