package advisorydb

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

const mavenEcosystem = "Maven"

// addMavenNames records the Maven packages that advisories of a group name.
func (t Tx) addMavenNames(ctx context.Context, group resource.UID, affected ...vuln.Affected) error {
	root := store.Segment(group.Root())
	var names []string
	for _, p := range affected {
		if base, _, _ := strings.Cut(p.Ecosystem, ":"); base == mavenEcosystem && strings.Contains(p.Name, ":") {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names) // so that two imports cannot deadlock
	var rows [][]any
	for _, name := range slices.Compact(names) {
		_, artifact, _ := strings.Cut(name, ":")
		rows = append(rows, []any{root, artifact, name})
	}
	return t.InsertRows(ctx, `INSERT INTO maven_names (root, artifact, name)`, rows, ` ON CONFLICT DO NOTHING`)
}

// MavenNames returns the Maven packages with an artifact ID that the advisories of each organization name, ordered by
// name. The key of the map is the key of the organization.
func (s *Store) MavenNames(ctx context.Context, artifact string) (map[int64][]string, error) {
	names := map[int64][]string{}
	err := s.Rows(ctx, `SELECT root, name FROM maven_names WHERE artifact = $1 ORDER BY root, name`, []any{artifact},
		func(row store.Scanner) (bool, error) {
			var root int64
			var name string
			err := row.Scan(&root, &name)
			names[root] = append(names[root], name)
			return false, err
		})
	return names, err
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
	filled, err := store.ReadColumn[string](ctx, s.Rows, `SELECT name FROM maven_names WHERE artifact = ''`)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if slices.Contains(filled, string(g)) {
			continue
		}
		if err := s.fillMavenNames(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) fillMavenNames(ctx context.Context, group resource.UID) error {
	for last := int64(0); ; {
		var affected []vuln.Affected
		n := 0
		err := s.Rows(ctx, `SELECT `+fullColumns+` FROM advisories AS t WHERE t.parent = $1 AND t.seg > $2
			ORDER BY t.seg LIMIT $3`, []any{store.Segment(group), last, mavenBatch}, func(row store.Scanner) (bool, error) {
			a, err := scanAdvisory(row, true)
			if err != nil {
				return false, err
			}
			last = store.Segment(a.UID)
			affected = append(affected, a.Affected...)
			n++
			return false, nil
		})
		if err != nil {
			return err
		}
		err = s.write(ctx, func(t Tx) error {
			if err := t.addMavenNames(ctx, group, affected...); err != nil || n == mavenBatch {
				return err
			}
			return t.Later(ctx, `INSERT INTO maven_names (root, artifact, name) VALUES ($1, '', $2) ON CONFLICT DO NOTHING`,
				store.Segment(group.Root()), string(group))
		})
		if err != nil || n < mavenBatch {
			return err
		}
	}
}
