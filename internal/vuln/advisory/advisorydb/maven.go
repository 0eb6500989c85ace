package advisorydb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

const mavenEcosystem = "Maven"

// maxMavenNames is the maximum number of names with the same artifact ID that are recorded for a group. With so many, a
// Java archive is not certain to be one of them, and nobody can slow down the comparison of archives with more.
const maxMavenNames = 200

// mavenNames returns the Maven packages that advisories name, each once and in order.
func mavenNames(affected []vuln.Affected) (names []string) {
	for _, p := range affected {
		if base, _, _ := strings.Cut(p.Ecosystem, ":"); base == mavenEcosystem && strings.Contains(p.Name, ":") {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names) // so that two imports cannot deadlock
	return slices.Compact(names)
}

// artifactOf returns the artifact ID in the name of a Maven package.
func artifactOf(name string) string {
	_, artifact, _ := strings.Cut(name, ":")
	return artifact
}

// addMavenNames records the Maven packages that advisories of a group name.
func (t Tx) addMavenNames(ctx context.Context, group resource.UID, affected ...vuln.Affected) error {
	names := mavenNames(affected)
	if len(names) == 0 {
		return nil
	}
	artifacts := make([]string, len(names))
	for i, name := range names {
		artifacts[i] = artifactOf(name)
	}
	slices.Sort(artifacts)
	q := store.Query{Engine: t.DB.Engine}
	counts, err := store.ReadMap[string, int](ctx, t.Rows, fmt.Sprintf(`SELECT s.v, count(*) FROM %s AS s
		CROSS JOIN maven_names AS m WHERE m.artifact = s.v AND m.grp = %s GROUP BY s.v`,
		t.DB.Engine.Unnest(&q, slices.Compact(artifacts)), q.Arg(string(group))), q.Args...)
	if err != nil {
		return err
	}
	var rows [][]any
	for _, name := range names {
		artifact := artifactOf(name)
		if counts[artifact]++; counts[artifact] <= maxMavenNames {
			rows = append(rows, []any{string(group), artifact, name})
		}
	}
	// An existing row is locked, so that dropMavenNames sees the advisory that this transaction writes.
	return t.InsertRows(ctx, `INSERT INTO maven_names (grp, artifact, name)`, rows,
		` ON CONFLICT (artifact, grp, name) DO UPDATE SET name = excluded.name`)
}

// dropMavenNames removes those Maven packages that only one advisory of a group named, when this advisory is deleted or
// no longer names them. It queues the organization's advisories about other packages with the same artifact ID for a
// comparison, because a Java archive may now be certain to be one of them. next is the new version of the advisory.
func (t Tx) dropMavenNames(ctx context.Context, before vuln.Advisory, next []vuln.Affected) error {
	kept := mavenNames(next)
	group := before.UID.Parent()
	for _, name := range mavenNames(before.Affected) {
		if slices.Contains(kept, name) {
			continue
		}
		var locked string
		err := t.Row(ctx, `SELECT t.name FROM maven_names AS t
			WHERE t.artifact = $1 AND t.grp = $2 AND t.name = $3`+t.DB.Engine.ForUpdate,
			[]any{artifactOf(name), string(group), name}, &locked)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return err
		}
		advisories, err := t.naming(ctx, group, name)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(advisories, func(key int64) bool { return key != store.Segment(before.UID) }) {
			continue
		}
		if err := t.Later(ctx, `DELETE FROM maven_names WHERE artifact = $1 AND grp = $2 AND name = $3`,
			artifactOf(name), string(group), name); err != nil {
			return err
		}
		if err := t.repeatSiblings(ctx, group, name); err != nil {
			return err
		}
	}
	return nil
}

// repeatSiblings queues one advisory of the organization that names another Maven package with the artifact ID of name.
// The comparison of one such advisory compares the archives with all of them.
func (t Tx) repeatSiblings(ctx context.Context, group resource.UID, name string) error {
	siblings, err := mavenNamesOf(ctx, t.Rows, artifactOf(name), group.Root())
	if err != nil {
		return err
	}
	for g, names := range siblings {
		for _, sibling := range names {
			if g == group && sibling == name {
				continue
			}
			keys, err := t.naming(ctx, g, sibling)
			if err != nil {
				return err
			}
			if len(keys) > 0 {
				return t.InsertRows(ctx, `INSERT INTO advisory_changes (root, advisory, source)`,
					[][]any{{store.Segment(group.Root()), keys[0], sourceOf(ctx)}}, ``)
			}
		}
	}
	return nil
}

// naming returns the keys of at most two advisories of a group that name a package.
func (t Tx) naming(ctx context.Context, group resource.UID, name string) ([]int64, error) {
	generations, err := store.ReadColumn[int64](ctx, t.Rows,
		`SELECT generation FROM advisory_generations WHERE grp = $1`, string(group))
	if err != nil {
		return nil, err
	}
	keys := make([]int64, len(generations))
	for i, g := range generations {
		keys[i] = generation(g).key(keyOf(group, artifactName, name))
	}
	q := store.Query{Engine: t.DB.Engine}
	return store.ReadColumn[int64](ctx, t.Rows, fmt.Sprintf(`SELECT n.seg FROM %s AS s CROSS JOIN advisory_names AS n
		WHERE n.key = s.v LIMIT 2`, t.DB.Engine.Unnest(&q, keys)), q.Args...)
}

// MavenNames returns the Maven packages with an artifact ID that the advisories of each group name, ordered by name. If
// root is set, it considers only the groups of that organization.
func (s *Store) MavenNames(ctx context.Context, artifact string, root resource.UID) (map[resource.UID][]string, error) {
	return mavenNamesOf(ctx, s.Rows, artifact, root)
}

func mavenNamesOf(
	ctx context.Context, rows store.Reader, artifact string, root resource.UID,
) (map[resource.UID][]string, error) {
	text, args := `SELECT grp, name FROM maven_names WHERE artifact = $1`, []any{artifact}
	if root != "" {
		text += ` AND grp >= $2 AND grp < $3`
		args = append(args, string(root), string(root)+"0")
	}
	names := map[resource.UID][]string{}
	return names, rows(ctx, text+` ORDER BY grp, name`, args, func(row store.Scanner) (bool, error) {
		var group resource.UID
		var name string
		err := row.Scan(&group, &name)
		names[group] = append(names[group], name)
		return false, err
	})
}

// mavenBatch is the number of advisories that FillMavenNames reads in one statement.
const mavenBatch = 500

// FillMavenNames records the Maven packages that advisories of earlier versions of this program name. When all are
// recorded, it does nothing.
func (s *Store) FillMavenNames(ctx context.Context) error {
	groups, err := store.ReadColumn[resource.UID](ctx, s.Rows, `SELECT DISTINCT grp FROM advisory_ecosystems AS e
		WHERE ecosystem = '`+mavenEcosystem+`' OR ecosystem >= '`+mavenEcosystem+`:' AND ecosystem < '`+mavenEcosystem+`;'
		ORDER BY grp`)
	if err != nil {
		return err
	}
	filled, err := store.ReadColumn[resource.UID](ctx, s.Rows, `SELECT grp FROM maven_names WHERE artifact = ''`)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if slices.Contains(filled, g) {
			continue
		}
		if err := s.fillMavenNames(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) fillMavenNames(ctx context.Context, group resource.UID) error {
	for last, done := int64(0), false; !done; {
		next := last
		err := s.write(ctx, func(t Tx) error { // the names are read in the transaction, because advisories may be deleted
			var affected []vuln.Affected
			n := 0
			err := t.Rows(ctx, `SELECT `+fullColumns+` FROM advisories AS t WHERE t.parent = $1 AND t.seg > $2
				ORDER BY t.seg LIMIT $3`, []any{store.Segment(group), last, mavenBatch},
				func(row store.Scanner) (bool, error) {
					a, err := scanAdvisory(row, true)
					next, n = store.Segment(a.UID), n+1
					affected = append(affected, a.Affected...)
					return false, err
				})
			if err != nil {
				return err
			}
			if err := t.addMavenNames(ctx, group, affected...); err != nil {
				return err
			}
			if done = n < mavenBatch; !done {
				return nil
			}
			return t.Later(ctx, `INSERT INTO maven_names (grp, artifact, name) VALUES ($1, '', '') ON CONFLICT DO NOTHING`,
				string(group))
		})
		if err != nil {
			return err
		}
		last = next
	}
	return nil
}
