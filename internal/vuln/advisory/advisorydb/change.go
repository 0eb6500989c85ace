package advisorydb

import (
	"cmp"
	"context"
	"fmt"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// The sources of changes that are not those of a feed.
const (
	SourceImport = "import"
	SourceAPI    = "api"
)

type sourceKey struct{}

// WithSource returns a context in which changes of advisories come from a source, such as
// the revision of a feed. The history of findings names it.
func WithSource(ctx context.Context, source string) context.Context {
	return context.WithValue(ctx, sourceKey{}, source)
}

func sourceOf(ctx context.Context) string {
	source, _ := ctx.Value(sourceKey{}).(string)
	return cmp.Or(source, SourceAPI)
}

// changed notes that advisories of a group have changed, for those who compare packages
// with them.
func (t Tx) changed(ctx context.Context, group resource.UID, drafts ...draft) error {
	rows := make([][]any, len(drafts))
	source := sourceOf(ctx)
	for i, d := range drafts {
		rows[i] = []any{store.Segment(group.Root()), store.Segment(d.a.UID), source}
	}
	if err := t.InsertRows(ctx, `INSERT INTO advisory_changes (root, advisory, source)`, rows, ``); err != nil {
		return err
	}
	var about []string
	for _, d := range drafts {
		about = appendEcosystems(about, d.a.Affected)
	}
	return t.addEcosystems(ctx, group, about)
}

// Changes are advisories of one organization that have changed.
type Changes struct {
	Root       int64            // the key of the organization
	Advisories []int64          // their keys
	Sources    map[int64]string // what brought the last change of each, by its key

	numbers []int64 // of the changes
}

// nextChangesQuery chooses the organization and reads its changes in one statement. With two statements another replica
// could drop those changes in between, and the answer would be empty although other organizations have changes.
const nextChangesQuery = `SELECT root, seq, advisory, source FROM advisory_changes WHERE root = coalesce(
	(SELECT min(root) FROM advisory_changes WHERE root > $1), (SELECT min(root) FROM advisory_changes))
	ORDER BY seq LIMIT $2`

// NextChanges returns at most n of the changes of an organization, the one that follows
// the last one served, so that nobody waits for all of another's. There are none if
// Advisories is empty.
func (s *Store) NextChanges(ctx context.Context, last int64, n int) (c Changes, _ error) {
	c.Sources = map[int64]string{}
	err := s.Rows(ctx, nextChangesQuery, []any{last, n}, func(row store.Scanner) (bool, error) {
		var number, advisory int64
		var source string
		err := row.Scan(&c.Root, &number, &advisory, &source)
		c.Sources[advisory] = source
		c.numbers, c.Advisories = append(c.numbers, number), append(c.Advisories, advisory)
		return false, err
	})
	return c, err
}

// Number returns the number of the first change.
func (c Changes) Number() int64 { return c.numbers[0] }

// First returns the first n of the changes.
func (c Changes) First(n int) Changes {
	n = min(n, len(c.Advisories))
	c.Advisories, c.numbers = c.Advisories[:n], c.numbers[:n]
	return c
}

// DeleteChanges removes changes, and none that was made meanwhile: a number that was given
// out first may be committed last.
func DeleteChanges(ctx context.Context, t *store.Tx, c Changes) error {
	q := store.Query{Engine: t.DB.Engine}
	text := fmt.Sprintf(`DELETE FROM advisory_changes WHERE seq IN (SELECT v FROM %s AS s)`,
		t.DB.Engine.Unnest(&q, c.numbers))
	_, err := t.Exec(ctx, text, q.Args...)
	return err
}
