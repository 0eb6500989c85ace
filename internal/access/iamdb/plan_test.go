package iamdb

import (
	"fmt"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/plantest"
)

// TestPlans checks that indexes serve the search for people by their e-mail addresses, and the search for identities of
// an organization that may trust a token.
func TestPlans(t *testing.T) {
	var org resource.UID
	insert := func(db *store.DB) {
		org = resource.NewRoot()
		plantest.Insert(t, db, "groups", append(store.TreeColumns(org), "org", "", false, 0, 0, 0))
		var people, members [][]any
		for i := range 3000 {
			uid := resource.NewRoot()
			email := fmt.Sprintf("p%d@people.test", i/2)
			person := append(store.TreeColumns(uid), email, "", email, "", "", 1, "{}", "", "", "", 0, i, i, nil, "")
			people = append(people, person)
			members = append(members, []any{store.Segment(org), string(uid)})
		}
		for i := range 3000 { // workloads
			uid := org.NewChild()
			person := append(store.TreeColumns(uid), "w", "", "", "", "", 1, "{}", "", "https://issuer.test",
				fmt.Sprint("subject", i), 0, i, i, nil, "")
			people = append(people, person)
		}
		plantest.Insert(t, db, "identities", people...)
		plantest.Insert(t, db, "members", members...)
	}
	shapes := func(db *store.DB) []plantest.Shape {
		args, text := peopleWithEmail(db.Engine, "p7@people.test", []resource.UID{org}, 100)
		return []plantest.Shape{
			{Name: "people by e-mail", Index: "identities_email", Sort: true, Text: text, Args: args},
			{
				Name: "identities that trust a token", Index: "identities_a1_issuer", Text: trusting,
				Args: []any{store.Segment(org), "https://issuer.test", "subject7", 50},
			},
		}
	}
	t.Run("sqlite", func(t *testing.T) { plantest.SQLite(t, insert, shapes) })
	t.Run("postgres", func(t *testing.T) { plantest.Postgres(t, insert, shapes) })
}
