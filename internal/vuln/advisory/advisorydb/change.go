package advisorydb

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
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

func appendEcosystems(all []string, affected []vuln.Affected) []string {
	for _, p := range affected {
		if !slices.Contains(all, p.Ecosystem) {
			all = append(all, p.Ecosystem)
		}
	}
	return all
}

func (t Tx) addEcosystems(ctx context.Context, group resource.UID, all []string) error {
	slices.Sort(all) // so that two imports do not wait for each other
	var rows [][]any
	for _, e := range all {
		rows = append(rows, []any{e, string(group)})
	}
	return t.InsertRows(ctx, `INSERT INTO advisory_ecosystems (ecosystem, grp)`, rows, ` ON CONFLICT DO NOTHING`)
}

// ListEcosystems notes the ecosystems of advisories that another version has stored. It
// reads all of them.
func (s *Store) ListEcosystems(ctx context.Context) error {
	const batch = 2000
	for after := (*int64)(nil); ; {
		byGroup := map[resource.UID][]string{}
		text, args := `SELECT seg, uid, affected FROM advisories ORDER BY seg LIMIT $1`, []any{batch}
		if after != nil {
			text, args = `SELECT seg, uid, affected FROM advisories WHERE seg > $2 ORDER BY seg LIMIT $1`, append(args, *after)
		}
		n := 0
		err := s.Rows(ctx, text, args, func(row store.Scanner) (bool, error) {
			var seg int64
			var uid resource.UID
			var text []byte
			if err := row.Scan(&seg, &uid, &text); err != nil {
				return false, err
			}
			var affected []vuln.Affected
			err := json.Unmarshal(text, &affected)
			byGroup[uid.Parent()] = appendEcosystems(byGroup[uid.Parent()], affected)
			after = &seg
			n++
			return false, err
		})
		if err != nil || n == 0 {
			return err
		}
		err = s.write(ctx, func(t Tx) error {
			for _, g := range slices.Sorted(maps.Keys(byGroup)) {
				if err := t.addEcosystems(ctx, g, byGroup[g]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
}

// Covered returns which of the ecosystems the advisories in reach are about. Those about
// Debian are about every release of it.
func (s *Store) Covered(ctx context.Context, r store.Reach, ecosystems []string) (map[string]bool, error) {
	all := map[string]bool{}
	conditions := groupConditions(store.Visible(false, r, resource.UIDFilter{}))
	for _, e := range ecosystems {
		base, _, _ := strings.Cut(e, ":")
		for _, at := range conditions {
			n := len(at.args)
			text := fmt.Sprintf(`SELECT count(*) FROM (SELECT 1 FROM advisory_ecosystems WHERE %s AND (ecosystem IN ($%d, $%d)
				OR ecosystem >= $%d AND ecosystem < $%d) LIMIT 1) AS x`, at.text, n+1, n+2, n+3, n+4)
			var found int
			if err := s.Row(ctx, text, append(slices.Clone(at.args), e, base, e+":", e+";"), &found); err != nil {
				return nil, err
			}
			all[e] = all[e] || found > 0
		}
	}
	return all, nil
}

// Called returns the keys of the advisories in reach that have a name, as their ID or one
// of their aliases, or that share a name with one of these.
func (s *Store) Called(ctx context.Context, r store.Reach, name string) ([]int64, error) {
	sc := store.Visible(false, r, resource.UIDFilter{})
	if sc.Empty() {
		return nil, nil
	}
	parts, err := s.partitions(ctx, sc)
	if err != nil {
		return nil, err
	}
	in, err := s.generations(ctx, sc)
	if err != nil {
		return nil, err
	}
	keys, err := s.called(ctx, groupsOf(parts), in, []string{name})
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	all, err := s.WithKeys(ctx, keys)
	if err != nil {
		return nil, err
	}
	names := []string{name}
	for _, a := range all {
		names = append(append(names, a.ID), a.Aliases...)
	}
	slices.Sort(names)
	return s.called(ctx, groupsOf(parts), in, slices.Compact(names))
}

func (s *Store) called(
	ctx context.Context, groups []resource.UID, in []groupGenerations, names []string,
) ([]int64, error) {
	l := advisoryList{s: s, groups: groups, generations: in, f: vuln.AdvisoryFilter{IDs: names}}
	all, err := l.withIDs(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range []field{alias, legacyID} {
		more, err := l.withValue(ctx, keyedFilter{f, names})
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
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

// DropChanges removes changes, and none that was made meanwhile: a number that was given
// out first may be committed last.
func DropChanges(ctx context.Context, t *store.Tx, c Changes) error {
	q := store.Query{Engine: t.DB.Engine}
	text := fmt.Sprintf(`DELETE FROM advisory_changes WHERE seq IN (SELECT v FROM %s AS s)`,
		t.DB.Engine.Unnest(&q, c.numbers))
	_, err := t.Exec(ctx, text, q.Args...)
	return err
}

// WithKeys returns advisories by their keys, as their latest event leaves them. One that
// is gone is left out.
func (s *Store) WithKeys(ctx context.Context, keys []int64) ([]vuln.Advisory, error) {
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT %s FROM advisories AS t WHERE t.seg IN (SELECT v FROM %s AS s)`, fullColumns,
		s.Engine.Unnest(&q, keys))
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (vuln.Advisory, error) {
		a, err := scanAdvisory(row, true)
		return a.Current(), err
	}, text, q.Args...)
}

// Naming returns the advisories of all organizations that name a package.
func (s *Store) Naming(ctx context.Context, name string) (all []vuln.Advisory, _ error) {
	type pair struct {
		group resource.UID
		in    generation
	}
	pairs, err := store.ReadAll(ctx, s.Rows, func(row store.Scanner) (p pair, err error) {
		err = row.Scan(&p.group, &p.in)
		return p, err
	}, `SELECT grp, era FROM advisory_eras`)
	if err != nil {
		return nil, err
	}
	keys := make([]int64, len(pairs))
	for i, p := range pairs {
		keys[i] = p.in.key(keyOf(p.group, artifactName, name))
	}
	found, err := s.withKeys(ctx, keys)
	for _, v := range found {
		all = append(all, v.Advisory)
	}
	return all, err
}
