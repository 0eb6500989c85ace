package advisorydb

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

// appendEcosystems appends the ecosystems of affected packages that the list does not contain yet.
func appendEcosystems(ecosystems []string, affected []vuln.Affected) []string {
	for _, p := range affected {
		if !slices.Contains(ecosystems, p.Ecosystem) {
			ecosystems = append(ecosystems, p.Ecosystem)
		}
	}
	return ecosystems
}

// addEcosystems records that the group has advisories about ecosystems.
func (t Tx) addEcosystems(ctx context.Context, group resource.UID, ecosystems []string) error {
	slices.Sort(ecosystems) // so that two imports cannot deadlock
	var rows [][]any
	for _, e := range ecosystems {
		rows = append(rows, []any{e, string(group)})
	}
	return t.InsertRows(ctx, `INSERT INTO advisory_ecosystems (ecosystem, grp)`, rows, ` ON CONFLICT DO NOTHING`)
}

// CoveredEcosystems reports for each ecosystem whether an advisory in reach is about it, as version.SameEcosystem
// defines it. An advisory about a whole ecosystem, such as Debian, covers all of its releases, such as Debian:12. An
// advisory about one release also covers the ecosystem without a release.
func (s *Store) CoveredEcosystems(ctx context.Context, r store.Reach, ecosystems []string) (map[string]bool, error) {
	covered := map[string]bool{}
	advised := map[string][]string{} // ecosystems of the advisories, by their names without a release
	for _, e := range ecosystems {
		for _, base := range version.Bases(e) {
			if _, ok := advised[base]; !ok {
				found, err := s.advisedEcosystems(ctx, r, base)
				if err != nil {
					return nil, err
				}
				advised[base] = found
			}
			covered[e] = covered[e] || slices.ContainsFunc(advised[base], func(a string) bool {
				return version.SameEcosystem(e, a)
			})
		}
	}
	return covered, nil
}

// advisedEcosystems returns the ecosystems of the advisories in reach whose name without a release is base.
func (s *Store) advisedEcosystems(ctx context.Context, r store.Reach, base string) (found []string, _ error) {
	for _, c := range groupConditions(store.Visible(false, r, resource.UIDFilter{})) {
		n := len(c.args)
		text := fmt.Sprintf(`SELECT DISTINCT ecosystem FROM advisory_ecosystems
			WHERE %s AND (ecosystem = $%d OR ecosystem >= $%d AND ecosystem < $%d)`, c.text, n+1, n+2, n+3)
		names, err := store.ReadColumn[string](ctx, s.Rows, text, append(slices.Clone(c.args), base, base+":", base+";")...)
		if err != nil {
			return nil, err
		}
		found = append(found, names...)
	}
	return found, nil
}
