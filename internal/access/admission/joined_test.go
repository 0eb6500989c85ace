package admission_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/scimdb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestJoinTeams checks that the first sign-in of a person whom the directory of the provider knows makes the person a
// member of the teams of that user, and of no others.
func TestJoinTeams(t *testing.T) {
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		testkit.Must(t, s.SetManagedRoles(t.Context(), authz.ManagedRoles()))
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		var providers []resource.IdentityProvider
		var teams []resource.UID
		for _, name := range []string{"one", "two"} {
			p := iamtest.AddProvider(t, s.IAMStore, org, resource.OwnerRole, name)
			_, err := scimdb.New(s.DB).EditDirectory(t.Context(), p.UID, resource.DirectoryUpdated,
				func(_ *store.Tx, d *resource.Directory) error {
					d.Enabled = true
					return nil
				})
			testkit.Must(t, err)
			team := resource.Team{UID: p.UID.NewChild(), Name: "team", Version: 1, CreateTime: iamtest.Epoch,
				Attributes: map[string]any{}}
			testkit.Must(t, s.Write(t.Context(), func(tx *store.Tx) error {
				for _, subject := range []string{"known", "other"} {
					if err := scimdb.In(tx).InsertUser(t.Context(), p.UID, scimdb.User{
						ID: name + subject, UserName: subject, ExternalID: subject, Active: true, Version: 1,
						Attributes: map[string]any{"userName": subject},
					}); err != nil {
						return err
					}
				}
				return iamdb.In(tx).InsertTeam(t.Context(), team,
					[]iamdb.TeamMember{{Member: name + "known"}, {Member: name + "other"}})
			}))
			providers, teams = append(providers, p), append(teams, team.UID)
		}
		signIn := func(subject string) resource.UID {
			l, err := admission.New(s.DB).SignIn(t.Context(), resource.SignIn{
				Issuer: "https://people.test", Subject: subject, Realm: string(providers[0].UID), Name: subject, Register: true,
				Voucher: resource.NewVoucher(providers[0].UID, 0),
			})
			testkit.Must(t, err)
			return l.Identity.UID
		}
		signIn("stranger")
		known := signIn("known")
		if again := signIn("known"); again != known {
			t.Errorf("the second sign-in is of %s, the first of %s", again, known)
		}
		for i, want := range [][]iamdb.TeamMember{
			{{Member: "oneknown", Identity: known}, {Member: "oneother"}},
			{{Member: "twoknown"}, {Member: "twoother"}},
		} {
			var got []iamdb.TeamMember
			testkit.Must(t, s.Write(t.Context(), func(tx *store.Tx) (err error) {
				got, err = iamdb.In(tx).MembersOf(t.Context(), teams[i])
				return err
			}))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the team of provider %d: %s", i, diff)
			}
		}
	})
}
