package authz

import (
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/tokendb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestOthersHearOfIdentities checks that a change of an identity through one store calls OnChange of a checker over
// another store. On PostgreSQL, the other store belongs to another replica.
func TestOthersHearOfIdentities(t *testing.T) {
	storetest.StoryURL(t, func(t *testing.T, url string) {
		mine := storetest.Open(t, url)
		theirs := mine
		if mine.Replicated() {
			theirs = storetest.Open(t, url)
		}
		group, _ := organization(t, mine, "org")
		i := resource.Identity{
			UID: group.NewChild(), Name: "i", CreateTime: time.Now(), UpdateTime: time.Now(), LastSeenTime: time.Now(),
			Relationship: resource.Relationship{
				ClaimMatch: &resource.ClaimMatch{Issuer: "https://issuer.test", Subject: "s"},
			},
		}
		must(t, mine.InsertIdentity(t.Context(), i))
		key := tokendb.SigningKey{ID: "one", Algorithm: "ES256", Sealed: []byte("s"), CreateTime: time.Now()}
		must(t, mine.InsertFirstSigningKey(t.Context(), key))
		c := load(t, theirs)
		told := map[resource.UID]int{}
		c.OnChange(func(u resource.UID) { told[u]++ })
		update := func(change func(*resource.Identity)) error {
			_, err := store.Edit(t.Context(), i.UID, mine.Identity, mine.UpdateIdentity, func(i *resource.Identity) error {
				change(i)
				return nil
			})
			return err
		}
		for _, tt := range []struct {
			what    string
			change  func() error
			subject resource.UID
			tells   int
		}{
			{"its subject", func() error {
				return update(func(i *resource.Identity) { i.Relationship.ClaimMatch.Subject = "x" })
			}, i.UID, 1},
			{"its address", func() error { return update(func(i *resource.Identity) { i.Email = "i@b.test" }) }, i.UID, 1},
			{"its description", func() error { return update(func(i *resource.Identity) { i.Description = "d" }) }, i.UID, 0},
			{"its last use", func() error { return mine.RecordLastSeen(t.Context(), i.UID, time.Now().Add(time.Hour)) }, i.UID,
				0},
			{"the signing keys", func() error {
				next := tokendb.SigningKey{
					ID: "two", Algorithm: "ES256", Sealed: []byte("s"), CreateTime: time.Now().Add(time.Second),
				}
				_, err := mine.AddSigningKey(t.Context(), next, "one")
				return err
			}, resource.SigningKeysSubject, 1},
			{"the signing keys, of which one is gone", func() error { return mine.DropSigningKey(t.Context(), "one") },
				resource.SigningKeysSubject, 1},
			{"its existence", func() error { return mine.DeleteIdentity(t.Context(), i.UID) }, i.UID, 1},
		} {
			before := told[tt.subject]
			must(t, c.during(t, tt.change))
			must(t, c.poll(t.Context()))
			if n := told[tt.subject] - before; (n > 0) != (tt.tells > 0) {
				t.Errorf("%s has changed, and those who remember it were told %d times", tt.what, n)
			}
		}
	})
}

// during polls while a change is made, so that the change does not wait for a
// silent replica.
func (c *Checker) during(t *testing.T, change func() error) error {
	done := make(chan error, 1)
	go func() { done <- change() }()
	for {
		select {
		case err := <-done:
			return err
		default:
			must(t, c.poll(t.Context()))
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
