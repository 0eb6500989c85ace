package advisorydb

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// Sources of changes that do not come from a feed.
const (
	SourceImport  = "import"
	SourceAPI     = "api"
	SourceUpgrade = "upgrade" // the conversion of advisories that an earlier version stored
)

type sourceKey struct{}

// WithSource returns a context for changes of advisories that come from a source, such as the revision of a feed. The
// source appears in the history of the findings that the changes open or close.
func WithSource(ctx context.Context, source string) context.Context {
	return context.WithValue(ctx, sourceKey{}, source)
}

func sourceOf(ctx context.Context) string {
	source, _ := ctx.Value(sourceKey{}).(string)
	return cmp.Or(source, SourceAPI)
}

// recordChanges records that advisories of a group have changed, so that the matcher compares them with packages again.
func (t Tx) recordChanges(ctx context.Context, group resource.UID, drafts ...draft) error {
	rows := make([][]any, len(drafts))
	source := sourceOf(ctx)
	for i, d := range drafts {
		rows[i] = []any{store.Segment(group.Root()), store.Segment(d.a.UID), source}
	}
	if err := t.InsertRows(ctx, `INSERT INTO advisory_changes (root, advisory, source)`, rows, ``); err != nil {
		return err
	}
	var ecosystems []string
	var affected []vuln.Affected
	for _, d := range drafts {
		ecosystems = appendEcosystems(ecosystems, d.a.Affected)
		affected = append(affected, d.a.Affected...)
	}
	if err := t.addMavenNames(ctx, group, affected...); err != nil {
		return err
	}
	return t.addEcosystems(ctx, group, ecosystems)
}

// RepeatChanges queues advisories for a comparison with packages, although they have not changed. roots contains the
// key of the organization of each advisory, by the key of the advisory.
func RepeatChanges(ctx context.Context, t *store.Tx, roots map[int64]int64) error {
	var rows [][]any
	for _, advisory := range slices.Sorted(maps.Keys(roots)) {
		rows = append(rows, []any{roots[advisory], advisory, SourceUpgrade})
	}
	return t.InsertRows(ctx, `INSERT INTO advisory_changes (root, advisory, source)`, rows, ``)
}

// Changes are changes of advisories in one organization.
type Changes struct {
	Root       int64            // key of the organization
	Advisories []int64          // keys of the changed advisories
	Sources    map[int64]string // source of an advisory's last change, by the advisory's key

	numbers []int64 // sequence numbers of the changes
}

// nextChangesQuery chooses the organization and reads its changes in one statement. With two statements another replica
// could delete these changes in between, and the result would be empty although other organizations have changes.
const nextChangesQuery = `SELECT root, seq, advisory, source FROM advisory_changes WHERE root = coalesce(
	(SELECT min(root) FROM advisory_changes WHERE root > $1), (SELECT min(root) FROM advisory_changes))
	ORDER BY seq LIMIT $2`

// NextChanges returns at most n changes of one organization. It chooses the organization whose key follows last, or the
// first organization if there is none. So organizations take turns, and none waits for all changes of another. If there
// are no changes, Advisories is empty.
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

// Number returns the sequence number of the first change.
func (c Changes) Number() int64 { return c.numbers[0] }

// First returns the first n changes.
func (c Changes) First(n int) Changes {
	n = min(n, len(c.Advisories))
	c.Advisories, c.numbers = c.Advisories[:n], c.numbers[:n]
	return c
}

// DeleteChanges deletes exactly the changes in c. It does not delete a range of sequence numbers, because a lower
// number may be committed after a higher one.
func DeleteChanges(ctx context.Context, t *store.Tx, c Changes) error {
	q := store.Query{Engine: t.DB.Engine}
	text := fmt.Sprintf(`DELETE FROM advisory_changes WHERE seq IN (SELECT v FROM %s AS s)`,
		t.DB.Engine.Unnest(&q, c.numbers))
	_, err := t.Exec(ctx, text, q.Args...)
	return err
}
