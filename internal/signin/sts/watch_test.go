package sts

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/tokendb"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestWatchIsFair: a domain has more issuers than are checked in one round. Issuers of other
// domains are checked directly after the first issuer of this domain, not after its last.
func TestWatchIsFair(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		x := &Service{store: iamdb.New(s.DB), records: tokendb.New(s.DB), now: time.Now}
		now := time.Now().UTC().Truncate(time.Millisecond)
		org := resource.Group{UID: resource.NewRoot(), Name: "org", CreateTime: now, UpdateTime: now}
		if _, err := s.InsertGroup(t.Context(), org); err != nil {
			t.Fatal(err)
		}
		others := []string{"https://issuer.honest.example", "https://z.test", "https://zz.test"}
		all := slices.Clone(others)
		for n := range maxChecksPerDomain + 20 {
			all = append(all, fmt.Sprintf("https://a%d.attacker.example", n))
		}
		for _, issuer := range all {
			if err := s.InsertIdentity(t.Context(), resource.Identity{
				UID: org.UID.NewChild(), Name: "workload", CreateTime: now, UpdateTime: now, LastSeenTime: now,
				Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: issuer, Subject: "job"}},
			}); err != nil {
				t.Fatal(err)
			}
		}
		due, err := x.dueIssuers(t.Context(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if len(due) != maxChecksPerDomain+len(others) {
			t.Errorf(
				"%d issuers are due, want %d of one domain and %d others", len(due), maxChecksPerDomain, len(others),
			)
		}
		for _, issuer := range others {
			if at := slices.IndexFunc(due, func(d dueIssuer) bool { return d.name == issuer }); at < 0 ||
				at > len(others) {
				t.Errorf("%s comes as number %d", issuer, at+1)
			}
		}
	})
}
